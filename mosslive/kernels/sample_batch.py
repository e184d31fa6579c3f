"""Samples one id for every row of a batch, each with its own settings: a decode step's sampler.

`sample` handles one row with settings on the host. Here the settings lie next to the logits, so a
GPU continues with the next step without asking the host. Random numbers are `philox`'s, addressed
by (seed, step, channel). Knows nothing of modes or requests. Invariant: a row's id depends on its
own logits and settings alone.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mosslive.kernels.philox import uniform
from mosslive.kernels.sample import NonFiniteLogits, check_logits, greedy, penalise, sample_token

_SEEDS = 2**64


@dataclass(frozen=True)
class SamplingBatch:
    """The sampling settings of each row; every tensor is [B] unless said otherwise."""

    legal: Tensor  # int32, ids below it may be sampled, 1 .. V
    greedy: Tensor  # bool; a greedy row ignores temperature, top_k, top_p, seed and step
    temperature: Tensor  # float32
    top_k: Tensor  # int32, 0: off
    top_p: Tensor  # float32, 1: off
    penalty: Tensor  # float32, 1: off
    seen: Tensor | None  # bool [L, V], ids of histories; only read where penalty is not 1
    seed: Tensor  # int64, the bits of an unsigned 64-bit number
    step: Tensor  # int64
    channel: int  # 0 text, 1 audio
    seen_rows: Tensor | None = None  # int64, each row's row of `seen`; None: L is B, in order


def sample_batch(logits: Tensor, batch: SamplingBatch) -> Tensor:
    """logits [B, V], float32 or the model's dtype → ids int64 [B].

    -1 where no id can be sampled: a legal logit is NaN, or the largest is not finite.
    """
    ids = [_sample_row(logits[row], batch, row) for row in range(len(logits))]
    return torch.tensor(ids, dtype=torch.int64, device=logits.device)


def _sample_row(logits: Tensor, batch: SamplingBatch, row: int) -> int:
    legal = int(batch.legal[row])
    own = logits[:legal].float()
    try:
        check_logits(own)
    except NonFiniteLogits:
        return -1
    penalty = float(batch.penalty[row])
    if penalty != 1:
        assert batch.seen is not None, "a repetition penalty needs `seen`"
        seen_row = row if batch.seen_rows is None else int(batch.seen_rows[row])
        own = penalise(own, batch.seen[seen_row, :legal], penalty)
    if batch.greedy[row]:
        return greedy(own)
    number = uniform(int(batch.seed[row]) % _SEEDS, int(batch.step[row]), batch.channel)
    temperature, top_p = float(batch.temperature[row]), float(batch.top_p[row])
    return sample_token(own, temperature, int(batch.top_k[row]), top_p, number)
