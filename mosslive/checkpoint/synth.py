"""Random checkpoints in the published layout, at three sizes.

They replace the real weights where values do not matter: tests, benchmarks, the demo. Variances
keep the residual stream near one and spread the logits by a few units. Norm weights differ from one
and from each other, so tests notice a missing or swapped tensor.
"""

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from mosslive.checkpoint.inventory import STORED_DTYPE
from mosslive.checkpoint.layout import (
    AUDIO_EMBED,
    AUDIO_HEAD,
    CONFIG_FILE,
    GENERATION_FILE,
    TEXT_EMBED,
    TEXT_HEAD,
    TOKENIZER_FILE,
    Shape,
    expected_tensors,
)
from mosslive.checkpoint.vocabulary import Vocabulary, learned_vocabulary, ranked_vocabulary
from mosslive.checkpoint.writer import FolderExists, new_folder, require_space, write_shards
from mosslive.config import ModelConfig, Sampling
from mosslive.errors import MossliveError

SizeName = Literal["nano", "small", "full"]
Progress = Callable[[int, int], None]  # bytes done, total bytes

_LOGIT_SPREAD = 3.0  # standard deviation of the logits: a clear arg-max that varies by row
_NORM_SPREAD = 0.2


@dataclass(frozen=True)
class Size:
    hidden: int
    inner: int
    shared_layers: int
    modality_layers: int
    heads: int
    kv_heads: int
    head_dim: int
    text_vocab: int
    codes: int
    audio_pad: int  # a legal code, as published
    positions: int
    shard_bytes: int


SIZES: dict[SizeName, Size] = {
    "nano": Size(64, 160, 3, 2, 4, 2, 16, 640, 500, 64, 4096, 300_000),
    # The proportions of a published layer at three eighths of the width; few layers.
    "small": Size(1536, 4608, 2, 1, 12, 3, 128, 2048, 2048, 512, 8192, 100_000_000),
    "full": Size(4096, 12288, 32, 4, 32, 8, 128, 151680, 16384, 512, 40960, 5_000_000_000),
}


def synth_config(size: SizeName, vocabulary: Vocabulary) -> ModelConfig:
    s = SIZES[size]
    return ModelConfig(
        vocab_size=s.text_vocab,
        # A multiple of 128, with illegal ids above the end of speech, as published.
        audio_vocab_size=(s.codes // 128 + 1) * 128,
        hidden_size=s.hidden,
        intermediate_size=s.inner,
        num_hidden_layers=s.shared_layers + s.modality_layers,
        num_shared_layers=s.shared_layers,
        num_modality_layers=s.modality_layers,
        num_attention_heads=s.heads,
        num_key_value_heads=s.kv_heads,
        head_dim=s.head_dim,
        max_position_embeddings=s.positions,
        rms_norm_eps=1e-6,
        rope_theta=1_000_000,
        modality_pad_token_id=vocabulary.text_placeholder,
        sosp_token_id=vocabulary.speech_start,
        eosp_token_id=s.codes,
        eos_token_id=vocabulary.turn_end,
        audio_pad_token_id=s.audio_pad,
        pad_token_id=vocabulary.end_of_text,
    )


def synthesise(
    out: Path,
    size: SizeName,
    seed: int = 0,
    ranks: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Writes `out/lm` and returns its path. `ranks`: a tiktoken file with the vocabulary to use."""
    target = out / "lm"
    if target.exists():  # fail before the slow part; `new_folder` checks again
        raise FolderExists(f"{target} exists already; choose another folder or remove it")
    vocabulary = ranked_vocabulary(ranks) if ranks else learned_vocabulary()
    if vocabulary.size > SIZES[size].text_vocab:
        raise MossliveError(
            f"the vocabulary has {vocabulary.size} ids; allowed for size {size}: at most "
            f"{SIZES[size].text_vocab}"
        )
    config = synth_config(size, vocabulary)
    shapes = expected_tensors(config)
    total = 2 * sum(math.prod(shape) for shape in shapes.values())  # bf16
    require_space(out, total)
    done = 0

    def make(name: str) -> Tensor:
        nonlocal done
        tensor = random_tensor(name, shapes[name], config, seed)
        done += tensor.nbytes
        if progress:
            progress(done, total)
        return tensor

    with new_folder(target) as work:
        dtype = STORED_DTYPE[config.dtype]
        write_shards(work, shapes, dtype, make, SIZES[size].shard_bytes)
        _write_json(work / CONFIG_FILE, config.to_dict())
        _write_json(work / GENERATION_FILE, _generation_config(config))
        (work / TOKENIZER_FILE).write_text(vocabulary.json, encoding="utf-8")
    return target


def random_tensor(name: str, shape: Shape, config: ModelConfig, seed: int) -> Tensor:
    """bf16 values that depend only on (seed, name, shape), not on the order of calls."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
    if len(shape) == 1:  # every vector is a norm weight
        values = 1 + _NORM_SPREAD * torch.randn(shape, generator=generator)
        return values.to(torch.bfloat16)
    tensor = torch.empty(shape, dtype=torch.bfloat16)
    spread = _spread(name, shape, config)
    for first in range(0, shape[0], 4096):  # float32 samples for one block of rows at a time
        rows = tensor[first : first + 4096]
        rows.copy_(spread * torch.randn(rows.shape, generator=generator))
    return tensor


def _spread(name: str, shape: Shape, config: ModelConfig) -> float:
    if name in (TEXT_EMBED, AUDIO_EMBED):
        return 1.0
    inputs = shape[1]
    if name in (TEXT_HEAD, AUDIO_HEAD):
        return _LOGIT_SPREAD / math.sqrt(inputs)
    if name.endswith(("o_proj.weight", "down_proj.weight")):
        # The more layers, the less each adds, so that the residual stream stays near one.
        return 1 / math.sqrt(inputs * config.num_hidden_layers)
    return 1 / math.sqrt(inputs)


def _generation_config(config: ModelConfig) -> dict[str, object]:
    driver = Sampling.driver()
    return {
        "do_sample": True,
        "eos_token_id": [config.eos_token_id, config.pad_token_id],
        "pad_token_id": config.pad_token_id,
        "repetition_penalty": driver.repetition_penalty,
        "temperature": driver.temperature,
        "top_k": driver.top_k,
        "top_p": driver.top_p,
    }


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
