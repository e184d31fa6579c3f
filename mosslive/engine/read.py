"""Reads a model folder in the published layout into a decoder on a device, and its tokenizer.

Also turns the name of a device into a device; "auto" is resolved here and nowhere else.
"""

from collections.abc import Callable
from pathlib import Path

import torch

from mosslive.checkpoint import Checkpoint
from mosslive.checkpoint.layout import CONFIG_FILE, TOKENIZER_FILE, model_folder
from mosslive.config import ConfigError, ModelConfig, refuse
from mosslive.model import Decoder, load_weights
from mosslive.rows import TextTokenizer

AUTO = "auto"  # the device of a command that was given none
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


def pick_device(name: str) -> str:
    """The device that a command runs on: for "auto" cuda where PyTorch finds a GPU, else cpu.
    Raises `ConfigError` for names other than cpu, cuda and cuda:N, and for cuda without a GPU."""
    found = torch.cuda.is_available()
    if name == AUTO:
        return "cuda" if found else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError:
        kind = ""
    if kind not in ("cpu", "cuda"):
        raise ConfigError(f"Unknown device {name!r}; use cpu or cuda.")
    if kind == "cuda" and not found:
        raise ConfigError(
            f"PyTorch {torch.__version__} finds no GPU, so device {name!r} cannot be used; use cpu."
        )
    return name


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
