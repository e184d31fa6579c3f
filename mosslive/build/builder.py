"""Builds an engine folder from a published checkpoint: measure, fuse, probe, verify, rename.

The output gets its name only after the engine was loaded again and reproduced the logits of its
source. On any failure the unfinished folder is removed.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import torch

from mosslive.build.calibration import DEFAULT_SEQUENCES, Sample, Samples
from mosslive.build.fp8 import Keep
from mosslive.build.fuse import TORCH_DTYPES, FusedTensors
from mosslive.build.load import load_engine_weights
from mosslive.build.probes import make_probes, read_probes, write_probes
from mosslive.build.report import Fp8Report, measure_fp8
from mosslive.build.verify import Verdict, check_probes, overall_precision
from mosslive.checkpoint import Checkpoint
from mosslive.checkpoint.engine_folder import (
    PROBES_FILE,
    SHARD_BYTES,
    hash_files,
    open_engine,
    write_weights,
)
from mosslive.checkpoint.engine_layout import BaseDtype, Precision, matrix_names, stored_tensors
from mosslive.checkpoint.engine_manifest import Manifest
from mosslive.checkpoint.header import DTYPE_BYTES
from mosslive.checkpoint.inventory import Inventory, take_inventory
from mosslive.checkpoint.layout import (
    CAPABILITIES_FILE,
    CONFIG_FILE,
    GENERATION_FILE,
    INDEX_FILE,
    TOKENIZER_FILE,
)
from mosslive.checkpoint.progress import Stage, silent
from mosslive.checkpoint.reader import scan_values
from mosslive.checkpoint.writer import new_folder, require_new, require_space
from mosslive.config import ModelConfig
from mosslive.model import Decoder, load_weights
from mosslive.rows import END_OF_TEXT, Row, RowIds, TextTokenizer

# Generates the replies of the free-running check; passed in, because `engine` imports this package.
MakeReplies = Callable[[TextTokenizer, Decoder, list[list[Row]]], list[list[Row]]]


@dataclass(frozen=True)
class Fp8Options:
    keep: Keep = field(default_factory=Keep)
    calibration: Path | None = None  # default: synthetic conversations
    sequences: int = DEFAULT_SEQUENCES  # maximum
    replies: int = 0  # number of prompts in the free-running check


@dataclass(frozen=True)
class Built:
    folder: Path
    weight_bytes: int
    verdict: Verdict
    report: Fp8Report | None


def build_engine(
    source: str | Path,
    out: Path,
    device: torch.device,
    *,
    dtype: BaseDtype | None = None,
    fp8: Fp8Options | None = None,
    make_replies: MakeReplies | None = None,
    stage: Stage = silent,
    shard_bytes: int = SHARD_BYTES,
) -> Built:
    """`dtype`: of everything that is not fp8; default: the checkpoint's own (float32 for float16,
    which converts exactly). `device` runs the measurements and the final check; the whole model
    must fit. `make_replies` generates replies for the free-running check. Raises `FailedProbes` if
    the engine does not reproduce its source."""
    require_new(out)  # fail before the slow part; `new_folder` checks again
    inventory, tokenizer = _open_source(source)
    config = inventory.config
    samples = _samples(config, tokenizer, fp8) if fp8 else []
    checkpoint = _read_values(inventory, stage)
    base = dtype or base_dtype(config)
    names = matrix_names(config)
    report = None
    precision: dict[str, Precision] = dict.fromkeys(names, base)
    require_space(out, _weight_bytes(checkpoint, base, precision))
    if fp8:
        decoder = Decoder(config, load_weights(checkpoint, device, TORCH_DTYPES[base]))
        replies = partial(make_replies, tokenizer) if make_replies else None
        ids = RowIds.from_config(config, tokenizer.id_of(END_OF_TEXT))
        with stage("measuring fp8", 2 * len(samples)) as progress:
            report = measure_fp8(decoder, samples, ids, fp8.keep, replies, fp8.replies, progress)
        del decoder  # frees its memory for the finished engine
        precision = report.precision(base, names)
    with new_folder(out) as work:
        fused = FusedTensors(checkpoint, base, precision, device)
        tensors = stored_tensors(config, base, precision)
        with stage("fusing", _weight_bytes(checkpoint, base, precision)) as progress:

            def make(name: str) -> torch.Tensor:
                tensor = fused.make(name)
                progress(tensor.nbytes)
                return tensor

            files, records = write_weights(work, tensors, make, shard_bytes)
        names_copied = (TOKENIZER_FILE, GENERATION_FILE, CAPABILITIES_FILE)
        copied = [checkpoint.folder / name for name in names_copied]
        copied = [path for path in copied if path.is_file()]
        for path in copied:
            (work / path.name).write_bytes(path.read_bytes())
        with stage("reference logits", config.layers) as progress:
            write_probes(make_probes(checkpoint, tokenizer, progress), work / PROBES_FILE)
        files |= hash_files([work / name for name in (PROBES_FILE, *(p.name for p in copied))])
        sources = source_files(checkpoint)
        with stage("hashing the source", sum(p.stat().st_size for p in sources)) as progress:
            hashes = hash_files(sources, progress)
        settings = {"dtype": base, "fp8": _settings(fp8) if fp8 else None}
        found = {"fp8": report.to_dict()} if report else {}
        Manifest(config, base, precision, hashes, files, records, settings, found).write(work)
        verdict = _check(work, device, stage)
    size = _weight_bytes(checkpoint, base, precision)
    return Built(out, size, verdict, report)


def _open_source(source: str | Path) -> tuple[Inventory, TextTokenizer]:
    inventory = take_inventory(source)
    inventory.require_valid()
    tokenizer = TextTokenizer.from_file(inventory.folder / TOKENIZER_FILE)
    tokenizer.check(inventory.config)
    return inventory, tokenizer


def _samples(config: ModelConfig, tokenizer: TextTokenizer, options: Fp8Options) -> list[Sample]:
    """Runs before the slow part, so that a bad pattern or calibration file raises at once."""
    options.keep.named(config)
    source = Samples(config, tokenizer)
    if options.calibration:
        return source.from_file(options.calibration, options.sequences)
    return source.synthetic(options.sequences)


def _read_values(inventory: Inventory, stage: Stage) -> Checkpoint:
    total = sum(entry.data_bytes for entry in inventory.entries.values())
    with stage("reading values", total) as progress:
        scan_values(inventory, progress)
    return Checkpoint(inventory)


def _check(work: Path, device: torch.device, stage: Stage) -> Verdict:
    """Loads the folder in the ordinary way and runs all probes."""
    engine = open_engine(work)
    with stage("verifying", engine.weight_bytes) as progress:
        weights = load_engine_weights(engine, device, progress)
        decoder = Decoder(engine.manifest.config, weights)
        precision = overall_precision(engine.manifest)
        verdict = check_probes(decoder, read_probes(engine.probes_path), precision)
    verdict.require()
    return verdict


def source_files(checkpoint: Checkpoint) -> list[Path]:
    """The files that an engine folder is made from."""
    names = (CONFIG_FILE, GENERATION_FILE, CAPABILITIES_FILE, INDEX_FILE, TOKENIZER_FILE)
    others = [checkpoint.folder / name for name in names]
    return [*checkpoint.weight_files, *(path for path in others if path.is_file())]


def base_dtype(config: ModelConfig) -> BaseDtype:
    """Of everything that is not fp8, unless the caller chooses another."""
    return "bfloat16" if config.dtype == "bfloat16" else "float32"


def _weight_bytes(checkpoint: Checkpoint, base: BaseDtype, precision: dict[str, Precision]) -> int:
    stored = stored_tensors(checkpoint.config, base, precision).values()
    return sum(DTYPE_BYTES[t.dtype] * math.prod(t.shape) for t in stored)


def _settings(options: Fp8Options) -> dict[str, object]:
    content = asdict(options)
    content["calibration"] = str(options.calibration) if options.calibration else None
    return content
