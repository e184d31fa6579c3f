"""The open words: they fill names, spelling, repeat-after-me and the open sentences.

Held-out words are listed explicitly and occur in no training text, neither as questions nor as
answers nor in open sentences; `tests/recipes/test_grammar.py` checks every list. Every word is an
everyday one, because each synthesiser uses its own dictionary and they must agree on its
pronunciation. American spelling, because the voices are American.
"""

from recipes.bundled.grammar.names import HELDOUT_NAMES as HELDOUT_NAMES
from recipes.bundled.grammar.names import NAMES as NAMES
from recipes.bundled.grammar.rules import listed

NOUNS = listed(
    """
    accident account acorn actor adult advice agent airport alarm alley alligator almond
    ambulance anchor angel ankle antelope antenna apartment applause apple apron arch area
    argument arm armchair army arrow article artist ash aspirin athlete atlas atom attic
    audience aunt author autumn award baby badge badger bag bagel bait bakery balance balcony
    ball ballet balloon bamboo banana band bandage banjo bank banker banner barber bargain
    barn baron barrel baseball basement basin basket basketball bath bathroom battery bay
    beach bean beard beaver bed bedroom bedspread beef beetle beggar beginner bell belly belt
    bench berry bicycle bike bill biscuit bishop blackberry blacksmith blade blanket blaze
    blend blizzard block blouse bluebird boar board boat bobcat body bolt bone bonfire bonnet
    book bookcase boot border boss bottle bottom boulder boundary bouquet bowl box boy bracket
    brake branch brass bread breakfast brick bride bridge broccoli broth brother browser brush
    bucket bud budget buffalo bug bugle builder building bull bulldozer bullet bumper bundle
    bunny burger bus bush butcher butler butter butterfly button buyer cabbage cabin cabinet
    cable cafe cage cake calendar calf camel camera camp campus canal canary candle candy
    canoe canvas cape captain car caramel caravan card career cargo carnival carpet carrot
    cart carton cartoon cashew cashier castle catalog caterpillar cave cavern ceiling celery
    cell cellar cement center chain chair chalk champion channel chapter charcoal chart cheek
    cheese cheetah chef cherry chess chest chestnut chicken chief child chimney chimpanzee
    chin chip chocolate choir chorus church cider cinema circle citizen city clam class
    classroom claw clay clerk cliff climate clinic cloak clock closet cloth cloud clover clown
    club clue coach coast coat cobra cocoa coconut code coffee coin collar college colony
    column comb comedy comic committee concert cone contest contract cook cookie copper coral
    cord cork corn corner costume cotton couch country couple coupon courage course court
    cousin cover cow cowboy coyote crab cracker crane crate cream creature credit creek crew
    cricket critic crocodile crop cross crowd crown cruise crumb crust crystal cube cucumber
    culture cup cupboard cure curl curry curtain curve cushion custard customer cymbal dagger
    dairy daisy dam damage dance danger daughter dawn deal debate debt decade deck deer degree
    delay denim deputy desert design desk detail detective dew diamond dictionary diet digit
    dime dinner dinosaur diploma direction director dirt disease dishwasher disk distance
    district ditch diver dock doctor dog doll dollar dolphin donkey door doorway dot doughnut
    dozen dragon drain drama drawbridge drawer drawing dream dress drill drink driver drop
    drum drummer duck duet dune dust duty eagle ear earring earth earthquake easel east edge
    editor effort eggplant elbow elephant elevator elk elm emperor employer energy engine
    engineer entrance error escape essay estate evening event evidence exam example exit
    expert eye eyebrow fable fabric face fact factory fairy falcon fame family fan farm farmer
    farmhouse fashion fate father fault feast feather feature fee fence ferry fever fiber
    fiction field fig figure film filter finger finish fire firefly fireman fireplace fish
    fist flag flame flashlight fleet flight flood floor flour flower fluid flute foal foam fog
    foil folder folk food foot football force forehead forest fork form fort fortune fossil
    fountain frame freedom freezer freight friend frog frost fruit fuel fur future galaxy
    gallery gallon gallop game garage garden garlic garment gas gasoline gate gazelle gear gem
    genius ghost giant gift giraffe girl glacier glass globe glory glove glue goal goat goose
    gorilla gossip governor gown grade grain grammar grandfather grandmother grandson granite
    grape grass grasshopper gravity gravy grease greenhouse grill grocer grocery ground group
    growth guard guess guest guide guitar gulf gum gutter gym habit hail hair haircut hall
    hallway halo ham hammer hamster hand handbag handkerchief handle hanger harbor harmony
    harness harp hat hatchet hawk hay headache headlight health heap heart heat heater hedge
    heel height heir helicopter helmet hen herb herd hero hill hive hobby hockey hole holiday
    home homework honey hood hoof hook horizon horn hornet horror horse hose hospital host
    hotel hound hour house household hunger hurdle hurricane husband hut ice idea idol image
    inch income infant injury ink inn insect instrument insurance island item ivory ivy jacket
    jam janitor jar jaw jay jeep jelly jet job joke journal journey joy judge judgment jug
    juice jumper jungle jury kangaroo keeper kennel kettle key keyboard kid kidney king
    kingdom kiss kit kitchen kite kitten knee knife knight knob knot label labor lace lad
    ladder lady lake lamb lamp land landlord lane language lap laser laughter lava law lawn
    lawyer layer leader leaf leash leather lecture leg lemon leopard lesson letter lettuce
    level liar library lid light lightning limb lime limit line linen lion lip lipstick liquid
    list litter liver lizard llama load loaf loan lobby lock locker lodge log loop lord lotion
    luck lumber lunch luxury lyric machine madam magazine magic magpie maid mail mailbox
    mailman makeup mall mammal man manager manner mansion mantle manual map margin mark marker
    market marriage marsh mascot mask master match mate math matter mattress mayor maze meadow
    meal meaning meat medicine melon member memory menu mermaid message messenger metal method
    microscope midnight mile milk mill miller mineral minute mirror mission mist mitten model
    moment monarch money monkey monster month monument moon moose mop morning mosquito motel
    moth mother motion motor motorcycle mountain mouse mouth movie mud muffin mug mule muscle
    museum mushroom music musician mystery myth nail nap napkin nation nature neck necktie
    needle neighbor nephew nerve nest net newborn newspaper nickel niece night nightmare noise
    noon north nose note notebook novel number nurse nut nutmeg oak oar oatmeal ocean office
    officer oil olive omelet onion opera option orange orbit orchard orchestra organ orphan
    ostrich otter outfit outlet oval oven owl owner ox oxygen package pad page paint painter
    painting pair palace palm pan panda panel panic panther paper parcel parent park parking
    parlor parsley partner party passage passenger passport pasta paste pastry patch path
    patient patio pattern pause paw pay payment peace peach peak peanut pear pedal pelican pen
    pencil penguin penny people pepper person pet phone photo phrase physics pianist piano
    picture pie pig pigeon pile pill pillar pillow pilot pin pine pineapple pint pipe pirate
    pit pitch pitcher pizza place plan plane planner plant plaster plastic plate platform
    player playground pleasure plot plow plug plum pocket pocketbook poem poet poetry point
    pole police policeman pond pony pool popcorn poppy porch porcupine pork port portrait post
    postcard poster pot potato pottery pound powder practice prairie prayer president press
    pretzel price prince princess principal printer prize problem product professor profit
    promise proof property protest pudding puddle pulse pump punch pupil puppet puppy purpose
    purse quail quart quarter quartz queen quilt quiz rabbit raccoon race racket radar radio
    radish raft rag rail railroad railway rain rainbow raincoat rake ram ranch ranger rat
    rattle raven razor receipt recipe reef referee refrigerator region reindeer relative
    relief remark remedy rent reporter reptile reserve resort rest restaurant reward rhyme
    rhythm rib rice rider ring risk ritual rival river road robe robin rock rod roller roof
    room rooster root rope rose route routine rubber rubbish ruby rug ruin rule ruler rumor
    runner runway rust sack sadness sail sailor saint salad salary sale salesman salmon salt
    sample sand sandbox sandwich satin sauce saucer sausage saw scale scar scarf scene scent
    schedule scholar school science scissors score scout scrap screen screw script sculpture
    sea seafood seal search season seat seaweed secret secretary section security seed senator
    sense sentence servant service shade shadow shark shed sheep sheet shelf shell shelter
    sheriff shield shift ship shirt shock shoe shoelace shop shore shoreline shoulder shower
    shrimp shrub shuttle side sidewalk sign signal silence silk silo silver singer sink sister
    skate ski skill skin skirt skull skunk sky sled sleeve slice slide slope smell smile smoke
    snack snail snake snow snowball snowflake snowman soap society sock soda sofa soil soldier
    solution son song soul soup source south soybean space spade spark sparrow speaker spear
    speech speed sphere spice spider spike spirit sponge spoon sport spot spring squad square
    squirrel stable stadium staff stage stain stair stairway stall stamp star statement
    station steak steam steamer steel stem step steward stick stitch stocking stomach stone
    stool storage store stork storm story stove stranger strap straw strawberry stream street
    strength stress string stripe student studio stuff style subject submarine subway success
    sugar suit summer sun sunflower sunlight sunrise sunset sunshine supper supply surface
    surfer surgeon surprise swamp swan sweat sweater sweatshirt swimmer swing switch sword
    symbol system table tablet tack tail tailor talent tank tape target task taste tax taxi
    tea teacher team teammate teaspoon technique teenager telephone television temper temple
    tennis tent term territory test text textbook theater thief thorn thought thread throat
    throne thumb thunder ticket tide tie tiger tile timber tin tip tire tissue title toad
    toast toaster toe tomato tongue tool tooth toothbrush toothpaste top torch tornado
    tortoise touch tour tourist towel tower town toy trace track tractor trade traffic trail
    trailer train trainer trap trash travel traveler tray treasure treat treaty tree trial
    triangle tribe trick tricycle trip triumph trolley trophy trouble trout truck trumpet
    trunk trust truth tub tube tuna tunnel turkey turnip turtle twin type typewriter uncle
    uniform union unit universe vacation valley van vapor variety vase vegetable veil vein
    vest vet victory video view village villain vine vinegar violin virus vision visitor
    vitamin voice vote voyage vulture wage wagon waist waiter waitress walker wall wallet
    walrus war warehouse warning warrior wasp waste watch watchman water waterfall watermelon
    wave wax way wealth weasel weather weaver web wedding weed week weekend weight whale wheat
    wheel whip whisper whistle widow width wife wig wilderness wildlife willow wind windmill
    window windshield wine wing winner winter wire witness wolf wood woodpecker wool word
    worker workshop world worm wreath wreck wrench wrist writer yard yarn year yeast yogurt
    youth zebra zipper zone zoo
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
    absent active actual afraid aged alert alike alone amused angry annoyed anxious artistic
    ashamed asleep athletic aware awkward bald bare basic bitter blank bleak blind blue bold
    bored boring brave brief bright brilliant broad broken brown bumpy busy calm careful
    careless casual cautious central certain charming cheap cheerful chilly classic clean
    clear clever cloudy coastal cold colorful comfortable common complete complex confident
    confused constant cool costly cozy crazy creamy creative crooked crowded curious cute
    daily damp dangerous daring dark deaf decent deep delicate delicious delightful dense
    different digital dim direct dirty distant dizzy double doubtful dreadful drowsy dry dull
    dusty early eastern easy elderly electric elegant empty endless enormous entire equal
    essential even exact excellent excited exciting expensive extra fabulous faint fair fake
    familiar famous fancy fast fearless fellow festive fierce filthy final fine firm fit fixed
    flat flexible floral fluffy foggy folded foolish forgetful formal fortunate fragile frank
    free freezing fresh friendly frightened frozen fruity full funny furious furry general
    gentle global glorious golden good graceful grand gray greasy great greedy guilty hairy
    handsome handy happy hard harmful harmless harsh hasty healthy heavy helpless hidden high
    hollow honest hopeful horrible hot huge humorous hungry hurt ideal idle ill important
    impossible incredible innocent intelligent jealous jolly joyful junior keen known lame
    large lasting lazy lean legal level light likely liquid little lively local lonely long
    loose loud lovely low loyal lucky mad main major mature mean medical mellow merry messy
    mighty mild minor missing misty mobile modern moist monthly moral mysterious narrow nasty
    native natural nearby neat necessary negative nervous neutral new nice nimble noble noisy
    northern numb obedient obvious odd official oily old only open orange ordinary original
    outdoor outer overdue painful pale partial passive patient peaceful personal pink plain
    plastic playful pleasant plump poetic pointed poisonous polite poor popular positive
    practical precious pretty prickly primary prime private proud public pure purple quiet
    rainy random rapid rare raw ready real recent regular related relaxed reliable religious
    remote responsible restless rich rigid ripe roomy rosy rotten rough round royal rude rural
    sad safe salty sandy satisfied scared scary secret secure selfish senior sensible serious
    severe shady shaky shallow sharp shiny short shy sick silent silly simple sincere single
    skilled skinny sleepy slender slim sloppy slow small smiling smoky smooth snowy sober
    social soft solar solid sore sour southern spare sparkling special speedy spotless spotted
    stale standard steady steaming steep stiff stormy straight strange striped strong sturdy
    stylish sudden sunken sunny super superb surprised suspicious sweaty sweet swift talented
    talkative tall tame tan tasteless technical tender tense terrible thankful thick thin
    thorough thoughtful tidy timid tiny tired tiresome tough tragic tricky troubled true
    typical ugly unable uneasy uneven unfair uniform unique united unknown unusual upper upset
    urban urgent useful useless usual vacant vague valuable various vast verbal visible vital
    warm wavy weak wealthy weary weekly weird western wet whole wicked wide wild willing windy
    wise witty wonderful wooden worried worthy yearly yellow young youthful
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
    accepted admired adopted announced answered approved arranged asked avoided baked blamed
    blocked boiled borrowed bought bounced broke brought brushed built bumped burned buttoned
    called canceled captured carried caught challenged changed chased checked chewed chopped
    chose claimed clapped cleaned climbed closed collected combed completed controlled cooked
    copied corrected counted covered crashed crossed cured cut damaged defended described
    deserved designed destroyed developed discovered discussed divided dragged drank dreamed
    drew dried drilled dropped drove dug dusted earned emptied enjoyed entered examined
    exchanged expected explained faced fastened fed felt fetched filled finished fixed flipped
    folded followed forced forgave forgot formed fought found framed freed froze gained
    gathered gave glued greeted grew guarded guessed guided hammered handed handled hated
    heard held helped hid hired hit hurt ignored imagined improved included inspected
    interrupted introduced invited joined judged jumped kept kicked kissed knew knitted
    knocked labeled landed launched learned led left lent licked lifted liked listed loaded
    locked lost loved made mailed managed marked married matched measured mentioned met mixed
    moved nailed needed noticed obeyed observed offered opened ordered owed owned packed
    painted parked passed peeled phoned picked pinched placed planned planted played pointed
    poked poured praised preferred prepared pressed prevented printed produced promised
    protected proved pulled punished purchased pushed put questioned raised raked reached read
    recognized recorded refused rejected released remembered removed rented repaired replaced
    reported rescued respected returned revealed rewarded ripped rode rolled rubbed ruined
    saved saw scared scratched scrubbed sealed searched sent served sewed shared shook showed
    shut signed skipped smashed smelled sold solved sorted spilled splashed spotted stacked
    started stirred stole stopped stored stroked studied stuffed supplied supported surprised
    surrounded suspected switched tasted taught tested thanked threw tickled tied timed
    toasted took touched towed traced traded trained trapped treated tried trusted turned
    twisted typed understood unlocked unpacked untied used visited wanted washed wasted
    watched watered waved weighed welcomed whispered wiped wished won wore worried wrecked
    wrote
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
