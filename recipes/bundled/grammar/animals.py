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

TOPICS: tuple[Topic, ...] = (
    one(
        "animal sounds", "ask", "The {animal} says {sound}.",
        """what sound does {an_animal} make
        what does {an_animal} say
        what does the {animal} say
        how does {an_animal} sound
        which sound does the {animal} make
        what noise does {an_animal} make
        make the sound of {an_animal}
        how does the {animal} go""",
        """what do you hear when {an_animal} calls
        imitate {an_animal}
        which noise comes from {an_animal}""",
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
        which animal makes the sound {sound}
        what animal goes {sound}""",
        """{sound} is the noise of which animal
        if I hear {sound} which animal is near""",
        facts=tuple(Fact({"animal": animal, "sound": sound}) for animal, sound in SOUNDS.items()),
    ),
    one(
        "animal legs", "ask", "The {animal} has {legs} legs.",
        """how many legs does {an_animal} have
        how many legs has {an_animal}
        how many legs are on {an_animal}
        {an_animal} has how many legs
        what is the number of legs of {an_animal}
        how many legs does the {animal} have""",
        """count the legs of {an_animal}
        on how many legs does {an_animal} walk
        how many feet are under {an_animal}""",
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
        is it true that {animal} can {do}""",
        """have you ever seen {animal} {do}
        would {animal} be able to {do}
        does {animal} know how to {do}""",
        facts=_CAN_FACTS,
        weight=1.5,
    ),
)  # fmt: skip
