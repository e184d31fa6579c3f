"""Animals: the sounds they make, the legs they have, what they can do."""

from __future__ import annotations

from recipes.bundled.grammar.rules import Fact, Topic, one, table

SOUNDS = table(
    """
    cow: moo / dog: woof / cat: meow / duck: quack / sheep: baa / pig: oink / horse: neigh /
    lion: roar / bee: buzz / snake: hiss / owl: hoo / frog: ribbit / bird: tweet / mouse:
    squeak / wolf: howl / hen: cluck / donkey: hee haw / crow: caw / goat: maa / turkey: gobble
    """
)
LEGS = table(
    """
    cow: four / dog: four / cat: four / duck: two / sheep: four / pig: four / horse: four /
    lion: four / bee: six / snake: no / owl: two / frog: four / bird: two / mouse: four / wolf:
    four / hen: two / spider: eight / ant: six / fish: no / rabbit: four / bear: four / tiger:
    four / worm: no / fly: six / elephant: four / goose: two / monkey: two / whale: no /
    beetle: six / fox: four
    """
)
CAN = {
    "fly": (
        "bird bee owl duck fly crow goose beetle",
        "cow dog cat pig horse snake elephant fox worm",
    ),
    "swim": ("fish duck whale frog goose", "hen bee ant owl worm"),
    "bark": ("dog", "cat cow fish bird horse sheep"),
    "climb": ("cat monkey bear mouse", "cow fish whale horse"),
    "jump": ("frog cat rabbit horse dog", "snake worm elephant"),
}


def _a(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun


_CAN_FACTS = tuple(
    Fact(
        {
            "animal": _a(noun),
            "do": verb,
            "answer": f"{'Yes' if able else 'No'}, {_a(noun)} can{'' if able else ' not'} {verb}.",
        }
    )
    for verb, (can, can_not) in CAN.items()
    for able, nouns in ((True, can), (False, can_not))
    for noun in nouns.split()
)

# The wordings that a talk may begin with, too.
ASK_SOUND = """what sound does {an_animal} make
        what does {an_animal} say
        what does the {animal} say
        how does {an_animal} sound
        which sound does the {animal} make
        what noise does {an_animal} make
        which noise does the {animal} make
        make the sound of {an_animal}
        make the noise of {an_animal}
        how does the {animal} go
        sound like {an_animal}
        make a noise like {an_animal}
        imitate the sound of {an_animal}
        imitate the noise of the {animal}
        imitate how {an_animal} calls
        imitate the call of {an_animal}
        what do you hear from {an_animal}
        what do I hear when {an_animal} speaks
        when {an_animal} calls what is the sound
        what is the sound when the {animal} calls
        how does {an_animal} call
        what sound comes from {an_animal}
        what noise comes from the {animal}
        what is the sound of {an_animal}
        tell me the sound of the {animal}
        {an_animal} makes which sound
        the {animal} makes which noise
        the {animal} says what"""
ASK_LEGS = """how many legs does {an_animal} have
        how many legs has {an_animal}
        how many legs are on {an_animal}
        {an_animal} has how many legs
        what is the number of legs of {an_animal}
        how many legs does the {animal} have
        count the legs on {an_animal}
        count how many legs {an_animal} has
        tell me the number of legs on {an_animal}
        on how many legs does {an_animal} stand
        on how many legs does {an_animal} run
        how many legs does {an_animal} walk on
        how many legs does {an_animal} use to walk
        how many feet does {an_animal} have
        how many feet are on {an_animal}
        how many feet has the {animal}
        how many legs are under {an_animal}
        how many legs are there under the {animal}
        what number of legs does {an_animal} have
        {an_animal} stands on how many legs
        do you know how many legs {an_animal} has"""

TOPICS: tuple[Topic, ...] = (
    one(
        "animal sounds", "ask", "The {animal} says {sound}.",
        ASK_SOUND,
        """what do you hear when {an_animal} calls
        imitate {an_animal}
        which noise comes from {an_animal}
        what is the noise of {an_animal}
        {an_animal} makes what sound""",
        facts=tuple(
            Fact({"animal": animal, "an_animal": _a(animal), "sound": sound})
            for animal, sound in SOUNDS.items()
        ),
        weight=1.5,
    ),
    one(
        "animal sounds", "ask", "The {animal} says {sound}.",
        """which animal says {sound}
        what animal says {sound}
        who says {sound}
        who goes {sound}
        which animal makes the sound {sound}
        who makes the sound {sound}
        what animal goes {sound}
        which animal goes {sound}
        what animal makes the noise {sound}
        what animal sounds like {sound}
        {sound} is the sound of which animal
        {sound} is the noise of what animal
        {sound} is said by which animal
        whose sound is {sound}
        I hear {sound}, which animal is it
        I hear {sound}, what animal is near
        if I hear {sound} what animal is it
        when I hear {sound} which animal is near me
        name the animal that says {sound}
        name the animal that makes the sound {sound}
        from which animal comes {sound}
        {sound} comes from which animal""",
        """{sound} is the noise of which animal
        if I hear {sound} which animal is near
        who makes the noise {sound}
        name the animal that goes {sound}""",
        facts=tuple(Fact({"animal": animal, "sound": sound}) for animal, sound in SOUNDS.items()),
    ),
    one(
        "animal legs", "ask", "The {animal} has {legs} legs.",
        ASK_LEGS,
        """count the legs of {an_animal}
        on how many legs does {an_animal} walk
        how many feet are under {an_animal}
        {an_animal} has how many feet
        what number of legs has {an_animal}""",
        facts=tuple(
            Fact({"animal": animal, "an_animal": _a(animal), "legs": legs})
            for animal, legs in LEGS.items()
        ),
        weight=1.5,
    ),
    one(
        "animal skills", "ask", "{answer}",
        """can {animal} {do}
        is {animal} able to {do}
        does {animal} {do}
        could {animal} {do}
        would {animal} {do}
        will {animal} ever {do}
        is it true that {animal} can {do}
        is it possible for {animal} to {do}
        it is possible for {animal} to {do}, is that true
        do you think {animal} can {do}
        did you ever see {animal} {do}
        have you seen {animal} {do}
        has anybody ever seen {animal} {do}
        have people seen that {animal} can {do}
        does {animal} learn how to {do}
        has {animal} learned how to {do}
        do you know if {animal} can {do}
        {animal} can {do}, is that true
        {animal} can {do}, yes or no
        yes or no, can {animal} {do}
        is it so that {animal} is able to {do}
        have you heard that {animal} can {do}""",
        """have you ever seen {animal} {do}
        would {animal} be able to {do}
        does {animal} know how to {do}
        is it possible that {animal} can {do}
        {animal} is able to {do}, yes or no""",
        facts=_CAN_FACTS,
        weight=1.5,
    ),
)  # fmt: skip
