"""Rows of the reference: transformers eager, and compiled with graphs, beside ours.

Each form computes the very step that ours does, is held to the same limit, and is then timed.
"""

from collections.abc import Iterator

import torch

from mosslive.bench.lm.bound_reference import BoundModel, EagerReference, Wiring
from mosslive.bench.lm.check import Check, Expected, judged
from mosslive.bench.lm.compiled_reference import CompiledReference
from mosslive.bench.lm.prefix_batch import Forest
from mosslive.bench.lm.weights import precision_of
from mosslive.bench.report import BenchRow
from mosslive.bench.timing import summary, times_ms

EAGER = "transformers eager"
COMPILED = "transformers compiled + graph"


def step_baselines(
    wiring: Wiring, forest: Forest, expected: Expected, compiled: bool, repeats: int
) -> Iterator[tuple[BenchRow, list[Check]]]:
    """`forest`: of one stream. Both tails and heads on every row, as the published code runs."""
    device, precision = wiring.device, precision_of(wiring.weights)
    length = forest.lengths[0]
    rows = torch.tensor([*forest.trunks[0][:length], forest.leaves[0]], device=device)
    eager = EagerReference(BoundModel(wiring))
    eager.forward(rows[:-1])
    kept = [(keys.clone(), values.clone()) for keys, values in eager.kept()]
    what = "decode step, both tails"

    def timed(form: str, work: object) -> BenchRow:
        times = summary(times_ms(work, device.type, repeats))  # type: ignore[arg-type]
        return BenchRow(what, form, precision, 1, length + 1, times)

    checks = judged(f"{what}, {EAGER}", precision, eager.forward(rows[-1:]), expected)
    yield timed(EAGER, lambda: eager.forward(rows[-1:])), checks
    if not compiled:
        return
    recorded = CompiledReference(wiring, len(rows) + 64)
    recorded.take(kept)
    position = torch.tensor([length], device=device)
    logits = recorded.step(rows[-1:], position)
    checks = judged(f"{what}, {COMPILED}", precision, logits, expected)
    yield timed(COMPILED, lambda: recorded.step(rows[-1:], position)), checks


def prefill_baseline(
    wiring: Wiring, forest: Forest, wanted: torch.Tensor, expected: Expected, repeats: int
) -> tuple[BenchRow, list[Check]]:
    """`forest`: one trunk and no leaves; `wanted`: indices of the rows `expected` tells of."""
    device, precision = wiring.device, precision_of(wiring.weights)
    rows, model = forest.rows.to(device), BoundModel(wiring)
    what = "prefill, both tails, heads on all rows"
    logits = EagerReference(model).forward(rows)
    chosen = {channel: found[wanted.to(device)] for channel, found in logits.items()}
    checks = judged(f"{what}, {EAGER}", precision, chosen, expected)
    del logits
    times = summary(times_ms(lambda: EagerReference(model).forward(rows), device.type, repeats))
    return BenchRow(what, EAGER, precision, 1, len(rows), times), checks
