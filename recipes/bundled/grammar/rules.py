"""Defines topics, the wording of their questions, and how held-out ones are kept apart.

A topic has steps (one for a single question, several for a dialogue). A step has wordings with
slots and an answer with slots; a fact fills the slots. A frame, a polite opening or ending
("please", "can you tell me"), can surround a wording. There are four ways to be held out, each by
construction and not by filtering:

  wording   the wording is listed under `heldout` and differs from every training wording even when
            all polite words are removed from both, so no frame can bridge the two; its single words
            are known, each from two training wordings or more
  frame     the opening or ending is one of HELDOUT_FRAMES
  pair      the fact is held out: two numbers that training never combines
  word      the fact is held out: a name or word that training never says

`language` makes a matcher of the same lists; the test of the split uses it and not sampling. Knows
no topic.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Split = Literal["train", "heldout"]
Pool = Literal["train", "heldout", "invented", "lexicon"]  # the source of the open words of a fact
Kind = Literal["ask", "do", "say"]  # a question, a request, a remark


def listed(text: str, mark: str | None = None) -> tuple[str, ...]:
    """Returns the entries of a list written as text, separated by spaces or another mark."""
    return tuple(" ".join(entry.split()) for entry in text.split(mark))


def table(text: str) -> dict[str, str]:
    """Returns 'grass: green / snow: white' as a dictionary."""
    return dict(_row(entry) for entry in listed(text, "/"))


def _row(entry: str) -> tuple[str, str]:
    key, value = entry.split(": ")
    return key, value


# (opening, ending) pairs; the wording goes between. Wordings of every kind mostly have no frame.
# No word of a frame may be a whole open word or a whole answer, because the test of the split
# removes frame words (`language`). So there are no numbers, no "right" (an opposite) and no "may".
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
        ("do you know,", ""),
        ("would you know,", ""),
        ("I want to know,", ""),
        ("I do wonder,", ""),
        ("I keep wondering,", ""),
        ("let me ask you,", ""),
        ("a question for you,", ""),
        ("just a question,", ""),
        ("be quick,", ""),
        ("tell me quick,", ""),
        ("please listen,", ""),
        ("listen to me,", ""),
        ("please excuse me,", ""),
        ("excuse the question,", ""),
        ("please think,", ""),
        ("let me think,", ""),
        ("", ", do you know"),
        ("", ", can you tell me"),
        ("", ", I want to know"),
    ),
    "do": (
        ("please", ""),
        ("can you", ""),
        ("could you", ""),
        ("could you please", ""),
        ("can you please", ""),
        ("would you", ""),
        ("would you please", ""),
        ("kindly", ""),
        ("I need you to", ""),
        ("be so kind and", ""),
        ("as a favor,", ""),
        ("hey,", ""),
        ("okay,", ""),
        ("so,", ""),
        ("now", ""),
        ("now please", ""),
        ("please listen,", ""),
        ("", ", please"),
        ("", "for me"),
        ("", "if you can"),
        ("", "if you would"),
        ("please", "for me"),
        ("can you", "for me"),
        ("could you", "for me"),
    ),
    "say": (
        ("hey,", ""),
        ("okay,", ""),
        ("well,", ""),
        ("so,", ""),
        ("now,", ""),
        ("you know,", ""),
        ("oh well,", ""),
        ("oh hey,", ""),
        ("please listen,", ""),
        ("listen to me,", ""),
        ("please excuse me,", ""),
    ),
}
HELDOUT_FRAMES: dict[Kind, tuple[tuple[str, str], ...]] = {
    "ask": (
        ("I wonder,", ""),
        ("quick question,", ""),
        ("listen,", ""),
        ("excuse me,", ""),
        ("", ", do you think"),
    ),
    "do": (
        ("would you kindly", ""),
        ("I want you to", ""),
        ("do me a favor and", ""),
        ("", "if you would be so kind"),
    ),
    "say": (("listen,", ""), ("oh,", ""), ("excuse me,", "")),
}
# A wording that begins with one of these words is a question, a request or a remark, whatever the
# kind of its step.
_ASKING = frozenset(
    listed(
        """
        am are at by can could did do does from has have how in is of on since was were what when
        where which who whose why will would
        """
    )
)
_DOING = frozenset(
    listed(
        """
        add begin calculate call change check count describe find give go hum imitate introduce list
        look make name put read recite remind remove repeat run say show spell start subtract take
        tell think turn work
        """
    )
)
_SAYING = frozenset(listed("i it my once again another pardon sorry come this there"))
# The only slot that takes any number of words. An ending after it would count as text to repeat.
OPEN_MANY = "{words}"
WITH_ARTICLE = "a_"  # prefix of the names of open slots that hold a word with its article
BARE = ("", "")
BARE_SHARE = 0.55


@dataclass(frozen=True)
class Fact:
    """Fills the slots of a topic's wordings and answers."""

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
    """`facts` lists all facts, or `sample_fact` makes one if the slots are open."""

    category: str
    steps: tuple[Step, ...]
    facts: tuple[Fact, ...] = (Fact({}),)
    sample_fact: Callable[[random.Random, Pool], Fact] | None = None
    # With open slots: every plain word that training and the held-out pool can put into them.
    # Other pools have further words; the code that makes those keeps them out of the examination.
    vocabulary: frozenset[str] = frozenset()
    weight: float = 1.0

    def fact(self, rng: random.Random, split: Split) -> Fact:
        if self.sample_fact:
            return self.sample_fact(rng, split)
        return rng.choice(self._train if split == "train" else self._heldout)

    @cached_property
    def _train(self) -> list[Fact]:
        return [fact for fact in self.facts if not fact.heldout_by]

    @cached_property
    def _heldout(self) -> list[Fact]:
        return [fact for fact in self.facts if fact.heldout_by]


@dataclass(frozen=True)
class Talk:
    """One dialogue as text: pairs of user and assistant turns."""

    category: str
    turns: tuple[tuple[str, str], ...]
    split: Split
    heldout_by: str = ""


def one(category: str, kind: Kind, answer: str, train: str, heldout: str, **more: object) -> Topic:
    """Returns a topic of one step; wordings are given one per line."""
    return Topic(category, (step(kind, answer, train, heldout),), **more)  # type: ignore[arg-type]


def step(kind: Kind, answer: str, train: str, heldout: str) -> Step:
    return Step(kind, _lines(train), _lines(heldout), answer)


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines() if line.strip())


def kind_of(now: Step, wording: str) -> Kind:
    """Returns the kind of one wording: that of its step, unless its first word decides."""
    first = plain(wording.split()[0])
    if now.kind == "say" or first in _SAYING:
        return "say"
    return "ask" if first in _ASKING else "do" if first in _DOING else now.kind


def frames_for(
    now: Step, wording: str, frames: Mapping[Kind, tuple[tuple[str, str], ...]]
) -> tuple[tuple[str, str], ...]:
    chosen = frames[kind_of(now, wording)]
    if wording.endswith(OPEN_MANY):
        return tuple(frame for frame in chosen if not frame[1])
    return chosen


def render(kind: Kind, frame: tuple[str, str], wording: str, slots: Mapping[str, str]) -> str:
    """Returns a wording as written text: a capital first, a mark at the end."""
    opening, ending = frame
    body = wording.format_map(slots)
    text = f"{opening} {body}{'' if ending.startswith(',') else ' '}{ending}".strip()
    mark = "?" if kind == "ask" or opening.startswith(("can", "could", "would")) else "."
    return text[0].upper() + text[1:] + mark


def answer(wording: str, slots: Mapping[str, str]) -> str:
    text = wording.format_map(slots)
    return text[0].upper() + text[1:]


def compose(
    topic: Topic,
    rng: random.Random,
    heldout_by: str = "",
    fact: Fact | None = None,
    nth: int | None = None,
) -> Talk:
    """Returns a dialogue of this topic; in a held-out one only the last step has a new wording or
    frame. Samples the fact and the training wording (`nth`, cyclic) unless given."""
    split: Split = "heldout" if heldout_by else "train"
    by_fact = heldout_by in ("pair", "word")
    fact = fact or topic.fact(rng, "heldout" if by_fact else "train")
    turns: list[tuple[str, str]] = []
    for index, now in enumerate(topic.steps):
        last = index == len(topic.steps) - 1
        choices = now.heldout if last and heldout_by == "wording" else now.train
        wording = rng.choice(choices) if nth is None else choices[nth % len(choices)]
        framed_anew = last and heldout_by == "frame"
        frames = frames_for(now, wording, HELDOUT_FRAMES if framed_anew else FRAMES)
        bare = not framed_anew and rng.random() < BARE_SHARE
        frame = BARE if bare else rng.choice(frames)
        kind = kind_of(now, wording)
        said = render(now.kind if kind == "say" else kind, frame, wording, fact.slots)
        turns.append((said, answer(now.answer, fact.slots)))
    return Talk(topic.category, tuple(turns), split, fact.heldout_by if by_fact else heldout_by)


def plain(text: str) -> str:
    """Returns lower-case words only, as without audible punctuation ("frog's" is two)."""
    return " ".join(re.findall(r"[a-z]+", text.lower()))


def vocabulary(*lists: tuple[str, ...], text: str = "") -> frozenset[str]:
    """Returns the plain words of some lists and a text, for a topic's open slots."""
    entries = [entry for words in lists for entry in words]
    return frozenset(plain(" ".join([*entries, text])).split())
