"""The model that a benchmark measures: random weights made on the device, or an engine folder."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch

from mosslive.bench.lm.weights import LmPrecision, precision_of, random_config, random_weights
from mosslive.checkpoint import SizeName
from mosslive.checkpoint.layout import TOKENIZER_FILE
from mosslive.checkpoint.vocabulary import learned_vocabulary
from mosslive.config import ModelConfig, refuse
from mosslive.model import DecoderWeights
from mosslive.rows import TextTokenizer


@dataclass(frozen=True)
class Subject:
    size: SizeName
    device: str
    engine: Path | None = None  # a folder made by `mosslive build`; replaces `size`

    def __post_init__(self) -> None:
        if self.size not in get_args(SizeName):
            raise refuse("size", self.size, ", ".join(get_args(SizeName)))
        if self.device not in ("cpu", "cuda") or (
            self.device == "cuda" and not torch.cuda.is_available()
        ):
            raise refuse("device", self.device, "cpu, or cuda where PyTorch finds a device")

    def load(self, float8_trunk: bool = False) -> tuple[ModelConfig, DecoderWeights]:
        """`float8_trunk` applies to random weights only; a folder keeps its precision."""
        device = torch.device(self.device)
        if self.engine is not None:
            from mosslive.build.load import load_engine_folder

            config, _, weights = load_engine_folder(self.engine, device)
            return config, weights
        config = random_config(self.size)
        return config, random_weights(config, device, float8_trunk=float8_trunk)

    @property
    def shown_size(self) -> str:
        return f"engine {self.engine.name}" if self.engine else f"size {self.size}"

    @property
    def shown_weights(self) -> str:
        return "its weights" if self.engine else "random weights"

    @property
    def options(self) -> str:
        chosen = f"--engine {self.engine}" if self.engine else f"--size {self.size}"
        return f"{chosen} --device {self.device}"

    @property
    def has_goals(self) -> bool:
        """Whether the goals apply: they are for the full model on an H200."""
        full = self.size == "full" and self.engine is None
        return full and self.device == "cuda" and "H200" in torch.cuda.get_device_name()


def random_tokenizer() -> TextTokenizer:
    """Returns the tokenizer of random models. The benchmarks do not use its text."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / TOKENIZER_FILE
        path.write_text(learned_vocabulary().json, encoding="utf-8")
        return TextTokenizer.from_file(path)


def checked_precisions(weights: DecoderWeights, wanted: tuple[str, ...]) -> list[LmPrecision]:
    """Raises `ConfigError` for a precision that these weights cannot be converted to."""
    given = precision_of(weights)
    allowed: tuple[Any, ...] = get_args(LmPrecision) if given == "bf16" else (given,)
    for precision in wanted:
        if precision not in allowed:
            raise refuse("precision", precision, ", ".join(allowed))
    return list(wanted)  # type: ignore[arg-type]  # checked above


def check_context(config: ModelConfig, rows: int) -> None:
    """Raises `ConfigError` if context plus new rows exceed the longest sequence of the model."""
    longest = config.max_position_embeddings
    if rows > longest:
        raise refuse("context", rows, f"at most {longest} rows, new rows included")


def numbers(name: str, text: str, least: int = 1) -> tuple[int, ...]:
    """ "1,64" → (1, 64)"""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < least:
        raise refuse(name, text, f"numbers of at least {least}, separated by commas")
    return found
