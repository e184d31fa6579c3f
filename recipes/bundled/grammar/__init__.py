"""The grammar: every text the bundled voice is taught with or examined on, made from a seed.

`training` and `heldout` give dialogues, `sentence` an open sentence. The split is a matter of which
lists a topic draws from (see `rules`), so no seed can mix the two.
"""

from __future__ import annotations

import random

from recipes.bundled.grammar import animals, chat, echo, facts, numbers, talks
from recipes.bundled.grammar.rules import Talk, Topic, compose
from recipes.bundled.grammar.sentences import sentence

__all__ = ["HELDOUT_BY", "TOPICS", "Talk", "Topic", "heldout", "sentence", "training"]

TOPICS: tuple[Topic, ...] = (
    *chat.TOPICS,
    *numbers.TOPICS,
    *facts.TOPICS,
    *animals.TOPICS,
    *echo.TOPICS,
    *talks.TOPICS,
)
HELDOUT_BY = ("wording", "frame", "pair", "word")
_PATIENCE = 30  # draws per wanted dialogue before small topics are taken to be exhausted


def training(count: int, seed: int) -> list[Talk]:
    """Up to `count` different training dialogues, topics drawn by weight."""
    return _different(count, random.Random(f"train {seed}"), TOPICS, "")


def heldout(count: int, heldout_by: str, seed: int) -> list[Talk]:
    """Up to `count` different dialogues held out in one of the ways of HELDOUT_BY."""
    if heldout_by not in HELDOUT_BY:
        raise ValueError(f"heldout_by {heldout_by!r}: allowed are {HELDOUT_BY}")
    by = {
        "wording": [topic for topic in TOPICS if topic.steps[-1].heldout],
        "frame": list(TOPICS),
        "pair": [topic for topic in TOPICS if any(f.heldout_by == "pair" for f in topic.facts)],
        "word": [topic for topic in TOPICS if topic.draw],
    }
    rng = random.Random(f"heldout {heldout_by} {seed}")
    return _different(count, rng, tuple(by[heldout_by]), heldout_by)


def _different(
    count: int, rng: random.Random, topics: tuple[Topic, ...], heldout_by: str
) -> list[Talk]:
    weights = [topic.weight for topic in topics]
    found: dict[tuple[tuple[str, str], ...], Talk] = {}
    for topic in rng.choices(topics, weights, k=count * _PATIENCE):
        if len(found) >= count:
            break
        talk = compose(topic, rng, heldout_by)
        found.setdefault(talk.turns, talk)
    return list(found.values())
