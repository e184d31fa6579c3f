"""The grammar: every text that the bundled model is trained or examined on, made from a seed.

`training` and `heldout` return dialogues, `aloud` more spoken ones, `typed` dialogues without
speech, `every_wording` one training dialogue per wording, `sentence` an open sentence. The lists
that a topic uses make the split (see `rules`), so no seed can mix the two.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator

from recipes.bundled.grammar import (
    animals,
    chains,
    chat,
    dates,
    echo,
    facts,
    memory,
    numbers,
    talks,
    words,
)
from recipes.bundled.grammar.rules import Fact, Talk, Topic, compose, plain
from recipes.bundled.grammar.sentences import sentence

__all__ = [
    "HELDOUT_BY",
    "TOPICS",
    "Talk",
    "Topic",
    "aloud",
    "digest",
    "every_wording",
    "heldout",
    "sentence",
    "training",
    "typed",
]

TOPICS: tuple[Topic, ...] = (
    *chat.TOPICS,
    *numbers.TOPICS,
    *chains.TOPICS,
    *dates.TOPICS,
    *facts.TOPICS,
    *animals.TOPICS,
    *echo.TOPICS,
    *memory.TOPICS,
    *talks.TOPICS,
)
HELDOUT_BY = ("wording", "frame", "pair", "word")
_PATIENCE = 30  # samples per wanted dialogue after which a small topic counts as exhausted
INVENTED_SHARE = 0.5  # of the typed dialogues of topics with open words
LEXICON_SHARE = 0.6  # of the additional spoken ones
# Typed sums come more often: they need no speech, and a model with many sums learns to add instead
# of memorising (`chains`).
_TYPED_WEIGHT: dict[str, float] = {
    "plus": 1.5,
    "minus": 1.5,
    "follow-up sums": 1.5,
    "long sums": 8,
    "chat": 2.5,
}
# Spoken words to repeat or spell also come more often: pronunciation is learned from many words.
_ALOUD_WEIGHT: dict[str, float] = _TYPED_WEIGHT | {
    "long sums": 14,
    "repeat": 4,
    "spelling": 6,
    "names": 3,
    "talk: my name": 2,
}


def training(count: int, seed: int) -> list[Talk]:
    """Returns up to `count` different training dialogues, with topics sampled by weight."""
    return _different(count, random.Random(f"train {seed}"), TOPICS, compose)


def aloud(count: int, seed: int) -> list[Talk]:
    """Like `training`, for additional hours: sums and open words come more often, and more than
    half of the open words are of the lexicon. None is invented, because synthesisers disagree about
    their pronunciation."""

    def make(topic: Topic, rng: random.Random) -> Talk:
        if topic.sample_fact is None or rng.random() >= LEXICON_SHARE:
            return compose(topic, rng)
        return compose(topic, rng, fact=topic.sample_fact(rng, "lexicon"))

    rng = random.Random(f"aloud {seed}")
    return _different(count, rng, TOPICS, make, _weights(_ALOUD_WEIGHT))


def typed(count: int, seed: int) -> list[Talk]:
    """Like `training`, for text only: half of the open words are invented, and sums come more
    often."""

    def make(topic: Topic, rng: random.Random) -> Talk:
        new = topic.sample_fact is not None and rng.random() < INVENTED_SHARE
        return compose(topic, rng, fact=_with_invented(topic, rng) if new else None)

    rng = random.Random(f"typed {seed}")
    return _different(count, rng, TOPICS, make, _weights(_TYPED_WEIGHT))


def _weights(more: dict[str, float]) -> list[float]:
    return [topic.weight * more.get(topic.category, 1) for topic in TOPICS]


def digest() -> str:
    """Returns a digest of this grammar: another grammar can train on what this one holds out."""
    lines = [repr((t.category, t.steps, t.facts, sorted(t.vocabulary))) for t in TOPICS]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def every_wording(seed: int) -> Iterator[Talk]:
    """Returns training dialogues that contain every training wording of every step, topics
    mixed."""
    rng = random.Random(f"wordings {seed}")
    turns = [
        (topic, nth)
        for topic in TOPICS
        for nth in range(max(len(step.train) for step in topic.steps))
    ]
    rng.shuffle(turns)
    for topic, nth in turns:
        yield compose(topic, rng, nth=nth)


def heldout(count: int, heldout_by: str, seed: int) -> list[Talk]:
    """Returns up to `count` different dialogues held out in one of the ways of HELDOUT_BY."""
    if heldout_by not in HELDOUT_BY:
        raise ValueError(f"heldout_by {heldout_by!r}: allowed are {HELDOUT_BY}")
    by = {
        "wording": [topic for topic in TOPICS if topic.steps[-1].heldout],
        "frame": list(TOPICS),
        "pair": [topic for topic in TOPICS if any(f.heldout_by == "pair" for f in topic.facts)],
        "word": [topic for topic in TOPICS if topic.sample_fact],
    }
    rng = random.Random(f"heldout {heldout_by} {seed}")
    return _different(
        count, rng, tuple(by[heldout_by]), lambda topic, rng: compose(topic, rng, heldout_by)
    )


def fixed_words() -> frozenset[str]:
    """Returns every fixed word of questions and answers, of any split, without open words."""
    texts = [text for topic in TOPICS for now in topic.steps for text in (*now.train, *now.heldout)]
    texts += [value for topic in TOPICS for fact in topic.facts for value in fact.slots.values()]
    return frozenset(plain(" ".join(texts)).split())


_FIXED = fixed_words()
_OPEN = frozenset(plain(" ".join((*words.WORDS, *words.NAMES, *words.VERBS))).split())


def _with_invented(topic: Topic, rng: random.Random) -> Fact:
    """Returns a fact with invented words that have no meaning in the grammar ("I am fine")."""
    assert topic.sample_fact
    while True:
        fact = topic.sample_fact(rng, "invented")
        made = set(plain(" ".join(fact.slots.values())).split()) - _OPEN
        if not made & _FIXED - _SMALL:
            return fact


# Words around the open ones: articles, places and times of the sentences, numbers, kinds of pets.
_SMALL = frozenset(echo.ECHOED | set(memory.PET_KINDS) | set("abcdefghijklmnopqrstuvwxyz"))


def _different(
    count: int,
    rng: random.Random,
    topics: tuple[Topic, ...],
    make: Callable[[Topic, random.Random], Talk],
    weights: list[float] | None = None,
) -> list[Talk]:
    weights = weights or [topic.weight for topic in topics]
    found: dict[tuple[tuple[str, str], ...], Talk] = {}
    for topic in rng.choices(topics, weights, k=count * _PATIENCE):
        if len(found) >= count:
            break
        talk = make(topic, rng)
        found.setdefault(talk.turns, talk)
    return list(found.values())
