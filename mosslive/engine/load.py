"""Loads a stepper from an engine folder or from a model folder in the published layout.

The checksums of an engine folder are verified while it is read, its probes afterwards. On a GPU all
graphs are recorded here, so that no reply waits for a recording.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from mosslive.build import load_engine_folder, quick_check
from mosslive.cache import PagePool, row_bytes
from mosslive.checkpoint.engine_folder import is_engine
from mosslive.config import refuse
from mosslive.engine.graph_runner import GraphRunner
from mosslive.engine.graph_stepper import GraphStepper
from mosslive.engine.read import read_decoder, read_device
from mosslive.engine.stepper import PlainStepper, Stepper
from mosslive.engine.traced_runner import TracedRunner
from mosslive.model import Decoder, DecoderWeights
from mosslive.rows import TextTokenizer

_CPU_KV_ROWS = 8192
_CPU_KV_BYTES = 512 << 20  # limit of what `goal_rows` adds; committed as pages are used
# Share of the GPU memory that is free after the weights are loaded. The rest is for intermediate
# results of graphs, workspaces of libraries and other processes.
_GPU_SHARE = 0.85
_GPU_REST_BYTES = 2 << 30  # of that rest, where the pool's size was planned


def load_stepper(
    path: str | Path,
    device: str = "cpu",
    dtype: str | None = None,
    *,
    page_size: int = 16,
    kv_rows: int | None = None,
    goal_rows: int = 0,
    chunk: int = 512,
    most_requests: int = 256,
    host_embeddings: bool = False,
    progress: Callable[[int], None] = lambda _: None,
    before_pages: Callable[[], None] = lambda: None,
) -> tuple[Stepper, TextTokenizer]:
    """`dtype`: "float32" or "bfloat16", for a published folder (default: float32 on a CPU, bfloat16
    on a GPU); an engine folder has its own. `kv_rows`: rows all conversations together may hold
    (default: 8192 on a CPU, on a GPU what its memory allows). `goal_rows`: rows the caller
    needs; on a CPU the default grows to as many of them as fit into 512 MiB, on a GPU it is no
    larger. `chunk`: rows per pass of a prefill. `most_requests`: replies in one step.
    `host_embeddings`: keeps the embedding tables (1.4 GB at full size) in pinned host memory, for
    small GPUs. `progress` is called with the number of bytes read, `before_pages` when the weights
    are loaded and checked: until it returns, no graph is recorded and no page allocated.
    """
    numbers = {"page_size": page_size, "chunk": chunk, "most_requests": most_requests}
    if kv_rows is not None:
        numbers["kv_rows"] = kv_rows
    for name, value in numbers.items():
        if type(value) is not int or value < 1:
            raise refuse(name, value, "an integer, 1 or more")
    where = read_device(device)
    gpu = where.type == "cuda"
    if host_embeddings and not gpu:
        raise refuse(
            "host_embeddings",
            True,
            "only with device cuda; on a CPU they are in host memory already",
        )
    if is_engine(path):
        if dtype is not None:
            raise refuse("dtype", dtype, "none; an engine folder is built for one precision")
        config, tokenizer, weights = load_engine_folder(path, where, progress)
        decoder = Decoder(config, _embeddings_on_host(weights) if host_embeddings else weights)
        quick_check(decoder, path)
    else:
        chosen = dtype or ("bfloat16" if gpu else "float32")
        decoder, tokenizer = read_decoder(path, where, chosen, progress)
        if host_embeddings:
            decoder = Decoder(decoder.config, _embeddings_on_host(decoder.weights))
    before_pages()
    rows = kv_rows or (_gpu_rows(decoder, goal_rows) if gpu else _cpu_rows(decoder, goal_rows))
    pool = PagePool(-(-rows // page_size), page_size)
    try:
        if not gpu:
            return PlainStepper(TracedRunner(decoder, pool, chunk)), tokenizer
        stepper = GraphStepper(GraphRunner(decoder, pool, chunk), most_requests)
        stepper.record()
    except (torch.OutOfMemoryError, MemoryError):
        size = rows * row_bytes(decoder.config, decoder.dtype) / 1e9
        raise refuse(
            "kv_rows", rows, f"fewer; {size:.1f} GB of pages do not fit into memory"
        ) from None
    return stepper, tokenizer


def _gpu_rows(decoder: Decoder, goal: int) -> int:
    return rows_within(_available(decoder), row_bytes(decoder.config, decoder.dtype), goal)


def rows_within(available: int, bytes_each: int, goal: int = 0) -> int:
    """Rows of a pool in so many bytes, no more than `goal` if that is given. A caller with a goal
    has planned the memory, so the rest need not grow with the GPU."""
    rest = int((1 - _GPU_SHARE) * available)
    if goal:
        rest = min(rest, _GPU_REST_BYTES)
    fitting = max(1, (available - rest) // bytes_each)
    return min(goal, fitting) if goal else fitting


def _available(decoder: Decoder) -> int:
    device = decoder.device
    free, total = torch.cuda.mem_get_info(device)
    reserved = torch.cuda.memory_reserved(device)
    # The process may be limited to a fraction of the GPU.
    allowed = int(torch.cuda.get_per_process_memory_fraction(device) * total) - reserved
    return min(free, allowed) + reserved - torch.cuda.memory_allocated(device)


def _cpu_rows(decoder: Decoder, goal: int) -> int:
    most = _CPU_KV_BYTES // row_bytes(decoder.config, decoder.dtype)
    return max(_CPU_KV_ROWS, min(goal, most))


def _embeddings_on_host(weights: DecoderWeights) -> DecoderWeights:
    """Moves the embedding tables to pinned memory; the embedding kernel reads it over the bus."""
    tails = {
        channel: replace(tail, embed=tail.embed.cpu().pin_memory())
        for channel, tail in weights.tails.items()
    }
    return replace(weights, tails=tails)
