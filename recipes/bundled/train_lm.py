"""Training the language model on rows: one loss for each head, where the mode machine reads it.

Knows batches and the model. Invariant: inside the loop nothing is read back from the device but the
lines of the curves and, now and then, a test on held-out examples.
"""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from recipes.bundled.budget import Budget, Curves, optimiser, set_rate, take_step
from recipes.bundled.lm_batch import IGNORED, Batch, Batches, Mishearing
from recipes.bundled.lm_model import LmModel


@dataclass(frozen=True)
class LmTraining:
    rate: float = 2e-3
    rows: int = 32_768  # of a batch, padding included
    examples: int = 120_000
    typed: int = 40_000  # dialogues that are only written: what is asked, in many more words
    held_out: int = 512
    test_every: int = 500
    decay: float = 0.05
    seed: int = 3
    noise: Mishearing = field(default_factory=Mishearing)


def losses(model: LmModel, batch: Batch) -> tuple[Tensor, Tensor]:
    """Mean over the predictions of the text head, and of the audio head."""
    written, spoken = model(batch.text, batch.audio)
    return (
        _loss(written, model.text_lm_head.weight, batch.write),
        _loss(spoken, model.audio_lm_head.weight, batch.speak),
    )


def _loss(states: Tensor, head: Tensor, wanted: Tensor) -> Tensor:
    logits = F.linear(states, head).float().flatten(0, 1)
    total = F.cross_entropy(logits, wanted.flatten(), ignore_index=IGNORED, reduction="sum")
    return total / (wanted != IGNORED).sum().clamp(min=1)


def train_lm(
    model: LmModel,
    batches: Batches,
    held_out: Batches | None,
    budget: Budget,
    how: LmTraining,
    curves: Path,
) -> dict[str, float]:
    chosen = optimiser([(model, how.rate)], decay=how.decay)
    log = Curves(curves, "lm", budget)
    device = batches.device
    step = 0
    while budget.progress(step) < 1:
        set_rate(chosen, budget.rate(step))
        batch = batches.next(how.noise)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            text, audio = losses(model, batch)
        take_step(chosen, text + audio)
        log.add(step, {"text": text, "audio": audio})
        step += 1
        if held_out is not None and step % how.test_every == 0:
            log.note(step, exact=exact_share(model, held_out))
    log.flush(step)
    if held_out is not None:
        log.note(step, exact=exact_share(model, held_out))
    return log.last


@torch.no_grad()
def exact_share(model: LmModel, batches: Batches) -> float:
    """Share of examples in which every prediction is right, each given the right past. Of a greedy
    reply that is the same as being right altogether."""
    right = total = 0
    for batch in batches.all():
        device = batches.device
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            found = model.logits(batch.text, batch.audio)
        wrong = torch.zeros(len(batch.text), dtype=torch.bool, device=device)
        for logits, wanted in zip(found, (batch.write, batch.speak), strict=True):
            missed = (logits.argmax(-1) != wanted) & (wanted != IGNORED)
            wrong |= missed.any(1)
        right += int((~wrong).sum())
        total += len(wrong)
    return right / max(1, total)
