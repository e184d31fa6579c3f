"""Samples one id from one row of logits: penalty, temperature, top-k, top-p, in this order.

The order and the handling of ties are part of the model's contract. The caller applies masks first:
a masked id is cut off, or is -inf here. `sample_batch` does the same for a batch.
"""

import math

import torch
from torch import Tensor

from mosslive.errors import NotFinite


class NonFiniteLogits(NotFinite):
    """The model gave NaN or +inf, or masked everything: no id can be sampled."""


def greedy(logits: Tensor) -> int:
    """Arg-max; the lowest index on ties, as `torch.argmax` documents. Ties are common: bf16 logits
    have some on about one step in seven."""
    return int(logits.argmax())


def penalise(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """`seen` bool [V]: ids of the channel's history, each penalised once."""
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def sample_token(
    logits: Tensor, temperature: float, top_k: int, top_p: float, uniform: float
) -> int:
    """One id by inverse transform of `uniform` in [0, 1) over the ids kept, most likely first.

    logits float32 [V]. Top-k keeps ties with the k-th value; top-p keeps the smallest set of most
    likely ids whose probability reaches top_p, as Hugging Face's warpers do. Equal values rank by
    lowest index. Probabilities are float64, so that their order of summing does not matter.
    """
    scaled = logits / temperature
    if 0 < top_k < scaled.numel():
        kept = (scaled >= scaled.topk(top_k).values[-1]).nonzero()[:, 0]
    else:
        kept = torch.arange(scaled.numel(), device=scaled.device)
    values, order = scaled[kept].sort(descending=True, stable=True)
    ids = kept[order]
    probabilities = values.double().softmax(0)
    if top_p < 1:
        before = probabilities.cumsum(0) - probabilities
        count = max(1, int((before < top_p).sum()))
        probabilities = probabilities[:count]
    sums = probabilities.cumsum(0)
    # The smallest index whose sum exceeds the target; the last positive one if rounding ran out.
    index = int((sums <= uniform * sums[-1]).sum())
    return int(ids[min(index, int((probabilities > 0).sum()) - 1)])


def check_logits(logits: Tensor) -> None:
    """Raises `NonFiniteLogits` unless the largest value is a finite number."""
    largest = float(logits.max())  # NaN anywhere makes it NaN
    if not math.isfinite(largest):
        raise NonFiniteLogits(
            f"the largest logit is {largest}; a finite one is needed. Check weights and dtype"
        )
