"""Times the decode step on the CPU and the bare matrix products that it must do.

First verifies that the cached loop makes the rows that the transformers reference chooses for the
same history. Step and products alternate, so that other load on the machine affects both alike.
"""

import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.table import Table
from torch.nn import functional as F

from mosslive.bench.verified import NotVerified
from mosslive.checkpoint import model_folder, synthesise
from mosslive.config import Sampling, refuse
from mosslive.engine import LanguageModel, load_lm
from mosslive.errors import MossliveError
from mosslive.rows import Row

_VERIFIED_ROWS = 16
_CLOSE = 1e-4  # of the logit scale, float32


@dataclass(frozen=True)
class StepResult:
    model: str
    parameters_read: int  # per step
    dtype: str
    context_rows: int
    steps: int
    threads: int
    processor: str
    torch_version: str
    logit_error: float  # largest difference to the reference, as a share of the logit scale
    step_ms: float  # medians
    products_ms: float
    ratio: float
    ratio_p10: float
    ratio_p90: float


def measure_step(model: Path | None, context: int, steps: int, dtype: str) -> StepResult:
    with tempfile.TemporaryDirectory() as scratch:
        folder = model_folder(model) if model else synthesise(Path(scratch), "small")
        name = str(model) if model else "small, random"
        lm = load_lm(folder, dtype=dtype)
        capacity = min(lm.config.max_position_embeddings, lm.pool.total * lm.pool.page_size)
        if context + max(steps, _VERIFIED_ROWS) + 2 > capacity:
            raise refuse("context + steps", context + steps, f"at most {capacity - 2} rows")
        prompt = _speech_prompt(lm, context)
        error = _verify(lm, folder, prompt)
    products = _products(lm)
    sampling = Sampling(greedy=True, max_new=steps + 1, min_new=steps + 2)
    generation = lm.generate(prompt, sampling)
    next(generation)  # prefill
    _products_pass(products)
    pairs = [
        (_seconds(lambda: next(generation)), _seconds(lambda: _products_pass(products)))
        for _ in range(steps)
    ]
    ratios = statistics.quantiles((step / bare for step, bare in pairs), n=10)
    step_s, products_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    return StepResult(
        model=name,
        parameters_read=sum(weight.numel() for weight, _ in products),
        dtype=dtype,
        context_rows=context,
        steps=steps,
        threads=torch.get_num_threads(),
        processor=platform.processor() or platform.machine(),
        torch_version=torch.__version__,
        logit_error=error,
        step_ms=step_s * 1e3,
        products_ms=products_s * 1e3,
        ratio=step_s / products_s,
        ratio_p10=ratios[0],
        ratio_p90=ratios[-1],
    )


def step_table(result: StepResult) -> Table:
    table = Table("what", "median", title="decode step, 1 stream, speaking", title_justify="left")
    table.add_row("step", f"{result.step_ms:.2f} ms")
    table.add_row("bare matrix products", f"{result.products_ms:.2f} ms")
    table.add_row("ratio", f"{result.ratio:.3f}")
    table.caption = (
        f"{result.model}, {result.dtype}, {result.context_rows} rows of context, "
        f"{result.threads} threads, torch {result.torch_version}; verified against transformers: "
        f"logits within {result.logit_error:.1e} of their scale"
    )
    return table


def _speech_prompt(lm: LanguageModel, context: int) -> list[Row]:
    codes = [(31 * n) % lm.config.codes for n in range(context - 1)]
    ids = lm.ids
    return [*((ids.modality_pad, code) for code in codes), (ids.sosp, ids.audio_pad)]


def _verify(lm: LanguageModel, folder: Path, prompt: list[Row]) -> float:
    """Returns the error of the logits as a share of their scale. Raises `NotVerified` if too
    large."""
    try:
        from mosslive.bench.reference import ReferenceModel
    except ImportError as lacking:
        hint = f"the reference needs transformers: pip install 'mosslive[bench]' ({lacking})"
        raise MossliveError(hint) from None
    new = list(lm.generate(prompt, Sampling(greedy=True, max_new=_VERIFIED_ROWS, min_new=10**6)))
    rows = torch.tensor(prompt + new)
    dtype = lm.runner.decoder.dtype
    wanted = ReferenceModel(folder, dtype).logits(rows)[1]
    ours = lm.forward(rows)[1]
    scale = float(wanted.abs().max())
    error = float((ours - wanted).abs().max()) / scale
    if not torch.isfinite(ours).all() or len(set(new)) < 2:
        raise NotVerified("the output is constant or not finite")
    # bf16 has 8 bits: with random weights, rounding in every layer gives errors of some per cent.
    if error > (_CLOSE if dtype == torch.float32 else 0.05):
        raise NotVerified(f"logits differ from the reference by {error:.2e} of their scale")
    chosen = wanted[len(prompt) - 1 : -1, : lm.ids.eosp].argmax(1).tolist()
    if dtype == torch.float32 and chosen != [row[1] for row in new]:
        raise NotVerified(f"codes {[row[1] for row in new]} instead of {chosen}")
    return error


def _products(lm: LanguageModel) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Returns (weight, input) of every matrix product of a speech step: trunk, audio tail, head."""
    weights = lm.runner.decoder.weights
    audio = weights.tails["audio"]
    layers = [
        matrix.weight
        for layer in (*weights.trunk, *audio.layers)
        for matrix in (layer.qkv, layer.o, layer.gate_up, layer.down)
    ]
    return [(w, torch.randn(1, w.shape[1]).to(w.dtype)) for w in (*layers, audio.head.weight)]


def _products_pass(products: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for weight, x in products:
        F.linear(x, weight)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
