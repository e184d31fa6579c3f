"""What a topic is, how its questions are worded, and how held-out ones are kept apart.

A topic has steps (one for a single question, several for a talk). A step has wordings with slots and
an answer with slots; a fact fills the slots. Around a wording goes a frame, a polite opening or
ending ("please", "can you tell me"), chosen freely. There are three ways to be held out, each by
construction and not by filtering:

  wording   the wording is listed under `heldout`, and stays unlike every training wording even when
            all courtesy words are taken out of both (`skeleton`), so no frame can bridge the two
  frame     the opening or ending is one of HELDOUT_FRAMES
  pair, word   the fact is held out: two numbers never combined, a name or word never said, in training

`pattern` gives a step's training wordings as a regular expression that accepts at least everything
training can say, with open slots as any words: the test of the split argues with it, not by sampling.
Nothing here knows what the topics are about.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Split = Literal["train", "heldout"]
Kind = Literal["ask", "do", "say"]  # a question, a request, a remark

# (opening, ending) pairs; the wording goes between. Every kind also goes bare, which is commonest.
FRAMES: dict[Kind, tuple[tuple[str, str], ...]] = {
    "ask": (
        ("tell me,", ""),
        ("please tell me,", ""),
        ("can you tell me,", ""),
        ("hey,", ""),
        ("hello,", ""),
        ("okay,", ""),
        ("so,", ""),
        ("now,", ""),
        ("well,", ""),
        ("", ", please"),
        ("", "now"),
        ("do you know,", ""),
    ),
    "do": (
        ("please", ""),
        ("can you", ""),
        ("could you", ""),
        ("could you please", ""),
        ("can you please", ""),
        ("hey,", ""),
        ("okay,", ""),
        ("now", ""),
        ("", ", please"),
        ("", "for me"),
        ("please", "for me"),
        ("can you", "for me"),
    ),
    "say": (("hey,", ""), ("okay,", ""), ("well,", ""), ("so,", "")),
}
HELDOUT_FRAMES: dict[Kind, tuple[tuple[str, str], ...]] = {
    "ask": (
        ("I wonder,", ""),
        ("quick question,", ""),
        ("listen,", ""),
        ("excuse me,", ""),
        ("", ", do you think"),
    ),
    "do": (("would you kindly", ""), ("I want you to", ""), ("", "right away"), ("go on and", "")),
    "say": (("listen,", ""), ("oh,", ""), ("excuse me,", "")),
}
BARE = ("", "")
BARE_SHARE = 0.55
_SLOT = re.compile(r"\{(\w+)\}")
_ANY_WORDS = r"[a-z]+(?: [a-z]+){0,11}"


@dataclass(frozen=True)
class Fact:
    """What fills the slots of a topic's wordings and answers."""

    slots: Mapping[str, str]
    heldout_by: str = ""  # "pair" or "word"; empty: may be trained on


@dataclass(frozen=True)
class Step:
    kind: Kind
    train: tuple[str, ...]
    heldout: tuple[str, ...]
    answer: str


@dataclass(frozen=True)
class Topic:
    """`facts` lists all there is to ask, or `draw` makes one when the slots are open."""

    category: str
    steps: tuple[Step, ...]
    facts: tuple[Fact, ...] = (Fact({}),)
    draw: Callable[[random.Random, Split], Fact] | None = None
    weight: float = 1.0

    def fact(self, rng: random.Random, split: Split) -> Fact:
        if self.draw:
            return self.draw(rng, split)
        return rng.choice([fact for fact in self.facts if bool(fact.heldout_by) == (split != "train")])

    @property
    def has_heldout_facts(self) -> bool:
        return self.draw is not None or any(fact.heldout_by for fact in self.facts)


@dataclass(frozen=True)
class Talk:
    """One dialogue in words: pairs of what the user and the assistant say."""

    category: str
    turns: tuple[tuple[str, str], ...]
    split: Split
    heldout_by: str = ""


def one(category: str, kind: Kind, answer: str, train: str, heldout: str, **more: object) -> Topic:
    """A topic of one step; wordings are given one per line."""
    return Topic(category, (step(kind, answer, train, heldout),), **more)  # type: ignore[arg-type]


def step(kind: Kind, answer: str, train: str, heldout: str) -> Step:
    return Step(kind, _lines(train), _lines(heldout), answer)


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines() if line.strip())


def render(kind: Kind, frame: tuple[str, str], wording: str, slots: Mapping[str, str]) -> str:
    """One thing to say, as written text: a capital in front, a mark at the end."""
    opening, ending = frame
    body = wording.format_map(slots)
    text = f"{opening} {body}{'' if ending.startswith(',') else ' '}{ending}".strip()
    mark = "?" if kind == "ask" or opening.startswith(("can", "could", "would")) else "."
    return text[0].upper() + text[1:] + mark


def answer(wording: str, slots: Mapping[str, str]) -> str:
    text = wording.format_map(slots)
    return text[0].upper() + text[1:]


def compose(topic: Topic, rng: random.Random, heldout_by: str = "") -> Talk:
    """A dialogue of this topic; in a held-out one only the last step is worded or framed anew."""
    split: Split = "heldout" if heldout_by else "train"
    by_fact = heldout_by in ("pair", "word")
    fact = topic.fact(rng, "heldout" if by_fact else "train")
    turns: list[tuple[str, str]] = []
    for index, now in enumerate(topic.steps):
        last = index == len(topic.steps) - 1
        wordings = now.heldout if last and heldout_by == "wording" else now.train
        frames = HELDOUT_FRAMES if last and heldout_by == "frame" else FRAMES
        bare = heldout_by != "frame" and rng.random() < BARE_SHARE
        frame = BARE if bare else rng.choice(frames[now.kind])
        said = render(now.kind, frame, rng.choice(wordings), fact.slots)
        turns.append((said, answer(now.answer, fact.slots)))
    return Talk(topic.category, tuple(turns), split, fact.heldout_by if by_fact else heldout_by)


def plain(text: str) -> str:
    """Lower-case words only: what is left when punctuation cannot be heard."""
    return " ".join(re.findall(r"[a-z']+", text.lower()))


def courtesy() -> frozenset[str]:
    """Every word of every training frame, and some of their kin that no frame uses yet."""
    framed = itertools.chain.from_iterable(itertools.chain.from_iterable(FRAMES.values()))
    kin = "just kindly would will you me again then and oh the a an let us us lets"
    return frozenset(plain(" ".join([*framed, kin])).split())


def skeleton(text: str, drop: frozenset[str]) -> str:
    return " ".join(word for word in plain(text).split() if word not in drop)


def wordings(now: Step, split: Split) -> Iterator[str]:
    """Every framed wording of a step, slots left open: all that this split can say."""
    bodies = now.train if split == "train" else now.heldout
    for body, (opening, ending) in itertools.product(bodies, (BARE, *FRAMES[now.kind])):
        yield " ".join(f"{opening} {body} {ending}".split())


def pattern(topic: Topic, wording: str, drop: frozenset[str] = frozenset()) -> str:
    """A regular expression over `skeleton` texts that accepts this wording however it is filled.

    A slot of a topic with listed facts takes any of their values, trained or held out; an open one
    takes any words at all.
    """
    parts: list[str] = []
    for index, part in enumerate(_SLOT.split(wording)):
        if index % 2 == 0:
            parts.extend(word for word in plain(part).split() if word not in drop)
        elif topic.draw:
            parts.append(_ANY_WORDS)
        else:
            values = {skeleton(fact.slots[part], drop) for fact in topic.facts}
            parts.append("(?:" + "|".join(sorted(values)) + ")")
    return " ".join(parts)
