"""A corpus as codes alone, which travel: hours of speech are gigabytes, their codes megabytes.

    python -m recipes.bundled.encode_corpus CORPUS CARRIED OUT --versions 2 [--add EARLIER]
    python -m recipes.bundled.run OUT TRAINED --minutes 9 --resume CARRIED --reuse-codes --stages lm

Speech can so be made and encoded wherever there is a processor, for as long as one likes, and the
GPU's time is the language model's alone. `--add` puts the codes of an earlier folder in front, made
from another seed by the same encoder. Knows the corpus and the trained encoder. Invariants: the
folder is there only when it is whole; codes of two encoders never meet.
"""

import argparse
import hashlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mosslive.bench.bundled_layout import CODE_SAMPLES
from mosslive.kernels.arithmetic import arithmetic
from recipes.bundled.augment import Augment
from recipes.bundled.bank import as_heard, laid_out
from recipes.bundled.budget import load_carried
from recipes.bundled.codec_model import CodecModel
from recipes.bundled.corpus import DIALOGUES, META, UTTERANCES, Corpus, Dialogue, Turn, Utterance
from recipes.bundled.encode_bank import SPOKEN, Spoken, encode_bank, load_spoken, save_spoken
from recipes.bundled.sizes import SIZES

_EVERY_S = 5.0


@dataclass(frozen=True)
class Streamed:
    """The sound of a corpus, read where it is needed."""

    corpus: Corpus
    count: NDArray[np.int64]  # [U]: codes
    device: torch.device

    @classmethod
    def of(cls, corpus: Corpus, device: torch.device) -> "Streamed":
        lengths = [len(laid_out(corpus, each)) // CODE_SAMPLES for each in corpus.utterances]
        return cls(corpus, np.asarray(lengths, np.int64), device)

    def where(self, role: str, split: str) -> NDArray[np.int64]:
        chosen = ((u.role, u.split) == (role, split) for u in self.corpus.utterances)
        return np.flatnonzero(np.fromiter(chosen, bool))

    @arithmetic("fp32")  # the resampler's products decide over codes
    def waves(self, group: NDArray[np.int64]) -> Tensor:
        """[B, (W + 1) · 1280] for the longest one's W codes."""
        width = (int(self.count[group].max()) + 1) * CODE_SAMPLES
        sound = np.zeros((len(group), width), np.int16)
        for row, number in zip(sound, group, strict=True):
            laid = laid_out(self.corpus, self.corpus.utterances[number])
            row[: len(laid)] = laid
        return as_heard(torch.from_numpy(sound).to(self.device).float() / 32768).float() / 32768


def encoder_of(carried: Path, size: str, device: torch.device) -> CodecModel:
    """The trained encoder with its codebook; nothing else of the codec is needed."""
    held = load_carried(carried, "encoder")
    if held is None:
        raise ValueError(f"{carried} is no folder `carried` of a run: no encoder")
    model = CodecModel(SIZES[size], phones=1)
    model.encoder.load_state_dict(held)
    model.quantiser.codebook.copy_(held["codebook.weight"])
    model.settle_hearing()
    return model.to(device)


def encoder_digest(carried: Path) -> str:
    """Names an encoder by its tensors, as the files hold them."""
    held = load_carried(carried, "encoder") or {}
    digest = hashlib.sha256()
    for name in sorted(held):
        digest.update(name.encode() + held[name].half().numpy().tobytes())
    return digest.hexdigest()


def joined(one: Corpus, two: Corpus) -> tuple[list[Utterance], list[Dialogue]]:
    """Both, the second one's ids behind the first one's; of what is held out, the first one's: it
    is one examination and not two."""
    utterances, dialogues = list(one.utterances), list(one.dialogues)
    after = len(utterances)
    utterances += [replace(each, id=each.id + after) for each in two.utterances]
    for each in two.dialogues:
        if each.split == "train":
            turns = [Turn(t.role, t.text, [i + after for i in t.utterances]) for t in each.turns]
            dialogues.append(replace(each, id=len(dialogues), turns=turns))
    return utterances, dialogues


def together(one: Spoken, two: Spoken) -> Spoken:
    """As many versions as both have."""
    codes = [np.concatenate(pair) for pair in zip(one.codes, two.codes, strict=False)]
    first = np.concatenate((one.first, two.first + len(one.codes[0])))
    return Spoken(codes, first, np.concatenate((one.count, two.count)))


def encode_corpus(
    corpus: Corpus,
    carried: Path,
    out: Path,
    versions: int,
    add: Path | None = None,
    size: str = "bundled",
    device: str = "cpu",
    done: Callable[[int], object] = lambda utterances: None,
) -> None:
    if out.exists():
        raise ValueError(f"{out} is there already; nothing is written over it")
    meta: dict[str, Any] = {"encoder": encoder_digest(carried), "made_of": [corpus.meta]}
    before = Corpus(add) if add is not None else None
    if before is not None and before.meta.get("encoder") != meta["encoder"]:
        raise ValueError(f"{add} has codes of another encoder than {carried}")
    model = encoder_of(carried, size, torch.device(device))
    source = Streamed.of(corpus, torch.device(device))
    spoken = encode_bank(model, source, versions, Augment(), corpus.meta.get("seed", 0), done)
    utterances, dialogues = corpus.utterances, corpus.dialogues
    if before is not None:
        utterances, dialogues = joined(before, corpus)
        spoken = together(load_spoken(before.folder / SPOKEN), spoken)
        meta["made_of"] = [*before.meta["made_of"], corpus.meta]
    part = out.with_name(f".{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        save_spoken(spoken, part / SPOKEN)
        # Phones are for the codec's training, and half of the table.
        _write_lines(part / UTTERANCES, (asdict(replace(u, phones=[])) for u in utterances))
        _write_lines(part / DIALOGUES, (asdict(each) for each in dialogues))
        (part / META).write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
        part.replace(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write_lines(path: Path, rows: Any) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Speech of a corpus as codes alone.")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("carried", type=Path, help="of a run: its encoder is used")
    parser.add_argument("out", type=Path, help="the folder to make")
    parser.add_argument(
        "--versions", type=int, default=2, help="of what users say: as recorded, and changed ones"
    )
    parser.add_argument("--add", type=Path, help="a folder of codes that comes first")
    parser.add_argument("--size", choices=sorted(SIZES), default="bundled")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args(arguments)
    corpus = Corpus(given.corpus)
    began = shown = time.monotonic()
    count = 0

    def done(utterances: int) -> None:
        nonlocal shown, count
        count += utterances
        if time.monotonic() - shown > _EVERY_S:
            shown = time.monotonic()
            print(f"{count} utterances encoded in {shown - began:.0f} s", flush=True)

    try:
        encode_corpus(
            corpus,
            given.carried,
            given.out,
            given.versions,
            given.add,
            given.size,
            given.device,
            done,
        )
    except ValueError as error:
        parser.error(str(error))
    hours = sum(each.samples for each in corpus.utterances) / 24_000 / 3600
    print(f"{hours:.2f} h, {given.versions} versions, in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
