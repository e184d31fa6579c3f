"""Reads a model folder in the published layout into a decoder on a device, and its tokenizer."""

from collections.abc import Callable
from pathlib import Path

import torch

from mosslive.checkpoint import Checkpoint
from mosslive.checkpoint.layout import CONFIG_FILE, TOKENIZER_FILE, model_folder
from mosslive.config import ModelConfig, refuse
from mosslive.model import Decoder, load_weights
from mosslive.rows import TextTokenizer

_COMPUTE = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def read_decoder(
    path: str | Path, device: torch.device, dtype: str, progress: Callable[[int], None]
) -> tuple[Decoder, TextTokenizer]:
    """`dtype`: of the arithmetic, "float32" or "bfloat16". `progress` is called with the number of
    bytes checked."""
    if not isinstance(dtype, str) or dtype not in _COMPUTE:
        raise refuse("dtype", dtype, ", ".join(_COMPUTE))
    folder = model_folder(path)
    config = ModelConfig.from_file(folder / CONFIG_FILE)
    tokenizer = TextTokenizer.from_file(folder / TOKENIZER_FILE)
    tokenizer.check(config)
    checkpoint = Checkpoint.open(folder, progress)
    return Decoder(config, load_weights(checkpoint, device, _COMPUTE[dtype])), tokenizer


def read_device(name: str) -> torch.device:
    allowed = "cpu, or cuda where PyTorch finds a GPU"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise refuse("device", name, f"{allowed} ({str(error).splitlines()[0]})") from None
    if device.type not in ("cpu", "cuda"):
        raise refuse("device", name, allowed)
    return device
