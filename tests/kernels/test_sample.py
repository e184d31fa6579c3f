"""Sampling steps against Hugging Face's own warpers, and the rules for ties and bad logits."""

import pytest
import torch
from torch import Tensor
from transformers import (
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from mosslive.kernels import NonFiniteLogits, check_logits, greedy, penalise, sample_token

INF = float("inf")


def logits_of(seed: int, size: int = 300) -> Tensor:
    return 4 * torch.randn(size, generator=torch.Generator().manual_seed(seed))


def test_greedy_takes_the_lowest_index_on_ties() -> None:
    """14 % of audio steps in bf16 have ties, so the rule decides what is said."""
    assert greedy(torch.tensor([1.0, 5.0, 5.0, 5.0, 2.0])) == 1
    assert greedy(torch.full((100_003,), -3.0)) == 0
    many = torch.zeros(151_680)
    many[[140_000, 77_001, 77_000]] = 2.0
    assert greedy(many) == 77_000


def test_penalty_equals_hugging_face() -> None:
    """score / p if score >= 0, else score · p, once for each id of the history."""
    logits = logits_of(1)
    history = torch.tensor([[3, 3, 3, 8, 299, 0]])
    seen = torch.zeros(300, dtype=torch.bool)
    seen[history[0]] = True
    wanted = RepetitionPenaltyLogitsProcessor(1.3)(history, logits[None].clone())[0]
    assert torch.equal(penalise(logits, seen, 1.3), wanted)
    masked = torch.tensor([-INF, 0.0])
    assert torch.equal(penalise(masked, torch.tensor([True, True]), 1.3), masked)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(0.6, 20, 0.95), (0.7, 20, 0.95), (1.0, 0, 1.0), (1.4, 5, 1.0), (0.9, 0, 0.5), (1.0, 1, 0.1)],
)
def test_the_distribution_is_hugging_faces(
    seed: int, temperature: float, top_k: int, top_p: float
) -> None:
    """Sweeping the random number over [0, 1) recovers the probabilities of HF's warpers."""
    logits = logits_of(seed, 60)
    scores = TemperatureLogitsWarper(temperature)(None, logits[None])
    if top_k:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1:
        scores = TopPLogitsWarper(top_p)(None, scores)
    wanted = scores[0].softmax(0)
    steps = 2000
    counts = torch.zeros(60)
    for n in range(steps):
        counts[sample_token(logits, temperature, top_k, top_p, (n + 0.5) / steps)] += 1
    assert torch.all((counts / steps - wanted).abs() <= 1.5 / steps)


def test_top_k_keeps_ties_with_the_last() -> None:
    """Hugging Face drops only what is below the k-th value."""
    logits = torch.tensor([3.0, 1.0, 1.0, 1.0, 0.0])
    sampled = {sample_token(logits, 1.0, 2, 1.0, u / 100) for u in range(100)}
    assert sampled == {0, 1, 2, 3}


def test_masked_ids_are_never_sampled() -> None:
    """-inf has probability zero at every random number, the largest included."""
    logits = torch.tensor([-INF, 0.0, -INF, 0.0, -INF])
    sampled = {sample_token(logits, 1.0, 0, 1.0, u) for u in (0.0, 0.3, 0.5, 0.99, 1 - 2.0**-24)}
    assert sampled == {1, 3}


@pytest.mark.parametrize("bad", [float("nan"), INF])
def test_bad_logits_are_an_error(bad: float) -> None:
    """Non-finite logits raise an error instead of giving noise."""
    with pytest.raises(NonFiniteLogits, match="largest logit"):
        check_logits(torch.tensor([0.0, bad, 1.0]))
    with pytest.raises(NonFiniteLogits):
        check_logits(torch.full((4,), -INF))


def test_the_extreme_settings_still_sample_correctly() -> None:
    """Logits reach 114 in the published model: the smallest temperature must not overflow."""
    logits = torch.tensor([1.0, 114.0, 3.0, -114.0])
    assert sample_token(logits, 0.01, 0, 1.0, 0.3) == 1
    strong = penalise(logits, torch.ones(4, dtype=torch.bool), 0.01)
    assert sample_token(strong, 0.01, 0, 1.0, 0.3) == 1
