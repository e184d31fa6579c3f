"""One id for every row of a batch, each by its own settings: the sampler of a decode step.

What `sample` does to one row with values the host knows, for many rows with values that lie beside
the logits, so that a GPU can go on to the next step without asking the host. Knows nothing of modes
or requests. Invariant: a row's id depends on its own logits and settings alone.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mosslive.kernels.philox import uniform
from mosslive.kernels.sample import NonFiniteLogits, check_logits, draw, greedy, penalise

_SEEDS = 2**64


@dataclass(frozen=True)
class Draws:
    """How each row of a batch draws; every tensor is [B] unless said otherwise."""

    legal: Tensor  # int32, ids below it may be drawn, 1 .. V
    greedy: Tensor  # bool; a greedy row ignores temperature, top_k, top_p, seed and step
    temperature: Tensor  # float32
    top_k: Tensor  # int32, 0: off
    top_p: Tensor  # float32, 1: off
    penalty: Tensor  # float32, 1: off
    seen: Tensor | None  # bool [L, V], ids of histories; only looked at where penalty is not 1
    seed: Tensor  # int64, the bits of an unsigned 64-bit number
    step: Tensor  # int64
    channel: int  # 0 text, 1 audio
    lines: Tensor | None = None  # int64, which line of `seen` is each row's; None: L is B, in order


def choose(logits: Tensor, draws: Draws) -> Tensor:
    """logits [B, V], float32 or the model's dtype → ids int64 [B].

    -1 where no id can be drawn honestly: a legal logit is NaN, or the largest is not finite.
    """
    ids = [_choose_row(logits[row], draws, row) for row in range(len(logits))]
    return torch.tensor(ids, dtype=torch.int64, device=logits.device)


def _choose_row(logits: Tensor, draws: Draws, row: int) -> int:
    legal = int(draws.legal[row])
    own = logits[:legal].float()
    try:
        check_logits(own)
    except NonFiniteLogits:
        return -1
    penalty = float(draws.penalty[row])
    if penalty != 1:
        assert draws.seen is not None, "a penalty needs to know the history"
        line = row if draws.lines is None else int(draws.lines[row])
        own = penalise(own, draws.seen[line, :legal], penalty)
    if draws.greedy[row]:
        return greedy(own)
    number = uniform(int(draws.seed[row]) % _SEEDS, int(draws.step[row]), draws.channel)
    temperature, top_p = float(draws.temperature[row]), float(draws.top_p[row])
    return draw(own, temperature, int(draws.top_k[row]), top_p, number)
