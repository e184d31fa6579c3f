"""Turns a packaged model into a folder `carried`, from which a run can continue.

    python -m recipes.bundled.carry mosslive/bundled CARRIED
    python -m recipes.bundled.run CODES OUT --resume CARRIED --reuse-codes --stages lm

So the shipped model can be trained further from the repository alone. The folder has the language
model and the encoder with its codebook, which is all that this needs; `export --codec-of` writes a
new language model next to the codec that it was trained with. Knows files and names, not training.
Invariant: exported again without training, the language model is the same, byte by byte.
"""

import argparse
import json
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from mosslive.checkpoint.codec import ENCODER_FILE, ENCODER_PREFIX
from mosslive.checkpoint.layout import CONFIG_FILE, SINGLE_FILE, expected_tensors
from mosslive.checkpoint.writer import new_folder
from mosslive.config.folders import CODEC_FOLDER, LM_FOLDER
from mosslive.errors import MossliveError
from recipes.bundled.budget import save_carried
from recipes.bundled.lm_stored import MATRICES, STORED, trained_tensors
from recipes.bundled.sizes import SIZES, SIZES_FILE
from recipes.bundled.vocabulary import ids, load_tokenizer


def carry(model: Path, out: Path, size: str = "bundled") -> None:
    """`model` is a folder that `export.py` wrote; `out` is the folder to write."""
    lm, encoder = model / LM_FOLDER / SINGLE_FILE, model / CODEC_FOLDER / ENCODER_FILE
    if absent := [str(path) for path in (lm, encoder) if not path.is_file()]:
        raise ValueError(f"{model} is not a model of the recipe: it has no {', '.join(absent)}")
    config = json.loads((model / LM_FOLDER / CONFIG_FILE).read_text(encoding="utf-8"))
    wanted = SIZES[size].lm_config(**ids(load_tokenizer())).to_dict()
    if other := [name for name in wanted if config.get(name) != wanted[name]]:
        raise ValueError(f"{model} does not have size {size!r}: {', '.join(other)}")
    checkpoint, heard = _read(lm), _read(encoder)
    expected = expected_tensors(SIZES[size].lm_config(**ids(load_tokenizer())))
    if {name: tuple(tensor.shape) for name, tensor in checkpoint.items()} != expected:
        raise ValueError(f"{lm} has other tensors than a model of size {size!r}")
    if any(checkpoint[name].dtype != STORED for name in expected if name.endswith(MATRICES)):
        raise ValueError(f"{lm} was not stored by this recipe: its layers are not in eight bits")
    with new_folder(out) as work:
        save_carried(work, "lm", trained_tensors(checkpoint))
        save_carried(work, "encoder", _without_prefix(heard))
        note = {"size": size, "hift": ""}
        (work / SIZES_FILE).write_text(json.dumps(note) + "\n", encoding="utf-8")


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def _without_prefix(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(ENCODER_PREFIX): tensor for name, tensor in tensors.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="A model in the package, to be taught further.")
    parser.add_argument(
        "model", type=Path, help="read this folder with lm and codec, such as mosslive/bundled"
    )
    parser.add_argument("out", type=Path, help="write this folder")
    parser.add_argument("--size", choices=sorted(SIZES), default="bundled")
    given = parser.parse_args()
    try:
        carry(given.model, given.out, given.size)
    except (ValueError, OSError, MossliveError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
