"""Reads the examination: a folder of held-out spoken dialogues with the expected answers.

The folder is a corpus as `recipes/bundled` makes it with `--only-exam`:

    sound.i16          every utterance one after another: int16, mono, 24 kHz, little-endian
    utterances.jsonl   id, text, voice, role, start and samples of each, in order of id
    dialogues.jsonl    category, heldout_by and turns; a turn has role, text and utterance ids
    meta.json          among other fields `unseen_voices`: those that training never had

A dialogue has one right answer, the text of its last turn. Does not know how answers are judged.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from mosslive.config import refuse
from mosslive.errors import MossliveError

RATE_HZ = 24_000
# How a dialogue is held out. "voice": training has its words, and only the voice is new.
# "spelling" is separate from "word", because the letters of an unseen word do not follow from its
# sound.
Kind = Literal["wording", "frame", "pair", "word", "spelling", "voice"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Speaker = Literal["known", "unseen"]
REMEDY = (
    "make it with `python -m recipes.bundled.make_corpus DIR --voices VOICES --only-exam` and the "
    "hours and seed of training (recipes/bundled/README.md)"
)


class BadExam(MossliveError):
    """The folder is not an examination."""


class Utterance(NamedTuple):
    """A text spoken by one voice."""

    number: int
    text: str
    voice: str
    start: int
    samples: int


@dataclass(frozen=True)
class TurnPair:
    """A question, spoken by a known or an unseen voice or both, and its answer."""

    asked: str
    utterances: dict[Speaker, Utterance]
    answer: str
    synthesised: Utterance  # the answer as the assistant's synthesiser says it


@dataclass(frozen=True)
class Dialogue:
    """One or more questions with answers; the last is examined."""

    number: int
    category: str
    kind: Kind
    turn_pairs: tuple[TurnPair, ...]

    @property
    def answer(self) -> str:
        return self.turn_pairs[-1].answer

    @property
    def synthesised(self) -> Utterance:
        return self.turn_pairs[-1].synthesised

    def has_speaker(self, speaker: Speaker) -> bool:
        return all(speaker in pair.utterances for pair in self.turn_pairs)


class Exam:
    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.meta: dict[str, Any] = json.loads(self._read("meta.json"))
        unseen = self.meta.get("unseen_voices")
        if not unseen:
            raise BadExam(f"{self.folder}: meta.json has no unseen_voices; {REMEDY}")
        self._utterances = [_utterance(row) for row in self._rows("utterances.jsonl")]
        self._unseen = frozenset(unseen)
        known = (self._dialogue(row) for row in self._rows("dialogues.jsonl"))
        self.dialogues = [row for row in known if row]
        wanted = max(
            (utterance.start + utterance.samples for utterance in self._utterances), default=0
        )
        path = self.folder / "sound.i16"
        self.sound_bytes = path.stat().st_size if path.is_file() else 0
        if self.sound_bytes != 2 * wanted:
            found = self.sound_bytes // 2
            raise BadExam(f"{path}: {found} samples, utterances.jsonl needs {wanted}; {REMEDY}")

    def select(self, kind: Kind, speaker: Speaker, most: int | None = None) -> list[Dialogue]:
        """Returns the first `most` dialogues of a kind that have this speaker."""
        if kind not in KINDS:
            raise refuse("kind", kind, ", ".join(KINDS))
        chosen = [row for row in self.dialogues if row.kind == kind and row.has_speaker(speaker)]
        return chosen[:most]

    def pcm(self, utterance: Utterance) -> NDArray[np.float32]:
        """Returns [samples] in [-1, 1] at 24 kHz."""
        pcm = self._sound[utterance.start : utterance.start + utterance.samples]
        return np.divide(pcm, 32768, dtype=np.float32)

    @cached_property
    def _sound(self) -> NDArray[np.int16]:
        return np.memmap(self.folder / "sound.i16", dtype="<i2", mode="r")

    def _dialogue(self, row: dict[str, Any]) -> Dialogue | None:
        """Returns None for a dialogue of training without an unseen voice."""
        turns, turn_pairs = row["turns"], []
        for asked, given in zip(turns[::2], turns[1::2], strict=True):
            utterances: dict[Speaker, Utterance] = {}
            for utterance in (self._utterances[number] for number in asked["utterances"]):
                utterances.setdefault(
                    "unseen" if utterance.voice in self._unseen else "known", utterance
                )
            if not row["heldout_by"]:  # training had its known voices
                utterances.pop("known", None)
            synthesised = self._utterances[given["utterances"][0]]
            turn_pairs.append(TurnPair(asked["text"], utterances, given["text"], synthesised))
        kind: Kind = row["heldout_by"] or "voice"
        if (kind, row["category"]) == ("word", "spelling"):
            kind = "spelling"
        if not turn_pairs or not all(pair.utterances for pair in turn_pairs):
            return None
        return Dialogue(row["id"], row["category"], kind, tuple(turn_pairs))

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        yield from (json.loads(line) for line in self._read(name).splitlines())

    def _read(self, name: str) -> str:
        try:
            return (self.folder / name).read_text(encoding="utf-8")
        except OSError:
            raise BadExam(
                f"{self.folder}: no {name}, so it is not an examination; {REMEDY}"
            ) from None


def _utterance(row: dict[str, Any]) -> Utterance:
    return Utterance(row["id"], row["text"], row["voice"], row["start"], row["samples"])
