"""From noise to mel: the fixed noise, the time grid, and Euler steps with guidance.

Knows of the estimator only that it returns a velocity; the caller passes the past of its layers.
Invariant: noise and grid are those of the reference, bit for bit where PyTorch's CPU generator is,
so that equal codes give equal mel everywhere.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from mosslive.codec.estimator import Estimator
from mosslive.codec.flow_past import Past

NOISE_FRAMES = 15000  # 300 s, prompt included; the row length decides every value after row 0
_NOISE_SEED = 0


@dataclass(frozen=True)
class FlowSettings:
    """How the flow is run; the defaults are the published ones."""

    steps: int = 10
    guidance: float = 0.7
    code_limit: int = 16384  # further rows of the table are not codes; they decode to noise

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps is {self.steps}; allowed: 1 or more")
        if not 0 <= self.guidance < float("inf"):
            raise ValueError(f"guidance is {self.guidance}; allowed: finite, 0 or more")
        if self.code_limit < 1:
            raise ValueError(f"code_limit is {self.code_limit}; allowed: 1 or more")

    @property
    def halves(self) -> int:
        """Runs of the estimator per stream: with the condition, and for guidance also without."""
        return 2 if self.guidance else 1

    @cached_property
    def grid(self) -> list[float]:
        return time_grid(self.steps)


PUBLISHED = FlowSettings()


@dataclass(frozen=True, eq=False)
class Condition:
    """What the frames of B streams depend on."""

    mu: Tensor  # [B, bands, T]
    speaker: Tensor  # [B, bands]
    known: Tensor  # [B, bands, T]: the prompt's mel where there is one, else 0


def fixed_noise(bands: int) -> Tensor:
    """[bands, NOISE_FRAMES] on the CPU; the column is the frame counted from the prompt's start."""
    generator = torch.Generator("cpu").manual_seed(_NOISE_SEED)
    return torch.randn(1, bands, NOISE_FRAMES, generator=generator, device="cpu")[0]


def time_grid(steps: int) -> list[float]:
    """1 - cos(π/2 · k/steps) for k = 0..steps, rounded as float32 rounds it: near 0 the difference
    loses digits, and the reference lost them too."""
    even = torch.linspace(0, 1, steps + 1, dtype=torch.float32, device="cpu")
    grid: list[float] = (1 - torch.cos(even * 0.5 * torch.pi)).tolist()
    return grid


def solve(
    estimator: Estimator, noise: Tensor, condition: Condition, past: Past, settings: FlowSettings
) -> Tensor:
    """noise [B, bands, T] → mel [B, bands, T]. The past gets 2B rows: first the conditional half,
    then the unconditional one (B rows without guidance). The layers of one Euler step call it
    after those of the step before."""
    count, bands, frames = noise.shape
    rows = noise.new_zeros(settings.halves * count, estimator.dims.inputs, frames)
    speaker = condition.speaker[:, :, None].expand(-1, -1, frames)
    rows[:count, bands:] = torch.cat((condition.mu, speaker, condition.known), 1)
    x = noise
    for now, then in pairwise(settings.grid):
        rows.view(settings.halves, count, -1, frames)[:, :, :bands] = x
        t = torch.full((1,), now, dtype=x.dtype, device=x.device)
        velocity = estimator(rows, t, past)
        if settings.guidance:
            conditional, free = velocity.chunk(2)
            velocity = (1 + settings.guidance) * conditional - settings.guidance * free
        x = x + (then - now) * velocity
    return x
