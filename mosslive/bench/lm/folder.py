"""Writes an engine folder of random weights, so that loading can be measured without a checkpoint.

Uses the product's own writer. transformers' layers compute the probes in float32, so the check at
the end of every load is independent. Knows no times.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from mosslive.bench.lm.bound_reference import Wiring, reference_logits
from mosslive.bench.lm.prefix_batch import PrefixBatch, speech_rows
from mosslive.bench.lm.weights import precision_of
from mosslive.build.probes import Probe, write_probes
from mosslive.checkpoint.engine_folder import PROBES_FILE, SHARD_BYTES, hash_files, write_weights
from mosslive.checkpoint.engine_layout import Precision, matrix_names, stored_tensors
from mosslive.checkpoint.engine_layout import scale_name as scale_of
from mosslive.checkpoint.engine_manifest import Manifest
from mosslive.checkpoint.layout import TOKENIZER_FILE
from mosslive.checkpoint.vocabulary import learned_vocabulary
from mosslive.checkpoint.writer import new_folder
from mosslive.config import ModelConfig
from mosslive.kernels import Matrix
from mosslive.kernels.arithmetic import arithmetic
from mosslive.model import DecoderWeights

_PROBE_ROWS = 48


def write_random_engine(folder: Path, config: ModelConfig, weights: DecoderWeights) -> Path:
    """`weights` are bf16, or bf16 with a float8 trunk."""
    float8 = precision_of(weights) == "fp8"
    precision: dict[str, Precision] = {
        name: "fp8" if float8 and name.startswith("trunk.") else "bfloat16"
        for name in matrix_names(config)
    }
    tensors = engine_tensors(weights)
    with new_folder(folder) as work:
        files, records = write_weights(
            work,
            stored_tensors(config, "bfloat16", precision),
            _on_host(tensors),
            SHARD_BYTES,
        )
        tokenizer, probes = work / TOKENIZER_FILE, work / PROBES_FILE
        tokenizer.write_text(learned_vocabulary().json, encoding="utf-8")
        write_probes([_probe(config, weights)], probes)
        files |= hash_files([tokenizer, probes])
        settings = {"weights": "random"}
        Manifest(config, "bfloat16", precision, {}, files, records, settings).write(work)
    return folder


def _on_host(tensors: dict[str, Tensor]) -> Callable[[str], Tensor]:
    """Returns a function that copies a tensor to host memory. All tensors reuse one buffer, because
    allocating memory for each takes longer than the copies."""
    most = max(tensor.nbytes for tensor in tensors.values())
    pinned = any(tensor.is_cuda for tensor in tensors.values())
    place = torch.empty(most, dtype=torch.uint8, pin_memory=pinned)

    def copied(name: str) -> Tensor:
        tensor = tensors[name]
        target = place[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        return target.copy_(tensor)

    return copied


def engine_tensors(weights: DecoderWeights) -> dict[str, Tensor]:
    """Returns the tensors by their names in an engine folder."""
    blocks = {"trunk": weights.trunk} | {c: tail.layers for c, tail in weights.tails.items()}
    named: dict[str, Tensor | Matrix] = {
        f"{block}.{index}.{name}": value
        for block, layers in blocks.items()
        for index, layer in enumerate(layers)
        for name, value in vars(layer).items()
    }
    for channel, tail in weights.tails.items():
        for name in ("embed", "norm", "head"):
            named[f"{channel}.{name}"] = getattr(tail, name)
    found: dict[str, Tensor] = {}
    for name, value in named.items():
        if isinstance(value, Matrix):
            found[name] = value.weight
            if value.scale is not None:
                found[scale_of(name)] = value.scale
        else:
            found[name] = value
    return found


def _probe(config: ModelConfig, weights: DecoderWeights) -> Probe:
    rows = speech_rows(config, _PROBE_ROWS, 0)
    positions = [0, _PROBE_ROWS // 2, _PROBE_ROWS - 1]
    with arithmetic("fp32"):
        logits = reference_logits(
            Wiring(config, weights),
            PrefixBatch([rows], [], []),
            torch.tensor(positions),
            torch.float32,
        )
    return Probe(rows, positions, {channel: found.cpu() for channel, found in logits.items()})
