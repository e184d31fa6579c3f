"""Measures the codec's networks at random weights: verifies each output against the CPU, then
times.

Collects the rows of the parts and their conditions. Knows no network. Do not compare times of
different machines or runs without their conditions.
"""

import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

import torch
from rich.table import Table

from mosslive.bench.codec.check import LARGEST_ERROR, LEAST_COSINE, LEAST_SAME, Row
from mosslive.bench.codec.encoder import encoder_rows
from mosslive.bench.codec.flow import PROMPT_CODES, REPLY_CODES, STREAMS, flow_rows
from mosslive.bench.codec.networks import NetworkPair
from mosslive.bench.codec.vocoder import vocoder_rows
from mosslive.checkpoint.synth import SizeName
from mosslive.config import refuse


@dataclass(frozen=True)
class CodecResult:
    size: SizeName
    device: str
    device_name: str
    torch_version: str
    cuda_version: str | None
    threads: int
    conditions: dict[str, str]
    rows: tuple[Row, ...]

    def document(self) -> dict[str, Any]:
        rows = [asdict(row) | {"real_time": row.real_time} for row in self.rows]
        return asdict(self) | {"rows": rows}


_CONDITIONS = {
    "weights": "random, of the published shapes",
    "verified": f"against the same network in float32 on the CPU: fp32 rows within "
    f"{LARGEST_ERROR:g} of the largest value, others by cosine >= {LEAST_COSINE:g}; at least "
    f"{LEAST_SAME:.0%} of codes equal, error: how much nearer the nearest code is",
    "times": "device events around single calls, device idle before; host work included",
    "encoder, steps and ends": "batch of the server, wall clock from samples on the host to codes "
    "on the host; each call hears the next 80 ms; as many turns as fit into memory; codebook: "
    "states of the sounds, because a random one has one code for nearly everything",
    "fp32": "TF32 off in matrix products and convolutions",
    "tf32": "TF32 on in BigVGAN's reference form",
    "bf16, fp16": "products, keys and values of encoder and flow's estimator; BigVGAN except its "
    "snakes",
    "reference form": "BigVGAN as published: plain PyTorch operations, a window per chunk",
    "stream push": "the whole call of BigVGAN's stream, with full layers",
    "flow + HiFT": f"{PROMPT_CODES} shared prompt codes, {REPLY_CODES} reply codes before, "
    "streams at 4 different positions, no noise; prefix: recomputed like the published stream",
    "graph": "inputs copied in, one replay; flow + HiFT: the whole call",
    "cudnn.benchmark": "on for the flow, off for everything else",
}


PARTS = ("encoder", "vocoder", "flow")


def measure_codec(
    size: str,
    device: str,
    repeats: int,
    streams: tuple[int, ...] = STREAMS,
    *,
    parts: Sequence[str] = PARTS,
    seen: Callable[[Row], None] = lambda row: None,
) -> CodecResult:
    """Calls `seen` with each row when it is ready, because a full-size run takes minutes. Raises
    `NotVerified` at the first output that differs from the CPU's."""
    if size not in get_args(SizeName):
        raise refuse("size", size, ", ".join(get_args(SizeName)))
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise refuse("device", device, "cpu, or cuda where PyTorch finds a device")
    if not parts or set(parts) - set(PARTS):
        raise refuse("parts", ", ".join(parts), "one or more of " + ", ".join(PARTS))
    pair = NetworkPair(size, device)  # type: ignore[arg-type]  # checked above
    makers: dict[str, Callable[[], Iterator[Row]]] = {
        "encoder": lambda: encoder_rows(pair, repeats),
        "vocoder": lambda: vocoder_rows(pair, repeats),
        "flow": lambda: flow_rows(pair, repeats, streams),
    }
    rows = []
    for part in parts:
        for row in makers[part]():
            seen(row)
            rows.append(row)
    cuda = device == "cuda"
    return CodecResult(
        size=pair.size,
        device=device,
        device_name=torch.cuda.get_device_name() if cuda else platform.processor(),
        torch_version=torch.__version__,
        cuda_version=torch.version.cuda if cuda else None,
        threads=torch.get_num_threads(),
        conditions=_CONDITIONS | ({} if cuda else {"graph": "the plain function"}),
        rows=tuple(rows),
    )


def codec_table(result: CodecResult) -> Table:
    columns = ("part", "what", "streams", "precision", "form", "median", "p10-p90", "x real time")
    title = f"codec, {result.size}, {result.device_name or result.device}"
    checks = ("error", "cosine", "equal codes")
    table = Table(*columns, *checks, "goal", title=title, title_justify="left")
    for row in result.rows:
        table.add_row(*cells(row))
    table.caption = f"torch {result.torch_version}; " + "; ".join(
        f"{name}: {text}" for name, text in result.conditions.items()
    )
    return table


def cells(row: Row) -> list[str]:
    times = ["not timed", "", ""]
    if row.median_ms is not None:
        spread = f"{row.p10_ms:.2f}-{row.p90_ms:.2f}"
        times = [f"{row.median_ms:.2f} ms", spread, f"{row.real_time:.0f}"]
    what = [row.part, row.what, str(row.streams), row.precision, row.form]
    same = "" if row.same_codes is None else f"{row.same_codes:.2%}"
    return [*what, *times, f"{row.error:.1e}", f"{row.cosine:.5f}", same, _goal(row)]


def _goal(row: Row) -> str:
    if row.goal_ms is None or row.median_ms is None:
        return ""
    return f"<= {row.goal_ms:g} ms: {'met' if row.median_ms <= row.goal_ms else 'missed'}"
