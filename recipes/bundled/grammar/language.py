"""The set of texts that training can produce, as a matcher: the basis of the proof of the split.

A `Language` has every framed training wording of every topic. `says` accepts at least everything
that training can say: a slot of a topic with listed facts takes any of their values, trained or
held out, and an open slot any words of the topic's vocabulary, in any order. With `drop`, those
words are removed from both sides first, so texts that differ only in polite words are equal. It
does not know invented and lexicon words: no examined question contains one (`invented`, `lexicon`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from recipes.bundled.grammar.rules import (
    BARE,
    FRAMES,
    OPEN_MANY,
    WITH_ARTICLE,
    Step,
    Topic,
    frames_for,
    plain,
)

_SLOT = re.compile(r"\{(\w+)\}")
_MOST_WORDS = 12
# Polite words that no frame uses yet, so that a later frame does not weaken the test of the split.
_RELATED = "just kindly would will again then and oh the a an let us let's"


def polite_words() -> frozenset[str]:
    """Returns every word of every training frame, and related words."""
    parts = [part for frames in FRAMES.values() for frame in frames for part in frame]
    return frozenset(plain(" ".join([*parts, _RELATED])).split())


def skeleton(text: str, drop: frozenset[str]) -> str:
    return " ".join(word for word in plain(text).split() if word not in drop)


def wordings(now: Step) -> Iterator[str]:
    """Returns every framed training wording of a step, with open slots."""
    for body in now.train:
        for opening, ending in (BARE, *frames_for(now, body, FRAMES)):
            yield " ".join(f"{opening} {body} {ending}".split())


@dataclass(frozen=True)
class _Wording:
    topic: Topic
    text: str
    drop: frozenset[str]
    values: dict[str, str]  # of listed facts: slot to an expression for all its values

    @cached_property
    def literals(self) -> frozenset[str]:
        return frozenset(skeleton(_SLOT.sub(" ", self.text), self.drop).split())

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        parts: list[str] = []
        for index, part in enumerate(_SLOT.split(self.text)):
            if index % 2 == 0:
                parts.extend(re.escape(word) for word in skeleton(part, self.drop).split())
            elif not self.topic.sample_fact:
                parts.append(self.values[part])
            elif "{" + part + "}" == OPEN_MANY:
                parts.append(rf"([a-z]+(?: [a-z]+){{0,{_MOST_WORDS}}})")
            elif part.startswith(WITH_ARTICLE):
                parts.append("(?:an? )?([a-z]+)")
            else:
                parts.append("([a-z]+)")
        return re.compile(" ".join(parts))

    def says(self, bones: str, words: frozenset[str]) -> bool:
        if not self.literals <= words:
            return False
        found = self.pattern.fullmatch(bones)
        if not found:
            return False
        return all(
            word in self.topic.vocabulary for group in found.groups() for word in group.split()
        )


def _values(topic: Topic, drop: frozenset[str]) -> dict[str, str]:
    held: dict[str, set[str]] = defaultdict(set)
    for fact in topic.facts if not topic.sample_fact else ():
        for slot, value in fact.slots.items():
            held[slot].add(value)
    bones = {slot: {skeleton(value, drop) for value in values} for slot, values in held.items()}
    return {slot: "(?:" + "|".join(sorted(values)) + ")" for slot, values in bones.items()}


class Language:
    def __init__(self, topics: tuple[Topic, ...], drop: frozenset[str] = frozenset()) -> None:
        self.drop = drop
        texts: dict[tuple[int, str], _Wording] = {}
        for index, topic in enumerate(topics):
            values = _values(topic, drop)
            for now in topic.steps:
                for text in wordings(now):
                    key = (index, skeleton(_SLOT.sub(r" slot\1 ", text), drop))
                    texts.setdefault(key, _Wording(topic, text, drop, values))
        common = Counter(word for wording in texts.values() for word in wording.literals)
        # Indexed by the rarest of its literal words, so that a text has few candidates.
        self._by_word: dict[str, list[_Wording]] = defaultdict(list)
        for wording in texts.values():
            rarest = min(wording.literals, key=lambda word: (common[word], word), default="")
            self._by_word[rarest].append(wording)

    def says(self, text: str) -> str:
        """Returns the training wording that can produce this text, or an empty string."""
        bones = skeleton(text, self.drop)
        words = frozenset(bones.split())
        for word in ("", *sorted(words)):
            for wording in self._by_word.get(word, ()):
                if wording.says(bones, words):
                    return wording.text
        return ""
