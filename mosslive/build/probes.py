"""Golden probes: a few short sequences with reference logits of both heads at some of their rows.

Small enough to run at every load, varied enough to reveal a wrong part of the model: text and
speech rows of both roles, ids from both whole vocabularies, positions up to a few dozen. Does not
know devices or verdicts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from mosslive.build.reference import reference_logits
from mosslive.checkpoint import Checkpoint
from mosslive.config import ModelConfig
from mosslive.rows import (
    CHANNELS,
    DRIVER_SYSTEM,
    END_OF_TEXT,
    Channel,
    PromptFormat,
    Row,
    RowIds,
    TextTokenizer,
    Turn,
)

_SEED = 20250930
_RANDOM_ROWS = 40


@dataclass(frozen=True)
class Probe:
    rows: list[Row]
    positions: list[int]  # rows with stored logits
    logits: dict[Channel, Tensor]  # float32 [positions, V]


def make_probes(
    checkpoint: Checkpoint,
    tokenizer: TextTokenizer,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Probe]:
    """Sequences with their reference logits. The first one is used for the quick check."""
    sequences = _sequences(checkpoint.config, tokenizer)
    # Nine rows in total: 6 MB of logits at full size. Not the first row of a sequence: it attends
    # only to itself, trained models have their largest activations there, and its logits have no
    # use.
    positions = [sorted({len(rows) // 3, len(rows) * 2 // 3, len(rows) - 1}) for rows in sequences]
    logits = reference_logits(checkpoint, sequences, positions, progress)
    return [Probe(*parts) for parts in zip(sequences, positions, logits, strict=True)]


def _sequences(config: ModelConfig, tokenizer: TextTokenizer) -> list[list[Row]]:
    generator = torch.Generator().manual_seed(_SEED)

    def numbers(below: int, count: int) -> list[int]:
        return torch.randint(below, (count,), generator=generator).tolist()

    ids = RowIds.from_config(config, tokenizer.id_of(END_OF_TEXT))
    prompts = PromptFormat(tokenizer, ids)
    system = Turn("system", text=DRIVER_SYSTEM["speech"])
    spoken = Turn("user", codes=numbers(ids.eosp, 12))
    dialogue = [system, spoken, Turn("assistant", text="Yes, 你好! At ten o'clock?")]
    written = [Turn("user", text="Where is the market?"), Turn("assistant", codes=numbers(9, 9))]
    any_text, any_audio = (numbers(n, _RANDOM_ROWS) for n in (ids.text_size, ids.audio_size))
    is_speech = numbers(2, _RANDOM_ROWS)
    anything = [
        (ids.modality_pad if speech else text, audio)
        for text, audio, speech in zip(any_text, any_audio, is_speech, strict=True)
    ]
    dialogue_rows = prompts.prompt([*dialogue, spoken], "speech")
    written_rows = prompts.prompt(written, "text")
    longest = config.max_position_embeddings
    return [rows[-longest:] for rows in (dialogue_rows, written_rows, anything)]


def write_probes(probes: list[Probe], path: Path) -> None:
    tensors: dict[str, Tensor] = {}
    for number, probe in enumerate(probes):
        tensors[f"{number}.rows"] = torch.tensor(probe.rows)
        tensors[f"{number}.positions"] = torch.tensor(probe.positions)
        tensors |= {f"{number}.{c}": probe.logits[c].contiguous() for c in CHANNELS}
    path.write_bytes(save(tensors))


def read_probes(path: Path) -> list[Probe]:
    """Reads a file whose hash was checked, so it is as `write_probes` wrote it."""
    tensors = load_file(path)
    return [
        Probe(
            rows=[(text, audio) for text, audio in tensors[f"{number}.rows"].tolist()],
            positions=tensors[f"{number}.positions"].tolist(),
            logits={c: tensors[f"{number}.{c}"] for c in CHANNELS},
        )
        for number in range(len(tensors) // 4)
    ]
