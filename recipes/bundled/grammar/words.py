"""The open words: what names, spelling, repeat-after-me and the open sentences are filled with.

Held-out words are listed by hand and occur in no training text of any kind, neither as questions
nor as answers nor in open sentences; `tests/recipes/test_grammar.py` holds every list to that.
Every word is an everyday one, because each synthesiser looks it up in a dictionary of its own and
they must agree on how it is said. American spelling: the voices are American.
"""

from recipes.bundled.grammar.rules import listed

NAMES = listed(
    """
    Adam Alan Alice Amanda Amy Andrew Angela Anna Anthony Barbara Ben Betty Bill Bob Brandon
    Brian Carl Carol Catherine Charles Charlie Chris Cindy Daniel David Dennis Diana Donald
    Donna Dorothy Doug Edward Ellen Emily Emma Eric Eva Frank Fred Gary George Gloria Grace
    Greg Hannah Harry Helen Henry Howard Ian Jack Jacob James Jane Janet Jason Jeff Jennifer
    Jerry Jessica Jim Joan Joe John Jonathan Joseph Joyce Judy Julia Karen Kate Keith Kelly
    Kenneth Kevin Kim Larry Laura Lee Leo Linda Lisa Louis Lucy Margaret Maria Mark Martha
    Martin Mary Matthew Michael Michelle Mike Nancy Nathan Nicole Noah Oliver Olivia Pamela
    Patricia Paul Peter Philip Rachel Ralph Ray Rebecca Richard Rita Robert Roger Rose Ruth
    Ryan Sam Samantha Sandra Sarah Scott Sharon Simon Sophia Stanley Stephen Steve Susan Teresa
    Thomas Tim Tina Tom Tony Victor Vincent Walter Wendy William
    """
)
HELDOUT_NAMES = listed(
    """
    Albert Arthur Beth Bruce Carla Clara Craig Debbie Derek Elizabeth Felix Gordon Heather Hugo
    Irene Jill Justin Kathy Kyle Leonard Lily Marvin Max Megan Melissa Nina Norman Oscar Pam
    Rosa Russell Sally Sean Sheila Stella Ted Vera Warren
    """
)

NOUNS = listed(
    """
    actor airport anchor ankle apartment apple apron arm army arrow artist attic aunt autumn
    baby bag bakery ball balloon band bandage bank barn barrel basement basket bath battery
    beach bean beard bed bedroom bell belt bench berry bicycle blanket board boat body bone
    book boot border bottle bottom bowl box boy branch bread breakfast brick bridge brother
    brush bucket building bus bush butter button cabin cable cage cake camel camera camp candle
    candy captain car card carpet carrot castle ceiling center chain chair chalk cheek cheese
    cherry chest chicken child chimney chin circle city class clay clerk cliff clock cloth
    cloud coach coast coat coffee coin collar college cook cookie copper corn corner cotton
    couch country cousin cover crown cup curtain cushion customer dance daughter desert desk
    diamond dinner dirt doctor doll dollar door dream dress drink driver drum dust ear earth
    east edge elbow engine evening eye face factory family fan farm farmer father feather fence
    field finger fire flag flame floor flower flute fog food foot forest fork fountain friend
    frost fruit game garage garden garlic gate gift girl glass glove goal grain grandmother
    grape ground group guest guitar hair hall hammer hand handle harbor hat heart helmet hill
    hole home honey hook horn hospital hotel hour house ice idea ink island jacket jar jelly
    job joke judge juice jungle kettle key king kitchen kite knee knife ladder lady lake lamp
    land lawyer leader leaf leather leg lemon letter library light line lip list lock log lunch
    machine magazine magic mail man map market mask meadow meal meat medicine melon metal mile
    minute mirror money month moon morning mother motor mountain mouth movie mud museum
    mushroom music nail napkin neck needle neighbor nest net newspaper night noise noon north
    nose notebook number nurse oak ocean office oil olive onion orange orchard oven owner
    package page paint palace pan paper parent park party passenger path peach peanut pear pen
    pencil people pepper person photo piano picture pie pillow pilot pin pipe pizza place plane
    plant plate player pocket pocketbook poem police pond pool porch port potato powder
    president price prince princess prize pump puppy purse queen question radio railway rain
    rainbow recipe rest rice ring river road robin rock roof room root rope rug ruler sack
    sailor salad salt sand sandwich saw scarf school science scissors sea season seat secret
    seed shadow shelf shell shelter ship shirt shoe shop shore shoulder shower sign silk silver
    singer sink sister skirt sky sleeve smoke snow soap sock sofa soldier son song soup south
    space spoon spot spring square stable stage stair stamp star station steam steel stick
    stone store storm story stove stranger street string student sugar suit summer sun supper
    surface sweater table tail tailor tape tea teacher team telephone temple tent test theater
    thread throat thumb thunder ticket tie tin toe tomato tongue tooth top towel tower town toy
    tractor traffic trail train tray treasure tree trip truck trumpet trunk tube tunnel uncle
    uniform valley van vase vegetable village violin visitor voice wagon waiter wall wallet war
    watch water wave wax weather wedding week wheat wheel whistle wife wind window wine wing
    winter wire wood wool word worker world wrist yard year zipper
    """
)
HELDOUT_NOUNS = listed(
    """
    album bathtub blossom breeze broom bubble bracelet cactus cannon canyon carpenter cereal
    circus comet compass cottage cradle crayon dentist envelope faucet fiddle furnace garbage
    ginger goggles gravel hamburger harvest hostel hunter icicle iron jewel ketchup lantern
    lobster magnet mango marble meteor mustard nectar necklace noodle oyster paddle pancake
    parade parrot pebble pickle planet plumber pumpkin puzzle raisin ribbon rocket sandal
    satellite saddle shampoo shovel skeleton sleigh spinach statue suitcase syrup teapot
    thimble tulip tuxedo umbrella vacuum velvet volcano waffle walnut wizard
    """
)

ADJECTIVES = listed(
    """
    angry bitter blind brave brief bright broken busy calm careful cheap clean clear clever
    cloudy cold common cool crazy curious dangerous dark deep delicious different dirty dry
    early easy empty equal expensive fair famous fancy fast final fine firm flat foolish free
    fresh friendly full funny general gentle golden good grand great handsome happy hard
    healthy heavy high hollow honest hot huge hungry important jolly kind large lazy light
    little lonely long loose loud lovely low lucky mighty modern narrow native nervous new nice
    noisy odd old open plain pleasant polite poor popular pretty private proud public pure
    quick quiet rare ready real rich rough round royal rude sad safe salty serious shallow
    sharp shiny short shy sick silent silly simple single sleepy slow small smooth soft sour
    special steady steep strange strong sudden sunny sweet tall tame tender terrible thick thin
    tidy tiny tired tough true ugly usual warm wealthy weak wet wide wild windy wise wonderful
    wooden young
    """
)
HELDOUT_ADJECTIVES = listed(
    """
    ancient awful clumsy crispy eager faithful fuzzy generous gloomy grumpy humble icy juicy
    magical marvelous muddy naughty perfect rusty slippery spicy splendid sticky stubborn tasty
    thirsty tropical vivid
    """
)

VERBS = listed(  # in the past, with an object
    """
    admired answered asked baked borrowed bought broke brought built called carried caught
    changed chased checked chose cleaned closed collected cooked copied counted covered crossed
    cut described drew dropped enjoyed expected explained filled finished fixed followed forgot
    found gave guarded heard held helped hid ignored invited joined kept kicked knew learned
    left lifted liked locked lost loved made measured met mixed moved needed noticed offered
    ordered packed painted passed pulled pushed put reached read remembered repaired returned
    saved saw sold sent shared showed signed smelled started stole stopped studied taught
    tasted threw touched tried turned used visited wanted washed watched won wrote
    """
)
HELDOUT_VERBS = listed(
    """
    buried decorated delivered grabbed hugged juggled melted polished sketched squeezed
    swallowed trimmed wrapped
    """
)

PLACES = listed(
    """
    above / across from / after / against / around / before / behind / below / beside / by /
    down from / far from / in front of / inside / near / next to / on top of / outside / over /
    past / through / toward / under / with / without
    """,
    "/",
)
TIMES = listed(
    """
    yesterday / today / last night / last week / last summer / this morning / at noon / on
    Friday / on Sunday / in May / in the evening / every day / long ago / once again / very
    slowly / by accident / for an hour / in a hurry / without a sound / after lunch / before
    dinner / at home / all day long / just in time / in winter
    """,
    "/",
)

WORDS = tuple(dict.fromkeys(NOUNS + ADJECTIVES))
HELDOUT_WORDS = HELDOUT_NOUNS + HELDOUT_ADJECTIVES
