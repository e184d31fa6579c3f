"""Times transformers as a baseline: eager, and compiled with CUDA graphs.

Each form computes the same step as the runtime, is verified with the same limits, and is then
timed.
"""

from collections.abc import Iterator

import torch

from mosslive.bench.lm.bound_reference import BoundModel, EagerReference, Wiring
from mosslive.bench.lm.check import Check, Expected, verify_logits
from mosslive.bench.lm.compiled_reference import CompiledReference
from mosslive.bench.lm.prefix_batch import PrefixBatch
from mosslive.bench.lm.weights import precision_of
from mosslive.bench.report import BenchRow
from mosslive.bench.timing import summary, times_ms

EAGER = "transformers eager"
COMPILED = "transformers compiled + graph"


def step_baselines(
    wiring: Wiring, batch: PrefixBatch, expected: Expected, compiled: bool, repeats: int
) -> Iterator[tuple[BenchRow, list[Check]]]:
    """`batch` has one stream. Runs both tails and heads on every row, like the published code."""
    device, precision = wiring.device, precision_of(wiring.weights)
    length = batch.lengths[0]
    rows = torch.tensor([*batch.prefixes[0][:length], batch.last_rows[0]], device=device)
    eager = EagerReference(BoundModel(wiring))
    eager.forward(rows[:-1])
    kept = [(keys.clone(), values.clone()) for keys, values in eager.kept()]
    what = "decode step, both tails"

    def timed(form: str, work: object) -> BenchRow:
        times = summary(times_ms(work, device.type, repeats))  # type: ignore[arg-type]
        return BenchRow(what, form, precision, 1, length + 1, times)

    checks = verify_logits(f"{what}, {EAGER}", precision, eager.forward(rows[-1:]), expected)
    yield timed(EAGER, lambda: eager.forward(rows[-1:])), checks
    if not compiled:
        return
    recorded = CompiledReference(wiring, len(rows) + 64)
    recorded.take(kept)
    position = torch.tensor([length], device=device)
    logits = recorded.step(rows[-1:], position)
    checks = verify_logits(f"{what}, {COMPILED}", precision, logits, expected)
    yield timed(COMPILED, lambda: recorded.step(rows[-1:], position)), checks


def prefill_baseline(
    wiring: Wiring, batch: PrefixBatch, wanted: torch.Tensor, expected: Expected, repeats: int
) -> tuple[BenchRow, list[Check]]:
    """`batch` has one prefix and no last rows. `wanted` are the indices of the rows in
    `expected`."""
    device, precision = wiring.device, precision_of(wiring.weights)
    rows, model = batch.rows.to(device), BoundModel(wiring)
    what = "prefill, both tails, heads on all rows"
    logits = EagerReference(model).forward(rows)
    chosen = {channel: found[wanted.to(device)] for channel, found in logits.items()}
    checks = verify_logits(f"{what}, {EAGER}", precision, chosen, expected)
    del logits
    times = summary(times_ms(lambda: EagerReference(model).forward(rows), device.type, repeats))
    return BenchRow(what, EAGER, precision, 1, len(rows), times), checks
