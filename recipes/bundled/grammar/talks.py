"""Talks of several turns: what was said before is needed to answer the last question.

Sums that go on ("and plus two?") are in `numbers`. Here: remembering a name or a color, asking the
same of another thing, and asking again.
"""

from __future__ import annotations

import random

from recipes.bundled.grammar import words
from recipes.bundled.grammar.animals import LEGS, SOUNDS
from recipes.bundled.grammar.echo import (
    ASK_MY_NAME,
    ECHOED,
    INTRODUCE,
    NAMES,
    draw_echo,
    draw_name,
)
from recipes.bundled.grammar.facts import CAPITALS, COLORS, DAYS
from recipes.bundled.grammar.numbers import NUMBER, is_heldout, pairs, result
from recipes.bundled.grammar.rules import Fact, Split, Topic, listed, step, vocabulary

RECALL = step("ask", "Your name is {name}.", *ASK_MY_NAME)
AGAIN = (
    """say that again
    repeat that
    what did you say
    once more
    say it again
    I did not hear that
    one more time""",
    """come again
    I missed that, what was it
    run that by me another time""",
)
PET_KINDS = listed("dog cat horse rabbit mouse bird fish frog")
FAVORITES = listed(
    """
    red blue green yellow orange purple pink black white brown gray
    """
)


def draw_name_and_sum(rng: random.Random, split: Split) -> Fact:
    """A name, and a sum between saying it and asking for it."""
    a, b = rng.choice([pair for pair in pairs("plus") if not is_heldout("plus", *pair)])
    named = draw_name(rng, split)
    more = {"a": NUMBER[a], "b": NUMBER[b], "c": NUMBER[result("plus", a, b)]}
    return Fact({**named.slots, **more}, named.heldout_by)


def draw_pet(rng: random.Random, split: Split) -> Fact:
    named = draw_name(rng, split)
    return Fact({**named.slots, "pet": rng.choice(PET_KINDS)}, named.heldout_by)


def draw_thing(rng: random.Random, split: Split) -> Fact:
    noun = rng.choice(words.NOUNS if split == "train" else words.HELDOUT_NOUNS)
    return Fact({"noun": noun}, "" if split == "train" else "word")


def _two(table: dict[str, str], names: tuple[str, str, str, str]) -> tuple[Fact, ...]:
    """Every ordered pair of different rows: ask of one, then of the other."""
    rows = list(table.items())
    return tuple(
        Fact(dict(zip(names, (*one, *other), strict=True)))
        for one in rows
        for other in rows
        if one != other
    )


TOPICS: tuple[Topic, ...] = (
    Topic("talk: my name", (INTRODUCE, RECALL), draw=draw_name, vocabulary=NAMES, weight=3),
    Topic(
        "talk: my name",
        (
            INTRODUCE,
            step(
                "ask", "{a} plus {b} is {c}.", "what is {a} plus {b}\nhow much is {a} plus {b}", ""
            ),
            RECALL,
        ),
        draw=draw_name_and_sum,
        vocabulary=NAMES | vocabulary(NUMBER),
        weight=1.5,
    ),
    Topic(
        "talk: my pet",
        (
            step(
                "say",
                "{name} is a nice name for a {pet}.",
                """I have a {pet} called {name}
                my {pet} is called {name}
                my {pet}'s name is {name}
                I have a {pet}, its name is {name}
                {name} is the name of my {pet}""",
                """the {pet} at our house answers to {name}""",
            ),
            step(
                "ask",
                "Your {pet} is called {name}.",
                """what is my {pet} called
                what is the name of my {pet}
                what is my {pet}'s name
                how is my {pet} called
                do you know the name of my {pet}""",
                """which name did I give to my {pet}
                remind me how we call the {pet}""",
            ),
        ),
        draw=draw_pet,
        vocabulary=NAMES | vocabulary(PET_KINDS),
        weight=1.5,
    ),
    Topic(
        "talk: my color",
        (
            step(
                "say",
                "{color} is a lovely color.",
                """my favorite color is {color}
                I like {color}
                I like the color {color}
                I like {color} best
                {color} is my favorite color""",
                """nothing is prettier to me than {color}""",
            ),
            step(
                "ask",
                "Your favorite color is {color}.",
                """what is my favorite color
                which color do I like
                what color do I like best
                do you remember my favorite color
                which color is my favorite""",
                """what color did I say I prefer
                which of the colors pleases me most""",
            ),
        ),
        facts=tuple(Fact({"color": color}) for color in FAVORITES),
        weight=0.7,
    ),
    Topic(
        "talk: my thing",
        (
            step(
                "say",
                "What a nice {noun}!",
                """look at my {noun}
                I bought a new {noun}
                I have a new {noun}
                here is my {noun}
                this is my {noun}""",
                """somebody gave me this {noun}""",
            ),
            step(
                "ask",
                "You have a {noun}.",
                """what do I have
                what did I tell you about
                what is it that I have
                what thing do I have
                what did I show you""",
                """which object did I mention
                what was I talking about""",
            ),
        ),
        draw=draw_thing,
        vocabulary=vocabulary(words.NOUNS, words.HELDOUT_NOUNS),
        weight=1.5,
    ),
    Topic(
        "talk: and there",
        (
            step(
                "ask",
                "The capital of {x} is {y}.",
                "what is the capital of {x}\nname the capital of {x}",
                "",
            ),
            step(
                "ask",
                "The capital of {v} is {w}.",
                """and of {v}
                and the capital of {v}
                what about {v}
                and for {v}
                how about {v}""",
                """and what would it be for {v}
                now the same for {v}""",
            ),
        ),
        facts=_two(CAPITALS, ("x", "y", "v", "w")),
    ),
    Topic(
        "talk: and that",
        (
            step(
                "ask",
                "The {x} says {y}.",
                "what does the {x} say\nwhat sound does the {x} make",
                "",
            ),
            step(
                "ask",
                "The {v} says {w}.",
                """and the {v}
                what about the {v}
                how about the {v}
                and what about the {v}""",
                """and what would the {v} answer
                same question for the {v}""",
            ),
        ),
        facts=_two(SOUNDS, ("x", "y", "v", "w")),
    ),
    Topic(
        "talk: and that",
        (
            step("ask", "The {x} has {y} legs.", "how many legs does the {x} have", ""),
            step(
                "ask",
                "The {v} has {w} legs.",
                """and the {v}
                what about the {v}
                how about the {v}""",
                """and on the {v} there are how many
                same question for the {v}""",
            ),
        ),
        facts=_two(LEGS, ("x", "y", "v", "w")),
    ),
    Topic(
        "talk: and that",
        (
            step("ask", "{x} is {y}.", "what color is {x}\nwhich color is {x}", ""),
            step(
                "ask",
                "{v} is {w}.",
                """and {v}
                what about {v}
                how about {v}""",
                """and in the case of {v}
                same question for {v}""",
            ),
        ),
        facts=_two(COLORS, ("x", "y", "v", "w")),
    ),
    Topic(
        "talk: next day",
        (
            step(
                "ask", "After {x} comes {y}.", "what day comes after {x}\nwhich day follows {x}", ""
            ),
            step(
                "ask",
                "After {y} comes {z}.",
                """and after that
                and then
                and what comes after that
                and the next one
                what comes after that""",
                """and a day later
                keep going, which one follows""",
            ),
        ),
        facts=tuple(
            Fact({"x": DAYS[i], "y": DAYS[(i + 1) % 7], "z": DAYS[(i + 2) % 7]}) for i in range(7)
        ),
        weight=0.5,
    ),
    Topic(
        "talk: again",
        (
            step("do", "{words}.", "repeat after me, {words}\nsay {words}\nrepeat {words}", ""),
            step("do", "{words}.", *AGAIN),
        ),
        draw=draw_echo,
        vocabulary=ECHOED,
        weight=1.5,
    ),
    Topic(
        "talk: again",
        (
            step("ask", "The capital of {x} is {y}.", "what is the capital of {x}", ""),
            step("do", "The capital of {x} is {y}.", *AGAIN),
        ),
        facts=tuple(Fact({"x": x, "y": y}) for x, y in CAPITALS.items()),
        weight=0.5,
    ),
)
