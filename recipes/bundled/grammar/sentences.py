"""Open sentences: many words in many orders, so that the model learns sounds and not clips.

They mean little: each is a frame of word classes filled at random from the open words. A held-out
sentence has at least one held-out word, so it cannot be a training sentence.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import partial

from recipes.bundled.grammar import words
from recipes.bundled.grammar.lexicon import LEXICON
from recipes.bundled.grammar.number_line import NUMBER
from recipes.bundled.grammar.rules import Pool, vocabulary

FRAMES = (
    "The {adj} {noun} {verb} the {noun}.",
    "The {noun} {verb} {a_noun} {place} the {noun}.",
    "{name} {verb} the {adj} {noun} {time}.",
    "My {noun} {verb} {an_adj} {noun} {time}.",
    "{name} and {name} {verb} the {noun}.",
    "We {verb} the {noun} {place} the {adj} {noun}.",
    "They {verb} {number} {adj} things {time}.",
    "There is {an_adj} {noun} {place} the {noun}.",
    "{time}, the {noun} was {adj} and {adj}.",
    "I {verb} your {noun}, and {name} {verb} mine.",
    "Is the {noun} {adj} or {adj}?",
    "Who {verb} the {adj} {noun} {time}?",
    "The {noun}, the {noun} and the {noun}.",
    "{adj}, {adj} {noun}.",
    "She {verb} it {place} the {noun}.",
    "He never {verb} {a_noun} {place} the {noun}.",
    "{a_noun}? No, {an_adj} {noun}!",
    "Nobody {verb} the {noun} {time}.",
)
_TRAIN = {
    "noun": words.NOUNS,
    "adj": words.ADJECTIVES,
    "verb": words.VERBS,
    "name": words.NAMES,
}
_HELDOUT = {
    "noun": words.HELDOUT_NOUNS,
    "adj": words.HELDOUT_ADJECTIVES,
    "verb": words.HELDOUT_VERBS,
    "name": words.HELDOUT_NAMES,
}
_LEXICON = {
    "noun": LEXICON["noun"],
    "adj": LEXICON["adjective"],
    "verb": LEXICON["verb"],
    "name": LEXICON["name"],
}
# By pool: the lists of its own words, and the share of words that come from them.
_OTHERS: dict[Pool, tuple[dict[str, tuple[str, ...]], float]] = {
    "heldout": (_HELDOUT, 0.3),
    "lexicon": (_LEXICON, 0.6),
}
VOCABULARY = vocabulary(
    *_TRAIN.values(),
    *_HELDOUT.values(),
    words.PLACES,
    words.TIMES,
    NUMBER,
    tuple(re.sub(r"\{\w+\}", " ", frame) for frame in FRAMES),
    text="a an",
)


def article(word: str) -> str:
    """Returns 'a' or 'an', by sound: an hour, a uniform."""
    vowel = word[0] in "aeiou" or word.startswith(("hour", "honest"))
    return (
        "an " + word
        if vowel and not word.startswith(("uni", "use", "usual", "one"))
        else "a " + word
    )


def sentence(rng: random.Random, pool: Pool) -> str:
    """Returns a sentence with training words only, or with at least one held-out or lexicon
    word."""
    frame = rng.choice(FRAMES)
    while True:
        text, fresh = _fill(frame, rng, pool)
        if pool not in _OTHERS or fresh:
            return text[0].upper() + text[1:]


def _fill(frame: str, rng: random.Random, pool: Pool) -> tuple[str, bool]:
    fresh = False
    others, share = _OTHERS.get(pool, (_TRAIN, 0.0))

    def word(kind: str) -> str:
        nonlocal fresh
        other = pool in _OTHERS and rng.random() < share
        fresh |= other
        return rng.choice((others if other else _TRAIN)[kind])

    makers: dict[str, Callable[[], str]] = {
        "a_noun": lambda: article(word("noun")),
        "an_adj": lambda: article(word("adj")),
        "number": lambda: rng.choice(NUMBER[2:]),
        "place": lambda: rng.choice(words.PLACES),
        "time": lambda: rng.choice(words.TIMES),
        **{kind: partial(word, kind) for kind in _TRAIN},
    }
    return re.sub(r"\{(\w+)\}", lambda slot: makers[slot[1]](), frame), fresh
