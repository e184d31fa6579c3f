"""Encodes a corpus into a folder of codes: hours of speech are gigabytes, their codes megabytes.

    python -m recipes.bundled.encode_corpus CORPUS CARRIED OUT --starts 4 [--add EARLIER ...]
    python -m recipes.bundled.run OUT TRAINED --minutes 9 --resume CARRIED --reuse-codes --stages lm

So any machine can make and encode speech, and the GPU trains the language model only. `--starts`:
the same answer at another start within a code has other codes, so each start is one more training
form without new speech. `--add` puts the codes of earlier folders first, made from other seeds by
the same encoder; the first one has the examination. Knows the corpus and the trained encoder.
Invariants: the folder exists only when it is complete; codes of two encoders are never mixed.
"""

import argparse
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mosslive.kernels.arithmetic import arithmetic
from recipes.bundled.augment import Augment
from recipes.bundled.bank import as_heard, laid_out
from recipes.bundled.budget import load_carried
from recipes.bundled.codec_model import CodecModel
from recipes.bundled.corpus import (
    DIALOGUES,
    META,
    SAMPLE_RATE_HZ,
    SPOKEN,
    UTTERANCES,
    Corpus,
    Dialogue,
    Turn,
    Utterance,
)
from recipes.bundled.encode_bank import Spoken, encode_bank, load_spoken, save_spoken
from recipes.bundled.layout import CODE_SAMPLES
from recipes.bundled.sizes import SIZES

_EVERY_S = 5.0
_MOST_STARTS = 4  # 20 ms apart: closer starts hardly differ


@dataclass(frozen=True)
class Streamed:
    """The sound of some utterances of a corpus, read on demand."""

    corpus: Corpus
    utterances: list[Utterance]
    count: NDArray[np.int64]  # [U]: codes
    device: torch.device
    later: int = 0  # samples

    @classmethod
    def of(
        cls, corpus: Corpus, utterances: list[Utterance], device: torch.device, later: int = 0
    ) -> "Streamed":
        # Reads all sound, because the trimmed length depends on where an utterance is quiet.
        lengths = [len(laid_out(corpus, each, later)) // CODE_SAMPLES for each in utterances]
        return cls(corpus, utterances, np.asarray(lengths, np.int64), device, later)

    def where(self, role: str, split: str) -> NDArray[np.int64]:
        chosen = ((u.role, u.split) == (role, split) for u in self.utterances)
        return np.flatnonzero(np.fromiter(chosen, bool))

    @arithmetic("fp32")  # the resampler's arithmetic affects codes
    def waves(self, group: NDArray[np.int64]) -> Tensor:
        """Returns [B, (W + 1) · 1280] for the longest one's W codes."""
        width = (int(self.count[group].max()) + 1) * CODE_SAMPLES
        sound = np.zeros((len(group), width), np.int16)
        for row, number in zip(sound, group, strict=True):
            padded = laid_out(self.corpus, self.utterances[number], self.later)
            row[: len(padded)] = padded
        return as_heard(torch.from_numpy(sound).to(self.device).float() / 32768).float() / 32768


def encoder_of(carried: Path, size: str, device: torch.device) -> CodecModel:
    """Loads the trained encoder with its codebook; no other part of the codec."""
    held = _encoder_tensors(carried)
    model = CodecModel(SIZES[size], phones=1)
    model.encoder.load_state_dict(held)
    model.quantiser.codebook.copy_(held["codebook.weight"])
    model.settle_hearing()
    return model.to(device)


def encoder_digest(carried: Path) -> str:
    """Returns a digest of the stored tensors of an encoder."""
    digest = hashlib.sha256()
    for name, tensor in sorted(_encoder_tensors(carried).items()):
        digest.update(name.encode() + tensor.half().numpy().tobytes())
    return digest.hexdigest()


def _encoder_tensors(carried: Path) -> dict[str, Tensor]:
    held = load_carried(carried, "encoder")
    if held is None:
        raise ValueError(f"{carried} is not a folder `carried` of a run: it has no encoder")
    return held


@dataclass(frozen=True)
class Coded:
    """Tables and codes of a folder."""

    utterances: list[Utterance]
    dialogues: list[Dialogue]
    spoken: Spoken

    def and_begun_later(self, said: list[Utterance], spoken: Spoken) -> "Coded":
        """Adds other codes of some utterances, as further forms of the same turns."""
        more = [replace(each, id=len(self.utterances) + i) for i, each in enumerate(said)]
        other = {old.id: new.id for old, new in zip(said, more, strict=True)}
        dialogues = [
            replace(talk, turns=[_with_forms(turn, other) for turn in talk.turns])
            for talk in self.dialogues
        ]
        return Coded([*self.utterances, *more], dialogues, _joined(self.spoken, spoken))

    def and_then(self, other: "Coded") -> "Coded":
        """Appends the training part of another folder with new ids. Drops its held-out part, so
        that there is one examination."""
        number: dict[int, int] = {}
        utterances, dialogues = list(self.utterances), list(self.dialogues)
        for each in other.utterances:
            if each.split == "train":
                number[each.id] = len(utterances)
                utterances.append(replace(each, id=number[each.id]))
        for talk in other.dialogues:
            if talk.split == "train":
                turns = [
                    Turn(t.role, t.text, [number[i] for i in t.utterances if i in number])
                    for t in talk.turns
                ]
                dialogues.append(replace(talk, id=len(dialogues), turns=turns))
        theirs, kept = other.spoken, list(number)
        spoken = Spoken(theirs.codes, theirs.first[kept], theirs.count[kept])
        return Coded(utterances, dialogues, _joined(self.spoken, spoken))


def _with_forms(turn: Turn, other: dict[int, int]) -> Turn:
    return Turn(
        turn.role, turn.text, turn.utterances + [other[i] for i in turn.utterances if i in other]
    )


def _joined(mine: Spoken, theirs: Spoken) -> Spoken:
    codes = [np.concatenate(pair) for pair in zip(mine.codes, theirs.codes, strict=True)]
    first = np.concatenate((mine.first, theirs.first + len(mine.codes[0])))
    return Spoken(codes, first, np.concatenate((mine.count, theirs.count)))


def encode_corpus(
    corpus: Corpus,
    carried: Path,
    out: Path,
    versions: int,
    starts: int = 1,
    add: Sequence[Path] = (),
    size: str = "bundled",
    device: str = "cpu",
    done: Callable[[int], object] = lambda utterances: None,
) -> None:
    """Raises `ValueError` for every bad option before anything slow runs."""
    if out.exists():
        raise ValueError(f"{out} exists already; choose another folder")
    if versions < 1:
        raise ValueError(f"{versions} versions; allowed: 1, as recorded, or more")
    if not 1 <= starts <= _MOST_STARTS:
        raise ValueError(f"{starts} starts; allowed: 1 to {_MOST_STARTS}")
    made_of = {**corpus.meta, "starts": starts}
    if len({folder.resolve() for folder in add}) < len(add):
        raise ValueError(f"{', '.join(map(str, add))}: a folder is listed twice; list each once")
    meta: dict[str, Any] = {"encoder": encoder_digest(carried)}
    before, earlier = None, []
    for folder in add:
        held, parts = _earlier(folder, versions, meta, corpus.meta)
        _keep_examination(before, folder, held.dialogues)
        before = held if before is None else before.and_then(held)
        earlier += parts
    _keep_examination(before, corpus.folder, corpus.dialogues)
    meta["made_of"] = [*earlier, made_of]
    model = encoder_of(carried, size, torch.device(device))

    def encode(utterances: list[Utterance], later: int = 0) -> Spoken:
        source = Streamed.of(corpus, utterances, torch.device(device), later)
        return encode_bank(model, source, versions, Augment(), corpus.meta.get("seed", 0), done)

    coded = Coded(corpus.utterances, corpus.dialogues, encode(corpus.utterances))
    own = [u for u in corpus.utterances if (u.role, u.split) == ("assistant", "train")]
    for number in range(1, starts):
        coded = coded.and_begun_later(own, encode(own, number * CODE_SAMPLES // starts))
    _write(coded if before is None else before.and_then(coded), meta, out)


def _keep_examination(before: Coded | None, added: Path, dialogues: list[Dialogue]) -> None:
    """Raises `ValueError` if a later folder has an examination and the first has none: only that of
    the first is kept."""
    if before is not None and not _examines(before.dialogues) and _examines(dialogues):
        raise ValueError(f"{added} has an examination and the folder before it has none; swap them")


def _examines(dialogues: list[Dialogue]) -> bool:
    return any(each.split == "heldout" for each in dialogues)


def _earlier(
    folder: Path, versions: int, meta: dict[str, Any], added: dict[str, Any]
) -> tuple[Coded, list[dict[str, Any]]]:
    """Returns the content of a folder of codes and its note. Raises `ValueError` unless both
    fit."""
    held = Corpus(folder)
    if not held.silent:
        raise ValueError(f"{folder} is not a folder of codes: run encode_corpus on it first")
    if held.meta.get("encoder") != meta["encoder"]:
        raise ValueError(f"{folder} has codes of another encoder")
    made_of: list[dict[str, Any]] = held.meta["made_of"]
    # Another grammar can train on what this one holds out.
    if any(each.get("grammar_sha256") != added.get("grammar_sha256") for each in made_of):
        raise ValueError(f"{folder} has texts of another grammar")
    spoken = load_spoken(folder / SPOKEN)
    if len(spoken.codes) != versions:
        raise ValueError(f"{folder} has {len(spoken.codes)} versions; --versions is {versions}")
    return Coded(held.utterances, held.dialogues, spoken), made_of


def _write(coded: Coded, meta: dict[str, Any], out: Path) -> None:
    part = out.with_name(f".{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        save_spoken(coded.spoken, part / SPOKEN)
        # Drops phones, which train the codec, and positions in the sound: both are half of the
        # table.
        bare = (replace(each, phones=[], start=0, samples=0) for each in coded.utterances)
        _write_lines(part / UTTERANCES, (asdict(each) for each in bare))
        _write_lines(part / DIALOGUES, (asdict(each) for each in coded.dialogues))
        (part / META).write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
        part.replace(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Speech of a corpus as codes alone.")
    parser.add_argument("corpus", type=Path)
    parser.add_argument(
        "carried", type=Path, help="use the encoder of this folder `carried` of a run"
    )
    parser.add_argument("out", type=Path, help="write this folder")
    parser.add_argument(
        "--versions",
        type=int,
        default=2,
        help="set the encodings of what users say: as recorded, and augmented",
    )
    parser.add_argument(
        "--starts",
        type=int,
        default=1,
        help="set the number of starts within a code of the assistant's speech",
    )
    parser.add_argument(
        "--add", type=Path, nargs="+", default=[], help="put these folders of codes first"
    )
    parser.add_argument("--size", choices=sorted(SIZES), default="bundled")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args(arguments)
    began = shown = time.monotonic()
    count = 0

    def done(utterances: int) -> None:
        nonlocal shown, count
        count += utterances
        if time.monotonic() - shown > _EVERY_S:
            shown = time.monotonic()
            print(f"{count} utterances encoded in {shown - began:.0f} s", flush=True)

    try:
        corpus = Corpus(given.corpus)
        encode_corpus(
            corpus,
            given.carried,
            given.out,
            given.versions,
            starts=given.starts,
            add=given.add,
            size=given.size,
            device=given.device,
            done=done,
        )
    except (ValueError, OSError) as error:
        parser.error(str(error))
    hours = sum(each.samples for each in corpus.utterances) / SAMPLE_RATE_HZ / 3600
    print(
        f"{hours:.2f} h, {given.versions} versions, {given.starts} starts,"
        f" in {time.monotonic() - began:.0f} s"
    )


if __name__ == "__main__":
    main()
