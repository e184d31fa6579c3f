"""The examination: a folder of held-out dialogues, spoken, with the answer each one should get.

The folder is a corpus as `recipes/bundled` makes it with `--only-exam`:

    sound.i16          every utterance one after another: int16, mono, 24 kHz, little-endian
    utterances.jsonl   id, text, voice, role, start and samples of each, in order of id
    dialogues.jsonl    category, heldout_by and turns; a turn has role, text and utterance ids
    meta.json          among other things `unseen_voices`: those that training never heard

A dialogue has one right answer, the text of its last turn. Knows files, not how they are judged.
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
# How a dialogue is held out; "voice": its words were trained on, and only the voice is new; the
# "spelling" of a word never heard or read is not just "word": its sound does not tell its letters.
Kind = Literal["wording", "frame", "pair", "word", "spelling", "voice"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Who = Literal["known", "unseen"]
REMEDY = (
    "make it with `python -m recipes.bundled.make_corpus DIR --voices VOICES --only-exam` and the "
    "hours and seed of training (recipes/bundled/README.md)"
)


class BadExam(MossliveError):
    """A folder that is no examination."""


class Form(NamedTuple):
    """One voice saying a text."""

    utterance: int
    text: str
    voice: str
    start: int
    samples: int


@dataclass(frozen=True)
class Exchange:
    asked: str
    forms: dict[Who, Form]
    answer: str
    own: Form  # the answer as the assistant's synthesiser says it


@dataclass(frozen=True)
class Dialogue:
    """One or more exchanges; the last one is examined."""

    number: int
    category: str
    kind: Kind
    exchanges: tuple[Exchange, ...]

    @property
    def answer(self) -> str:
        return self.exchanges[-1].answer

    @property
    def own(self) -> Form:
        return self.exchanges[-1].own

    def said_by(self, who: Who) -> bool:
        return all(who in exchange.forms for exchange in self.exchanges)


class Exam:
    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.meta: dict[str, Any] = json.loads(self._read("meta.json"))
        unseen = self.meta.get("unseen_voices")
        if not unseen:
            raise BadExam(f"{self.folder}: meta.json names no unseen_voices; {REMEDY}")
        self._forms = [_form(row) for row in self._rows("utterances.jsonl")]
        self._unseen = frozenset(unseen)
        known = (self._dialogue(row) for row in self._rows("dialogues.jsonl"))
        self.dialogues = [row for row in known if row]
        wanted = max((form.start + form.samples for form in self._forms), default=0)
        path = self.folder / "sound.i16"
        self.sound_bytes = path.stat().st_size if path.is_file() else 0
        if self.sound_bytes != 2 * wanted:
            found = self.sound_bytes // 2
            raise BadExam(f"{path}: {found} samples, the table says {wanted}; {REMEDY}")

    def some(self, kind: Kind, who: Who, most: int | None = None) -> list[Dialogue]:
        """Dialogues of a kind that such a voice says, the first `most` of them."""
        if kind not in KINDS:
            raise refuse("kind", kind, ", ".join(KINDS))
        chosen = [row for row in self.dialogues if row.kind == kind and row.said_by(who)]
        return chosen[:most]

    def pcm(self, form: Form) -> NDArray[np.float32]:
        """[samples] in [-1, 1] at 24 kHz."""
        pcm = self._sound[form.start : form.start + form.samples]
        return np.divide(pcm, 32768, dtype=np.float32)

    @cached_property
    def _sound(self) -> NDArray[np.int16]:
        return np.memmap(self.folder / "sound.i16", dtype="<i2", mode="r")

    def _dialogue(self, row: dict[str, Any]) -> Dialogue | None:
        """None: a dialogue of training that nobody new says."""
        turns, exchanges = row["turns"], []
        for asked, given in zip(turns[::2], turns[1::2], strict=True):
            forms: dict[Who, Form] = {}
            for form in (self._forms[number] for number in asked["utterances"]):
                forms.setdefault("unseen" if form.voice in self._unseen else "known", form)
            if not row["heldout_by"]:  # its known voices were trained on
                forms.pop("known", None)
            own = self._forms[given["utterances"][0]]
            exchanges.append(Exchange(asked["text"], forms, given["text"], own))
        kind: Kind = row["heldout_by"] or "voice"
        if (kind, row["category"]) == ("word", "spelling"):
            kind = "spelling"
        if not exchanges or not all(exchange.forms for exchange in exchanges):
            return None
        return Dialogue(row["id"], row["category"], kind, tuple(exchanges))

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        yield from (json.loads(line) for line in self._read(name).splitlines())

    def _read(self, name: str) -> str:
        try:
            return (self.folder / name).read_text(encoding="utf-8")
        except OSError:
            raise BadExam(f"{self.folder}: no {name}, so no examination; {REMEDY}") from None


def _form(row: dict[str, Any]) -> Form:
    return Form(row["id"], row["text"], row["voice"], row["start"], row["samples"])
