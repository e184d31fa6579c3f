"""Composed replies: names, spelling and repeat-after-me, over open words.

The answer is made of what was heard, so it works for words that were never an answer. Held-out
facts use at least one held-out word; training facts use none.
"""

from __future__ import annotations

import random

from recipes.bundled.grammar import words
from recipes.bundled.grammar.rules import Fact, Split, Topic, one, step, vocabulary
from recipes.bundled.grammar.sentences import VOCABULARY, article, sentence

NAMES = vocabulary(words.NAMES, words.HELDOUT_NAMES)
ECHOED = VOCABULARY | {"have"}
LONGEST_SPELLING = 6
LONGEST_ECHO_WORDS = 7
_SPELLABLE: dict[Split, list[str]] = {
    "train": [word for word in words.WORDS + words.NAMES if len(word) <= LONGEST_SPELLING],
    "heldout": [
        word for word in words.HELDOUT_WORDS + words.HELDOUT_NAMES if len(word) <= LONGEST_SPELLING
    ],
}


def draw_name(rng: random.Random, split: Split) -> Fact:
    names = words.NAMES if split == "train" else words.HELDOUT_NAMES
    return Fact({"name": rng.choice(names)}, "" if split == "train" else "word")


def draw_spelling(rng: random.Random, split: Split) -> Fact:
    pool = (
        words.WORDS + words.NAMES if split == "train" else words.HELDOUT_WORDS + words.HELDOUT_NAMES
    )
    word = rng.choice([word for word in pool if len(word) <= LONGEST_SPELLING])
    letters = ", ".join(word.upper())
    return Fact({"word": word, "letters": letters}, "" if split == "train" else "word")


def draw_echo(rng: random.Random, split: Split) -> Fact:
    """One to four words or a short sentence; in a held-out one the first open word is held out."""
    fresh = split == "heldout"
    adjective = rng.choice(words.HELDOUT_ADJECTIVES if fresh else words.ADJECTIVES)
    noun = rng.choice(words.HELDOUT_NOUNS if fresh else words.NOUNS)
    second = rng.choice(words.NOUNS)
    shapes = (
        noun,
        noun,
        f"the {noun}",
        f"{adjective} {noun}",
        f"the {adjective} {noun}",
        f"{noun} and {second}",
        f"{noun} {second} {rng.choice(words.NOUNS)}",
        f"{rng.choice(words.ADJECTIVES)} {noun} {rng.choice(words.VERBS)} {second}",
        f"I have {article(noun)}",
        f"my {second} is {adjective}",
        _short(rng, split),
    )
    return Fact({"words": rng.choice(shapes)}, "word" if fresh else "")


def _short(rng: random.Random, split: Split) -> str:
    while True:
        text = sentence(rng, split)
        if len(text.split()) <= LONGEST_ECHO_WORDS and text.count(".") == 1 and "?" not in text:
            return text.rstrip(".").replace(",", "")


INTRODUCTIONS = (
    """my name is {name}
    I am {name}
    I am called {name}
    call me {name}
    you can call me {name}
    this is {name}
    hello, I am {name}
    hi, my name is {name}
    it is {name} here
    people call me {name}""",
    """they named me {name}
    the name's {name}
    you are talking to {name}""",
)
ASK_MY_NAME = (
    """what is my name
    what am I called
    do you know my name
    do you remember my name
    who am I
    say my name
    what did I say my name was
    can you say my name""",
    """by which name did I introduce myself
    what name did I give you
    have you forgotten what I am called""",
)
INTRODUCE = step("say", "Nice to meet you, {name}.", *INTRODUCTIONS)

TOPICS: tuple[Topic, ...] = (
    Topic("names", (INTRODUCE,), draw=draw_name, vocabulary=NAMES, weight=2),
    one(
        "names", "do", "Hello, {name}!",
        """say hello to {name}
        say hi to {name}
        greet {name}
        say hello to my friend {name}
        this is my friend {name}, say hello""",
        """give {name} a greeting
        meet my colleague {name}""",
        draw=draw_name,
        vocabulary=NAMES,
    ),
    one(
        "spelling", "do", "{letters}.",
        """spell {word}
        spell the word {word}
        spell out {word}
        how do you spell {word}
        how is {word} spelled
        how do I spell {word}
        how is the word {word} spelled
        what are the letters of {word}""",
        """what is the correct spelling of {word}
        which letters do I need for {word}
        {word}, letter by letter""",
        draw=draw_spelling,
        vocabulary=VOCABULARY,
        weight=3,
    ),
    one(
        "repeat", "do", "{words}.",
        """repeat after me, {words}
        say {words}
        repeat {words}
        say after me, {words}
        repeat the words {words}
        say the words {words}
        repeat this, {words}
        say this, {words}""",
        """echo {words}
        copy what I say, {words}
        speak these words, {words}""",
        draw=draw_echo,
        vocabulary=ECHOED,
        weight=7,
    ),
)  # fmt: skip
