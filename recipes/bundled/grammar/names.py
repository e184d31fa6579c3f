"""First names, for training and held out; `words` has the other open words and the rules.

No month and no word that a topic says about the user: "I am June" would be ambiguous.
"""

from recipes.bundled.grammar.rules import listed

NAMES = listed(
    """
    Aaron Abby Abigail Ada Adam Agnes Alan Alex Alexander Alexis Alfred Alice Alicia Allan
    Allen Allison Alvin Amanda Amber Amy Andrea Andrew Andy Angela Angelo Anita Ann Anna Anne
    Annie Anthony Antonio Arlene Arnold Ashley Audrey Austin Barbara Barry Becky Ben Benjamin
    Bernard Bernice Bernie Bert Bertha Betty Beverly Bill Billy Blake Bob Bobby Bonnie Brad
    Bradley Brandon Brandy Brenda Brent Brett Brian Bridget Brittany Bryan Caleb Calvin
    Cameron Candace Carl Carlos Carmen Carol Caroline Carolyn Carrie Carter Casey Cassandra
    Catherine Cecil Celia Chad Charlene Charles Charlie Charlotte Chelsea Cheryl Chester Chris
    Christian Christina Christine Christopher Cindy Claire Clark Claude Claudia Clayton
    Clifford Clint Clinton Clyde Cody Colin Colleen Connie Connor Corey Courtney Crystal
    Curtis Cynthia Daisy Dale Dan Dana Daniel Danielle Danny Darlene Darren Dave David Dean
    Deborah Denise Dennis Derrick Diana Diane Dolores Dominic Don Donald Donna Doris Dorothy
    Doug Douglas Drew Duane Dustin Dylan Earl Ed Eddie Edgar Edith Edna Edward Edwin Eileen
    Elaine Eleanor Eli Elijah Elisa Ellen Elliot Elmer Elsie Emily Emma Emmett Eric Erica Erin
    Ernest Ernie Ethan Ethel Eugene Eunice Eva Evan Evelyn Faye Fernando Florence Floyd
    Frances Francis Frank Franklin Fred Freddie Gabriel Gail Gary Gavin Gene Geoffrey George
    Gerald Gilbert Gina Ginny Gladys Glen Glenda Gloria Grace Greg Gregory Gwen Hannah Harold
    Harriet Harry Hazel Hector Heidi Helen Henry Herbert Herman Hilda Holly Homer Howard Ian
    Ida Irma Irving Isaac Isabel Ivan Jack Jackie Jackson Jacob Jacqueline Jake James Jamie
    Jane Janet Janice Jared Jasmine Jason Jay Jean Jeanette Jeff Jeffrey Jennifer Jenny Jeremy
    Jerome Jerry Jesse Jessica Jim Joan Joanna Joanne Jodie Joe Joel John Johnny Jonathan
    Jordan Joseph Josh Joshua Joyce Juan Juanita Judith Judy Julia Julian Julie Karen Karl
    Kate Kathleen Kay Keith Kelly Kelsey Ken Kendra Kenneth Kenny Kent Kerry Kevin Kim Kirk
    Kristen Kurt Lance Larry Laura Lauren Lawrence Leah Lee Leo Leon Leroy Leslie Lester Lewis
    Lillian Linda Lindsay Lisa Lloyd Logan Lois Lola Loretta Lori Lorraine Louis Louise Lucas
    Lucille Lucy Luis Luke Luther Lydia Lynn Mabel Mandy Manuel Marcia Marcus Margaret Maria
    Marian Marie Marilyn Mario Marion Marjorie Mark Marlene Marshall Martha Martin Marty Mary
    Mason Matthew Maureen Maurice Mavis Maxine Melanie Melvin Mercedes Meredith Michael
    Michelle Mike Mildred Milton Mindy Miranda Miriam Mitchell Molly Monica Morgan Morris
    Muriel Myra Myrtle Nadine Nancy Naomi Natalie Natasha Nathan Neil Nelson Nicholas Nick
    Nicole Noah Nora Oliver Olivia Owen Paige Pamela Patricia Patrick Patty Paul Paula Pauline
    Pearl Peggy Penny Perry Peter Phil Philip Phoebe Phyllis Preston Rachel Ralph Randall
    Randy Ray Raymond Rebecca Reginald Rex Rhonda Richard Rick Rita Rob Robert Robin Rodney
    Roger Roland Ron Ronald Ronnie Rose Rosemary Ross Roy Ruby Rudy Russ Ruth Ryan Sabrina Sam
    Samantha Sandra Sandy Sarah Saul Scott Sergio Seth Shane Shannon Sharon Shaun Shawn Shelby
    Sheldon Shelly Sherman Sherry Shirley Sidney Simon Sonia Sophia Spencer Stacy Stan Stanley
    Stephanie Stephen Sterling Steve Steven Stewart Stuart Sue Susan Suzanne Sylvia Tamara
    Tammy Tanya Tara Taylor Teresa Terrance Terry Thelma Theodore Theresa Thomas Tiffany Tim
    Timothy Tina Todd Tom Tony Tracy Travis Trevor Troy Tyler Valerie Vanessa Vernon Veronica
    Vicki Victor Vincent Viola Violet Virgil Virginia Vivian Wade Wallace Walter Wanda Wayne
    Wendy Wesley Whitney Wilbur Wilfred William Willie Wilma Yolanda Yvonne Zachary Zoe
    """
)
HELDOUT_NAMES = listed(
    """
    Albert Arthur Beth Bruce Carla Clara Craig Debbie Derek Elizabeth Felix Gordon Heather Hugo
    Irene Jill Justin Kathy Kyle Leonard Lily Marvin Max Megan Melissa Nina Norman Oscar Pam
    Rosa Russell Sally Sean Sheila Stella Ted Vera Warren
    """
)
