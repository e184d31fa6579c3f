"""Discriminators of waveforms for training the vocoder: by periods, and by spectra at 3
resolutions.

Narrow versions of the usual two families, discarded after training. Know no mels and no speech.
Invariant: a discriminator returns its score and the output of every layer before it.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

Opinion = tuple[Tensor, list[Tensor]]  # verdict, what the layers saw

_PERIODS = (2, 3, 5, 7, 11)
_RESOLUTIONS = ((512, 128), (1024, 256), (2048, 512))


class _ByPeriod(nn.Module):
    def __init__(self, period: int, width: int) -> None:
        super().__init__()
        self.period = period
        sizes = (1, width, 2 * width, 4 * width, 8 * width)
        self.convs = nn.ModuleList(
            weight_norm(nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0))) for a, b in pairwise(sizes)
        )
        self.last = weight_norm(nn.Conv2d(sizes[-1], 1, (3, 1), padding=(1, 0)))

    def forward(self, wave: Tensor) -> Opinion:
        """wave [B, n]"""
        padded = F.pad(wave[:, None], (0, -wave.shape[1] % self.period), mode="reflect")
        return _judge(padded.view(len(wave), 1, -1, self.period), self.convs, self.last)


class _ByResolution(nn.Module):
    window: Tensor

    def __init__(self, n_fft: int, hop: int, width: int) -> None:
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft), persistent=False)
        strides = ((1, 1), (2, 1), (2, 1), (2, 1))
        self.convs = nn.ModuleList(
            weight_norm(nn.Conv2d(width if n else 1, width, (9, 3), stride, (4, 1)))
            for n, stride in enumerate(strides)
        )
        self.last = weight_norm(nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, wave: Tensor) -> Opinion:
        with torch.autocast(wave.device.type, enabled=False):
            wave = wave.float()
            lines = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True)
            seen = (lines.abs() + 1e-5).sqrt()[:, None]
        return _judge(seen, self.convs, self.last)


def _judge(x: Tensor, convs: nn.ModuleList, last: nn.Module) -> Opinion:
    seen = []
    for conv in convs:
        x = F.leaky_relu(conv(x), 0.1)
        seen.append(x)
    return last(x), seen


class Judges(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.each = nn.ModuleList(
            [_ByPeriod(p, width) for p in _PERIODS]
            + [_ByResolution(n, hop, width) for n, hop in _RESOLUTIONS]
        )

    def forward(self, wave: Tensor) -> list[Opinion]:
        return [judge(wave) for judge in self.each]


def judges_loss(true: list[Opinion], made: list[Opinion]) -> Tensor:
    """Least squares: 1 for real sound, 0 for generated."""
    parts = [
        (1 - t[0].float()).square().mean() + m[0].float().square().mean()
        for t, m in zip(true, made, strict=True)
    ]
    return torch.stack(parts).sum() / len(parts)


def maker_losses(true: list[Opinion], made: list[Opinion]) -> tuple[Tensor, Tensor]:
    """Returns the adversarial loss of the generated sound and the feature-matching loss."""
    fooled = torch.stack([(1 - m[0].float()).square().mean() for m in made]).mean()
    unlike = [
        (a.detach().float() - b.float()).abs().mean() / (a.detach().float().abs().mean() + 1e-3)
        for t, m in zip(true, made, strict=True)
        for a, b in zip(t[1], m[1], strict=True)
    ]
    return fooled, torch.stack(unlike).mean()
