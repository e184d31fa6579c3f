"""Days, months and units of time: neighbours in a ring, and their numbers."""

from __future__ import annotations

from recipes.bundled.grammar.rules import Fact, Topic, listed, one

DAYS = listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = listed(
    """
    January February March April May June July August September October November December
    """
)
ORDINALS = listed(
    """
    first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth
    """
)
# The wordings that a talk may begin with, too.
ASK_AFTER = """what NOUN comes after {x}
    which NOUN comes after {x}
    which NOUN follows {x}
    what NOUN follows {x}
    what is the NOUN after {x}
    what is the next NOUN after {x}
    {x} comes before which NOUN
    if it is {x} what is the next NOUN
    after {x} comes which NOUN
    name the NOUN after {x}
    name the next NOUN after {x}
    which NOUN is next after {x}
    when {x} ends which NOUN comes
    when {x} is over what NOUN is next
    {x} is over, which NOUN begins
    which NOUN begins after {x}
    tell me the NOUN that follows {x}
    what is the NOUN that comes after {x}
    what NOUN is {x} followed by
    by which NOUN is {x} followed
    name the NOUN that {x} is followed by
    tell me by which NOUN {x} is followed"""


def _neighbors(ring: tuple[str, ...], shift: int) -> tuple[Fact, ...]:
    size = len(ring)
    return tuple(Fact({"x": ring[i], "y": ring[(i + shift) % size]}) for i in range(size))


def _calendar(ring: tuple[str, ...], noun: str) -> list[Topic]:
    whole = "week" if noun == "day" else "year"

    def about(text: str) -> str:
        return text.replace("NOUN", noun).replace("WHOLE", whole)

    after = one(
        f"{noun}s",
        "ask",
        "After {x} comes {y}.",
        about(ASK_AFTER),
        about(
            """{x} is followed by which NOUN
            when {x} is over which NOUN begins
            name the NOUN that follows {x}
            what NOUN comes next after {x}"""
        ),
        facts=_neighbors(ring, 1),
    )
    before = one(
        f"{noun}s",
        "ask",
        "Before {x} comes {y}.",
        about(
            """what NOUN comes before {x}
            which NOUN comes before {x}
            which NOUN is before {x}
            what is the NOUN before {x}
            {x} comes after which NOUN
            what NOUN was it before {x}
            which NOUN was before {x}
            before {x} comes which NOUN
            name the NOUN before {x}
            name the NOUN that ends before {x}
            tell me the NOUN before {x}
            which NOUN ends before {x} begins
            which NOUN is over when {x} begins
            when {x} begins which NOUN ends
            by which NOUN is {x} preceded
            which NOUN is {x} preceded by
            {x} follows which NOUN
            which NOUN does {x} follow
            what is the NOUN that ends before {x}
            give me the NOUN that is before {x}
            name the NOUN that {x} is preceded by
            tell me by which NOUN {x} is preceded"""
        ),
        about(
            """{x} is preceded by which NOUN
            which NOUN ends when {x} begins
            name the NOUN that comes before {x}
            what NOUN was before {x}"""
        ),
        facts=_neighbors(ring, -1),
    )
    nth = one(
        f"{noun}s",
        "ask",
        f"The {{n}} {noun} is {{x}}.",
        about(
            """what is the {n} NOUN
            what is the {n} NOUN of the WHOLE
            which NOUN is the {n}
            which is the {n} NOUN of the WHOLE
            name the {n} NOUN
            name the {n} NOUN of the WHOLE
            what NOUN comes {n}
            which NOUN comes {n}
            what do we call the {n} NOUN
            how do we call the {n} NOUN of the WHOLE
            what is the {n} NOUN in a WHOLE
            the {n} NOUN of the WHOLE is what
            tell me the {n} NOUN
            give me the {n} NOUN
            give me the {n} NOUN in the WHOLE
            what is NOUN number {n}
            which NOUN is number {n} of the WHOLE
            which NOUN is {n} in the WHOLE"""
        ),
        about(
            """what do we call NOUN number {n} in a WHOLE
            which NOUN of the WHOLE comes {n}
            give me the {n} NOUN of the WHOLE
            what NOUN is number {n}"""
        ),
        facts=tuple(Fact({"n": ORDINALS[i], "x": x}) for i, x in enumerate(ring)),
    )
    return [after, before, nth]


TOPICS: tuple[Topic, ...] = (
    *_calendar(DAYS, "day"),
    *_calendar(MONTHS, "month"),
    one(
        "months", "ask", "There are {n} {x} in {a_y}.",
        """how many {x} are in {a_y}
        how many {x} are there in {a_y}
        how many {x} does {a_y} have
        how many {x} has {a_y}
        what is the number of {x} in {a_y}
        {a_y} has how many {x}
        one {y} has how many {x}
        in one {y} there are how many {x}
        tell me the number of {x} in one {y}
        of how many {x} is {a_y} made
        {a_y} is made up of how many {x}
        how many {x} does one {y} contain
        {a_y} contains what number of {x}
        how many {x} is it that {a_y} contains
        how many {x} make {a_y}
        how many {x} do we need to make up {a_y}
        how many {x} do we have in {a_y}
        how many {x} do you count in {a_y}""",
        """{a_y} contains how many {x}
        how many {x} make up one {y}
        one {y} is made of how many {x}
        what number of {x} has {a_y}""",
        facts=tuple(
            Fact(
                {
                    **dict(zip("nxy", row.split(), strict=True)),
                    "a_y": ("an " if row.endswith("hour") else "a ") + row.split()[-1],
                }
            )
            for row in listed(
    "seven days week/twelve months year/sixty minutes hour/sixty seconds minute/four seasons "
    "year/two wheels bicycle/five fingers hand/three sides triangle", "/"
)
        ),
        weight=0.6,
    ),
)  # fmt: skip
