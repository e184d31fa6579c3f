"""The codebook during training: nearest neighbours, running averages, unused codes re-seeded.

Training only; the package's encoder has the lookup. Knows no speech. Invariant: no step reads a
value back from the device.
"""

import torch
from torch import Tensor, nn

from mosslive.kernels.arithmetic import arithmetic

_DECAY = 0.99
_DEAD = 0.02  # mean uses per step below which a code is given a new place
_TINY = 1e-5


class Quantiser(nn.Module):
    codebook: Tensor
    uses: Tensor
    sums: Tensor

    def __init__(self, codes: int, width: int) -> None:
        super().__init__()
        self.register_buffer("codebook", torch.zeros(codes, width))
        self.register_buffer("uses", torch.ones(codes))
        self.register_buffer("sums", torch.zeros(codes, width))

    @torch.no_grad()
    def start(self, states: Tensor, generator: torch.Generator, rounds: int = 12) -> None:
        """k-means over states [n, width]; n may be smaller than the number of codes."""
        codes = self.codebook.shape[0]
        pick = torch.randint(len(states), (codes,), generator=generator, device=states.device)
        spread = states.std() * 0.01
        noise = torch.randn(self.codebook.shape, generator=generator, device=states.device)
        self.codebook.copy_(states[pick] + spread * noise)
        for _ in range(rounds):
            found = self.nearest(states)
            uses, sums = self._gathered(found, states)
            moved = sums / uses.clamp(min=1)[:, None]
            again = torch.randint(len(states), (codes,), generator=generator, device=states.device)
            self.codebook.copy_(torch.where((uses > 0)[:, None], moved, states[again]))
        self.uses.fill_(1)
        self.sums.copy_(self.codebook)

    @torch.no_grad()
    def go_on(self) -> None:
        """Restores the sums after the codebook and its uses were loaded."""
        self.sums.copy_(self.codebook * self.uses[:, None])

    @arithmetic("fp32")
    def nearest(self, states: Tensor) -> Tensor:
        """[..., width] → [...] int64, like the package's encoder. Always in full precision, because
        half precision decides near ties by rounding."""
        with torch.autocast(states.device.type, enabled=False):
            half_norms = self.codebook.square().sum(1) / 2
            return (states.float() @ self.codebook.T - half_norms).argmax(-1)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """states [B, W, width] float32 → quantised states with the gradient of the states; codes
        [B, W]; distance of the states from their codes."""
        codes = self.nearest(states.detach())
        placed = self.codebook[codes]
        distance = (states - placed).square().mean()
        return states + (placed - states).detach(), codes, distance

    @torch.no_grad()
    def learn(self, states: Tensor, codes: Tensor) -> None:
        """Updates the running averages."""
        uses, sums = self._gathered(codes.flatten(), states.flatten(0, -2).float())
        self.uses.lerp_(uses, 1 - _DECAY)
        self.sums.lerp_(sums, 1 - _DECAY)
        self.codebook.copy_(self.sums / (self.uses + _TINY)[:, None])

    @torch.no_grad()
    def revive(self, states: Tensor, generator: torch.Generator) -> Tensor:
        """Moves unused codes to random states [n, width]. Returns their number, on the device."""
        dead = self.uses < _DEAD
        pick = torch.randint(len(states), dead.shape, generator=generator, device=states.device)
        self.codebook.copy_(torch.where(dead[:, None], states[pick].float(), self.codebook))
        self.uses.copy_(torch.where(dead, 0.1, self.uses))
        self.sums.copy_(torch.where(dead[:, None], 0.1 * self.codebook, self.sums))
        return dead.sum()

    def perplexity(self) -> Tensor:
        share = self.uses / self.uses.sum()
        return torch.exp(-(share * (share + 1e-9).log()).sum())

    def _gathered(self, codes: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        uses = torch.zeros_like(self.uses).index_add_(0, codes, torch.ones_like(codes).float())
        sums = torch.zeros_like(self.sums).index_add_(0, codes, states)
        return uses, sums
