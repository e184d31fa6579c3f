"""Reads and writes the corpus: one file of sound, two tables and a note.

    corpus/
      sound.i16          every utterance one after another: int16, mono, 24 kHz, host order (little)
      utterances.jsonl   one `Utterance` per line, in the order of their sound
      dialogues.jsonl    one `Dialogue` per line
      meta.json          seeds, versions, counts, times; free form

A dialogue is text; an utterance is a text spoken by one voice. A turn lists the ids of its
utterances. The assistant has one voice and so one utterance per turn; a user's turn has several,
spoken by different voices. Utterances without a dialogue are the open sentences. A folder of codes
(`encode_corpus`) has the tables and, instead of sound, `spoken.pt`; there the assistant's utterance
can occur again with another start within a code.

Nothing marked "heldout" may be trained on. A dialogue is held out for its words, an utterance for
its words or its voice. So a training dialogue can list a held-out utterance (an unseen voice), and
training must use `Corpus.forms(turn, "train")`.

Knows no grammar, no synthesisers and no training. Needs only numpy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal, TextIO

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 24_000
SOUND, UTTERANCES, DIALOGUES, META = "sound.i16", "utterances.jsonl", "dialogues.jsonl", "meta.json"
SPOKEN = "spoken.pt"

Role = Literal["assistant", "user"]
Split = Literal["train", "heldout"]
ROLES: tuple[Role, ...] = ("assistant", "user")
SPLITS: tuple[Split, ...] = ("train", "heldout")


@dataclass(frozen=True)
class Utterance:
    """One voice speaking `text`: `samples` samples from sample `start`."""

    id: int
    text: str
    phones: list[str]  # for CTC: phone names without stress or pauses, as `flite -ps` gives them
    voice: str  # "hts-slt", "flite-awb", "espeak-f2", ...: the synthesiser and its voice
    role: Role
    split: Split
    start: int
    samples: int

    def __post_init__(self) -> None:
        _check(self.role in ROLES, f"utterance {self.id}: role {self.role!r}, allowed {ROLES}")
        _check(self.split in SPLITS, f"utterance {self.id}: split {self.split!r}, allowed {SPLITS}")


@dataclass(frozen=True)
class Turn:
    role: Role
    text: str
    utterances: list[int] = field(default_factory=list)  # ids of its utterances


@dataclass(frozen=True)
class Dialogue:
    """Turns in order; a user's is first and the assistant's last."""

    id: int
    category: str
    split: Split
    turns: list[Turn]
    heldout_by: str = ""  # why it is held out: "wording", "pair", "word"; empty in training

    def __post_init__(self) -> None:
        _check(self.split in SPLITS, f"dialogue {self.id}: split {self.split!r}, allowed {SPLITS}")
        roles = [turn.role for turn in self.turns]
        wanted = ["user", "assistant"] * (len(roles) // 2)
        _check(bool(roles) and roles == wanted, f"dialogue {self.id}: turns go {roles}")


class Writer:
    """Writes a corpus folder; the tables and `meta.json` are complete when it is closed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.meta: dict[str, Any] = {}
        self.samples = 0
        self.utterances = 0
        self.dialogues = 0
        self._sound: BinaryIO = (folder / SOUND).open("wb")
        self._utterances: TextIO = (folder / UTTERANCES).open("w", encoding="utf-8")
        self._dialogues: TextIO = (folder / DIALOGUES).open("w", encoding="utf-8")

    def utterance(
        self,
        sound: NDArray[np.int16],  # [samples]
        text: str,
        phones: list[str],
        voice: str,
        role: Role,
        split: Split,
    ) -> int:
        """Appends one utterance and returns its id."""
        assert sound.dtype == np.int16
        assert sound.ndim == 1
        row = Utterance(
            self.utterances, text, phones, voice, role, split, self.samples, int(sound.size)
        )
        self._sound.write(sound.tobytes())
        self._utterances.write(json.dumps(asdict(row), ensure_ascii=False) + "\n")
        self.samples += row.samples
        self.utterances += 1
        return row.id

    def dialogue(self, category: str, split: Split, turns: list[Turn], heldout_by: str = "") -> int:
        row = Dialogue(self.dialogues, category, split, turns, heldout_by)
        self._dialogues.write(json.dumps(asdict(row), ensure_ascii=False) + "\n")
        self.dialogues += 1
        return row.id

    def close(self, whole: bool = True) -> None:
        for file in (self._sound, self._utterances, self._dialogues):
            file.close()
        if not whole:
            return  # a folder without the note is not a corpus
        counts = {
            "utterances": self.utterances,
            "dialogues": self.dialogues,
            "samples": self.samples,
            "hours": round(self.samples / SAMPLE_RATE_HZ / 3600, 4),
            "sample_rate_hz": SAMPLE_RATE_HZ,
        }
        text = json.dumps({**counts, **self.meta}, indent=1, ensure_ascii=False)
        (self.folder / META).write_text(text + "\n", encoding="utf-8")

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(whole=error is None)


class Corpus:
    """Reads a corpus folder: tables in memory, sound mapped, so that hours of speech open
    quickly."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.meta: dict[str, Any] = json.loads((self.folder / META).read_text(encoding="utf-8"))
        self.utterances = [Utterance(**row) for row in _rows(self.folder / UTTERANCES)]
        self.dialogues = [_dialogue(row) for row in _rows(self.folder / DIALOGUES)]
        sound = self.folder / SOUND
        self.silent = (self.folder / SPOKEN).exists()
        if not self.silent:
            wanted, found = sum(row.samples for row in self.utterances), sound.stat().st_size // 2
            _check(found == wanted, f"{sound}: {found} samples, the table says {wanted}")
        ids = [row.id for row in self.utterances]
        _check(
            ids == list(range(len(ids))), f"{self.folder / UTTERANCES}: ids are not 0, 1, 2, ..."
        )

    @cached_property
    def sound(self) -> NDArray[np.int16]:
        """All sound, mapped read-only: [samples]."""
        _check(not self.silent, f"{self.folder} has no {SOUND}: these are codes, not speech")
        if not self.utterances:
            return np.zeros(0, np.int16)
        return np.memmap(self.folder / SOUND, dtype=np.int16, mode="r")

    def pcm(self, utterance: Utterance | int) -> NDArray[np.int16]:
        """Returns the sound of one utterance: [samples] int16, a view."""
        row = self.utterances[utterance] if isinstance(utterance, int) else utterance
        return self.sound[row.start : row.start + row.samples]

    def forms(self, turn: Turn, split: Split | None = None) -> list[Utterance]:
        """Returns the utterances of a turn, all or those of one split."""
        rows = (self.utterances[i] for i in turn.utterances)
        return [row for row in rows if split is None or row.split == split]

    @cached_property
    def phone_names(self) -> list[str]:
        """Returns every phone of the corpus, sorted, without the CTC blank."""
        return sorted({phone for row in self.utterances for phone in row.phones})

    def spoken(self) -> set[int]:
        """Returns the ids of utterances in dialogues; the others are open sentences."""
        return {i for row in self.dialogues for turn in row.turns for i in turn.utterances}


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines)


def _dialogue(row: dict[str, Any]) -> Dialogue:
    turns: Iterable[dict[str, Any]] = row["turns"]
    return Dialogue(**{**row, "turns": [Turn(**turn) for turn in turns]})


def _check(fine: bool, complaint: str) -> None:
    if not fine:
        raise ValueError(complaint)
