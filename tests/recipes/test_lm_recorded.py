"""Recorded training steps: few shapes, the same learning, and no failure ends a run."""

from collections import defaultdict

import numpy as np
import pytest
import torch
from torch import Tensor

from recipes.bundled import lm_batch
from recipes.bundled.budget import optimiser, set_rate, take_step
from recipes.bundled.lm_batch import IGNORED, Batch, Capacities
from recipes.bundled.lm_meant import Meanings
from recipes.bundled.lm_model import Computing, LmModel
from recipes.bundled.lm_recorded import RecordedSteps
from recipes.bundled.lm_rows import RowBuilder, Tasks, build_examples
from recipes.bundled.train_lm import losses
from tests.recipes.toy_lm import batches_of, fresh, fresh_meanings

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def test_batches_of_a_length_have_one_shape(
    builder: RowBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of one length have one shape, with space for almost all predictions."""
    monkeypatch.setattr(lm_batch, "_STEP_DRAWN", 8)
    made = build_examples(builder, Tasks(), 200, "train")
    batches = batches_of(builder, made, 1024)
    shapes = defaultdict(set)
    wanted = full = 0
    for _ in range(60):
        batch = batches.next(None)
        shapes[batch.text.shape].add(tuple(each.shape for each in batch.tensors()))
        for head in (batch.write, batch.speak):
            wanted += int((head.value != IGNORED).sum())
            full += int((head.value != IGNORED).all())  # something may have been left out
    assert all(len(found) == 1 for found in shapes.values())
    assert wanted > 1000
    assert full <= 2


def test_predictions_beyond_the_capacity_are_skipped(builder: RowBuilder) -> None:
    """Predictions without space are skipped, and nothing else changes."""
    made = build_examples(builder, Tasks(), 30, "train")
    batches, chosen = batches_of(builder, made, 1024), np.arange(6)
    whole, cut = batches.gather(chosen, None), batches._gather(chosen, (8, 8), None)
    assert torch.equal(whole.meant[:8], cut.meant)
    for one, other in ((whole.write, cut.write), (whole.speak, cut.speak)):
        assert torch.equal(one.place[:8], other.place)
        assert torch.equal(one.value[:8], other.value)


def test_capacity_grows_from_set_to_set(builder: RowBuilder) -> None:
    """A later set keeps the space of earlier ones, so that shapes stay the same."""
    made = build_examples(builder, Tasks(), 30, "train")
    plain: Capacities = {}
    ids, cpu = builder.ids, torch.device("cpu")
    codes = builder.spoken.on(cpu)
    lm_batch.Batches(made, codes, ids, cpu, 1024, 0, plain)
    width = min(plain)
    capacities: Capacities = {width: (9 * 1024, 0)}
    lm_batch.Batches(made, codes, ids, cpu, 1024, 0, capacities)
    assert capacities == plain | {width: (9 * 1024, plain[width][1])}


def test_steps_that_cannot_be_recorded_cost_only_speed(
    builder: RowBuilder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If recording fails, every step still runs once, and a line gives the reason."""

    def broken() -> None:
        raise RuntimeError("no graphs here")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", broken)
    batch = batches_of(builder, build_examples(builder, Tasks(), 8, "train"), 512).next(None)
    run: list[Batch] = []

    def step(given: Batch) -> Tensor:
        run.append(given)
        return torch.tensor(float(len(run)))

    settled: list[bool] = []
    steps = RecordedSteps(step, ready=lambda: bool(settled))
    assert [float(steps(batch)) for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    assert not capsys.readouterr().out  # nothing is tried before a step is what it will stay
    settled.append(True)
    assert [float(steps(batch)) for _ in range(6)] == [7, 8, 9, 10, 11, 12]
    assert capsys.readouterr().out.count("given up: RuntimeError: no graphs here") == 1
    assert steps.shapes == 0


@gpu
@pytest.mark.gpu
def test_recorded_steps_learn_the_same(builder: RowBuilder) -> None:
    """Replayed steps of two alternating shapes give the losses and weights of plain steps, with
    changing rates."""
    made = build_examples(builder, Tasks(), 80, "train")
    batches = batches_of(builder, made, 1024, "cuda")
    order = np.random.default_rng(0)
    some = [
        batches._gather(order.integers(80, size=6 + number % 2), (512, 512), None)
        for number in range(14)
    ]
    widest = max(batch.text.shape[1] for batch in some)
    some = [batch for batch in some if batch.text.shape[1] == widest]
    ends: list[list[Tensor]] = []
    for recorded in (False, True):
        model, meanings = fresh().to("cuda"), fresh_meanings().to("cuda")
        chosen = optimiser([(model, 1e-3), (meanings, 1e-3)], recorded=recorded)

        def learn(
            batch: Batch,
            model: LmModel = model,
            meanings: Meanings = meanings,
            chosen: torch.optim.Optimizer = chosen,
        ) -> Tensor:
            found = losses(model, meanings, batch)
            take_step(chosen, sum(found, torch.zeros((), device="cuda")))
            return torch.stack(found).detach()

        run = RecordedSteps(learn)
        losses_seen = []
        for number, batch in enumerate(some * 3):
            set_rate(chosen, 1 / (1 + number))
            losses_seen.append((run if recorded else learn)(batch))
        assert run.shapes == (2 if recorded else 0)
        ends.append([*losses_seen, *(p.detach() for p in model.parameters())])
    for plain, replayed in zip(*ends, strict=True):
        torch.testing.assert_close(replayed, plain, atol=1e-4, rtol=1e-4)  # sums in any order


@gpu
@pytest.mark.gpu
def test_recorded_dropout_is_sampled_anew(builder: RowBuilder) -> None:
    """Every replay samples new dropout."""
    made = build_examples(builder, Tasks(), 8, "train")
    batch = batches_of(builder, made, 512, "cuda").gather(np.arange(6), None)
    model, meanings = fresh().to("cuda"), fresh_meanings().to("cuda")

    @torch.no_grad()
    def step(given: Batch) -> Tensor:
        return torch.stack(losses(model, meanings, given, Computing(dropout=0.3)))

    steps = RecordedSteps(step)
    found = [steps(batch) for _ in range(6)]
    assert steps.shapes == 1
    assert not torch.equal(found[-1], found[-2])
