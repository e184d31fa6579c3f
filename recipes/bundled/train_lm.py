"""Trains the language model: a loss per head, and a loss of the trunk for the letters of a reply.

Knows batches and the model. Invariants: the loop reads nothing back from the device except the
lines of the curves and an occasional test on held-out examples; the result is a running average of
the weights, which is also what is tested.
"""

import copy
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from recipes.bundled.budget import Budget, Curves, optimiser, set_rate, take_step
from recipes.bundled.lm_batch import IGNORED, Batch, Batches, Mishearing, Wanted
from recipes.bundled.lm_compile import CompiledLayers
from recipes.bundled.lm_meant import Meanings, meant_loss
from recipes.bundled.lm_model import Computing, LmModel, run_plain
from recipes.bundled.lm_recorded import RecordedSteps


@dataclass(frozen=True)
class LmTraining:
    rate: float = 2e-3
    rows: int = 32_768  # of a batch, padding included
    examples: int = 40_000  # of a set; sets follow each other
    typed: int = 10_000  # dialogues of a set that are only written: many more words
    makers: int = 6  # processes that make sets
    held_out: int = 2048
    test_every: int = 5000
    decay: float = 0.3
    meant_weight: float = 0.5  # weight of the loss of letters
    dropout: float = 0.1  # until the end: without it, unseen sums and words get worse at once
    seed: int = 3
    part: tuple[int, int] = (1, 1)  # of a training in several runs: which one, and of how many
    noise: Mishearing = field(default_factory=Mishearing)

    def __post_init__(self) -> None:
        if not 1 <= self.part[0] <= self.part[1]:
            raise ValueError(f"part {self.part[0]} of {self.part[1]}; allowed: 1 to {self.part[1]}")

    @property
    def span(self) -> tuple[float, float]:
        number, count = self.part
        return (number - 1) / count, number / count


class Source(Protocol):
    """Endless batches: `Batches` of one set, or a `Feed` of many."""

    device: torch.device

    def next(self, noise: Mishearing | None) -> Batch: ...


class Average:
    """The mean of the weights over the last tenth of the steps so far, at most `_MOST` of them."""

    _EVERY, _MOST = 4, 2000

    def __init__(self, model: LmModel) -> None:
        self.model = copy.deepcopy(model).requires_grad_(False)
        self._mine: list[Tensor] = list(self.model.parameters())
        self._theirs: list[Tensor] = list(model.parameters())
        self._count = 0

    @torch.no_grad()
    def follow(self, step: int) -> None:
        if step % self._EVERY == 0:
            weight = max(self._EVERY / self._MOST, 10 / (self._count + 10))
            torch._foreach_lerp_(self._mine, self._theirs, weight)
            self._count += 1


class Losses(NamedTuple):
    """Means over predictions: of the text head, of the audio head, and of letters predicted from
    the trunk, along spoken and written replies. So the trunk holds what determines the letters,
    such as the result of a sum, where the audio tail can use it."""

    text: Tensor
    audio: Tensor
    meant: Tensor


def losses(
    model: LmModel, meanings: Meanings, batch: Batch, how: Computing | None = None
) -> Losses:
    states = model(batch.text, batch.audio, how)
    said, written = (
        states.trunk.flatten(0, 1).index_select(0, wanted.place)
        for wanted in (batch.speak, batch.write)
    )
    meant = meant_loss(meanings(said), batch.meant, IGNORED)
    return Losses(
        _loss(states.text, model.text_lm_head.weight, batch.write),
        _loss(states.audio, model.audio_lm_head.weight, batch.speak),
        meant + meant_loss(meanings(written, ahead=1), batch.write.value[:, None], IGNORED),
    )


def _loss(states: Tensor, head: Tensor, wanted: Wanted) -> Tensor:
    logits = _logits(states, head, wanted).float()
    total = F.cross_entropy(logits, wanted.value, ignore_index=IGNORED, reduction="sum")
    return total / (wanted.value != IGNORED).sum().clamp(min=1)


def _logits(states: Tensor, head: Tensor, wanted: Wanted) -> Tensor:
    """Computes logits only of rows that count: in a batch with speech about one in four."""
    chosen = states.flatten(0, 1).index_select(0, wanted.place)
    return F.linear(chosen, head.to(chosen.dtype))


def train_lm(
    model: LmModel,
    batches: Source,
    held_out: Batches | None,
    budget: Budget,
    how: LmTraining,
    curves: Path,
    layers: CompiledLayers | None = None,
    keep: Callable[[LmModel], object] | None = None,
) -> dict[str, float]:
    """Calls `keep` with the average after every test, so that a killed run leaves a result."""
    cuda = batches.device.type == "cuda"
    # Trained from zero in every run: a linear map needs only some hundred steps.
    meanings = Meanings(model.config).to(batches.device)
    parts = [(model, how.rate), (meanings, how.rate)]
    chosen = optimiser(parts, decay=how.decay, recorded=cuda)
    dtype = torch.bfloat16 if cuda else torch.float32
    computing = Computing(dtype, layers or run_plain, how.dropout)

    def learn(batch: Batch) -> Tensor:
        found = losses(model, meanings, batch, computing)
        take_step(chosen, found.text + found.audio + how.meant_weight * found.meant)
        return torch.stack(found).detach()

    recorded = None
    if cuda and layers is not None:
        recorded = RecordedSteps(learn, ready=lambda: layers.settled)
    log = Curves(curves, "lm", budget, every=200)
    average = Average(model)
    step = 0

    def test() -> None:
        if held_out is not None:
            log.note(step, **examined(average.model, held_out))
        if keep is not None:
            keep(average.model)

    while budget.progress(step) < 1:
        set_rate(chosen, budget.rate(step))
        batch = batches.next(how.noise)
        try:
            found = (recorded or learn)(batch)
        except Exception as error:
            # Compiled code that fails on a batch is given up; any other error ends training.
            if layers is None or not layers.give_up(error):
                raise
            if recorded is not None:
                recorded.forget()
            found = learn(batch)
        average.follow(step)
        log.add(step, dict(zip(Losses._fields, found.unbind(), strict=True)))
        step += 1
        if step % how.test_every == 0:
            test()
    log.flush(step)
    test()
    model.load_state_dict(average.model.state_dict())
    return log.last


@torch.no_grad()
def examined(model: LmModel, batches: Batches) -> dict[str, float]:
    """Returns, overall, by task and by held-out kind, the share of examples in which every
    prediction is right given the right past (for a greedy reply the same as being right), and the
    loss of a prediction. Where other codes can say the same, only the loss is meaningful; answers
    with several starts are exact only if the start is predicted too."""
    examples = batches.examples
    order, found = [], []
    for chosen, batch in batches.all():
        states = model(batch.text, batch.audio)
        wrong = torch.zeros(3, len(chosen), device=batches.device)  # predictions, loss, how many
        heads = (model.text_lm_head.weight, model.audio_lm_head.weight)
        tails = zip((states.text, states.audio), heads, (batch.write, batch.speak), strict=True)
        for each, head, wanted in tails:
            logits, counts = _logits(each, head, wanted), wanted.value != IGNORED
            missed = (logits.argmax(-1) != wanted.value) & counts
            lost = F.cross_entropy(logits, wanted.value, ignore_index=IGNORED, reduction="none")
            example = wanted.place // batch.text.shape[1]
            wrong.index_add_(1, example, torch.stack((missed.float(), lost, counts.float())))
        order.append(chosen)
        found.append(wrong)
    table = np.zeros((3, len(examples)))
    table[:, np.concatenate(order)] = torch.cat(found, 1).cpu().numpy()
    by: dict[str, list[int]] = defaultdict(list)
    for number, (name, group) in enumerate(zip(examples.names, examples.groups, strict=True)):
        by[""].append(number)
        by[f" {name}"].append(number)
        if group:  # spoken and typed questions are held out in different ways
            by[f" {name.split('_')[0]} {group}"].append(number)
    exact, loss = {}, {}
    for name, numbers in sorted(by.items()):
        missed_of, lost_of, count_of = table[:, numbers]
        exact[f"exact{name}"] = float(np.mean(missed_of == 0))
        loss[f"loss{name}"] = float(lost_of.sum() / count_of.sum())
    return exact | loss
