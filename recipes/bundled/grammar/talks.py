"""Dialogues that continue from the last answer: the same question about another thing, or again.

Sums that continue ("and plus two?") are in `numbers`, statements of the user in `memory`.
"""

from __future__ import annotations

from recipes.bundled.grammar.animals import ASK_LEGS, ASK_SOUND, LEGS, SOUNDS
from recipes.bundled.grammar.dates import ASK_AFTER, DAYS
from recipes.bundled.grammar.echo import ECHOED, REPEAT, sample_echo
from recipes.bundled.grammar.facts import ASK_CAPITAL, ASK_COLOR, CAPITALS, COLORS
from recipes.bundled.grammar.rules import Fact, Topic, step

AGAIN = (
    """say that again
    say it again
    repeat that
    repeat it
    what did you say
    what was that
    what was it
    once more
    one more time
    another time
    say that another time
    I did not hear that
    I missed that
    I missed it, say it again
    repeat that one more time
    let me hear it once more
    let me hear that again
    run that by me
    run it by me again
    come, say it again
    come on, once more
    sorry, what did you say
    give me that again""",
    """come again
    I missed that, what was it
    run that by me another time
    say that one more time
    let me hear that once more""",
)
# "And Spain?": the same question about another thing; THING is the slot, with its article.
ANOTHER = """and THING
    now THING
    and now THING
    and for THING
    what about THING
    how about THING
    and what about THING
    and how about THING
    what is it for THING
    what is it with THING
    same thing for THING
    do the same with THING
    the same thing with THING, please
    how is it with THING"""
ANOTHER_HELDOUT = """same question for THING
    and with THING
    now the same for THING"""


def _another(slot: str, more: str, heldout: str) -> tuple[str, str]:
    return tuple(  # type: ignore[return-value]
        f"{text}\n{own}".replace("THING", slot)
        for text, own in ((ANOTHER, more), (ANOTHER_HELDOUT, heldout))
    )


def _first(wordings: str, noun: str = "") -> str:
    """Returns the wordings of a topic's question at the start of a dialogue, with the slot {x}."""
    for slot in ("{an_animal}", "the {animal}", "{thing}"):
        wordings = wordings.replace(slot, "the {x}" if "animal" in slot else "{x}")
    lines = (line.strip() for line in wordings.replace("NOUN", noun).splitlines())
    return "\n".join(dict.fromkeys(lines))


def _two(table: dict[str, str], names: tuple[str, str, str, str]) -> tuple[Fact, ...]:
    """Returns every ordered pair of different rows: ask about one, then the other."""
    rows = list(table.items())
    return tuple(
        Fact(dict(zip(names, (*one, *other), strict=True)))
        for one in rows
        for other in rows
        if one != other
    )


TOPICS: tuple[Topic, ...] = (
    Topic(
        "talk: and there",
        (
            step("ask", "The capital of {x} is {y}.", ASK_CAPITAL, ""),
            step(
                "ask", "The capital of {v} is {w}.",
                *_another(
                    "{v}",
                    """and of {v}
                    and the capital of {v}
                    and what is it for {v}""",
                    """and what would it be for {v}""",
                ),
            ),
        ),
        facts=_two(CAPITALS, ("x", "y", "v", "w")),
    ),
    Topic(
        "talk: and that",
        (
            step("ask", "The {x} says {y}.", _first(ASK_SOUND), ""),
            step(
                "ask", "The {v} says {w}.",
                *_another(
                    "the {v}",
                    """and what does the {v} answer
                    how does the {v} answer""",
                    """and what would the {v} answer""",
                ),
            ),
        ),
        facts=_two(SOUNDS, ("x", "y", "v", "w")),
    ),
    Topic(
        "talk: and that",
        (
            step("ask", "The {x} has {y} legs.", _first(ASK_LEGS), ""),
            step(
                "ask", "The {v} has {w} legs.",
                *_another(
                    "the {v}",
                    """and the {v} has how many
                    and how many are on the {v}
                    how many are there on the {v}
                    and there are how many under the {v}""",
                    """and on the {v} there are how many""",
                ),
            ),
        ),
        facts=_two(LEGS, ("x", "y", "v", "w")),
    ),
    Topic(
        "talk: and that",
        (
            step("ask", "{x} is {y}.", _first(ASK_COLOR), ""),
            step(
                "ask", "{v} is {w}.",
                *_another(
                    "{v}",
                    """and the color of {v}
                    and what is the color of {v}
                    in that case how about {v}
                    what is it in case we take {v}""",
                    """and in the case of {v}""",
                ),
            ),
        ),
        facts=_two(COLORS, ("x", "y", "v", "w")),
    ),
    Topic(
        "talk: next day",
        (
            step("ask", "After {x} comes {y}.", _first(ASK_AFTER, "day"), ""),
            step(
                "ask", "After {y} comes {z}.",
                """and after that
                and then
                and what comes after that
                and the next one
                what comes after that
                what comes next
                and the day after that
                which day is next
                which day comes next
                and which one comes next
                and what follows
                which one follows then
                and one day later
                which day comes later
                keep going
                keep going, what is next
                what is the next day""",
                """and a day later
                keep going, which one follows
                and which day follows
                and what is next""",
            ),
        ),
        facts=tuple(
            Fact({"x": DAYS[i], "y": DAYS[(i + 1) % 7], "z": DAYS[(i + 2) % 7]}) for i in range(7)
        ),
        weight=0.7,
    ),
    Topic(
        "talk: again",
        (step("do", "{words}.", REPEAT, ""), step("do", "{words}.", *AGAIN)),
        sample_fact=sample_echo,
        vocabulary=ECHOED,
        weight=1.5,
    ),
    Topic(
        "talk: again",
        (
            step("ask", "The capital of {x} is {y}.", ASK_CAPITAL, ""),
            step("do", "The capital of {x} is {y}.", *AGAIN),
        ),
        facts=tuple(Fact({"x": x, "y": y}) for x, y in CAPITALS.items()),
        weight=0.7,
    ),
)  # fmt: skip
