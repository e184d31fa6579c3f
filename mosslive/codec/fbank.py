"""Kaldi filter-bank features: the input of the speaker encoder.

25 ms frames every 10 ms, only whole ones; 80 triangles drawn in the mel domain; natural logarithm.
Own code, because the published front end (torchaudio's Kaldi module) has no CPU build for the torch
this package is developed on, and because its float32 rounding is part of the result: every table
and every step rounds as it does there, so that the same FFT and matrix library give the same bits.
Knows nothing of speakers: the mean over time is removed by the caller.
Invariant: frame t depends on samples 160·t to 160·t + 399 and on nothing else.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from mosslive.errors import MossliveError

RATE_HZ = 16_000
BANDS = 80
FRAME_SAMPLES = 400
HOP_SAMPLES = 160

_FFT_SAMPLES = 512
_LOWEST_HZ, _HIGHEST_HZ = 20.0, 8000.0
_PRE_EMPHASIS = 0.97
_POVEY_POWER = 0.85  # a Hann window raised to this is Kaldi's own "Povey" window
_FLOOR = torch.finfo(torch.float32).eps  # silence becomes ln(1.19e-7) = -15.9, not -inf


def fbank(wave_16k: Tensor) -> Tensor:
    """float32 [..., N] in [-1, 1], N ≥ 400 → float32 [..., 1 + (N - 400) // 160, 80]."""
    if wave_16k.ndim == 0 or wave_16k.shape[-1] < FRAME_SAMPLES:
        raise MossliveError(
            f"audio of shape {list(wave_16k.shape)} is shorter than one filter-bank frame of "
            f"{FRAME_SAMPLES} samples"
        )
    device = wave_16k.device  # the tables are made on the CPU: their bits do not depend on it
    frames = wave_16k.float().unfold(-1, FRAME_SAMPLES, HOP_SAMPLES)  # [..., T, 400]
    frames = frames - frames.mean(-1, keepdim=True)
    # The first sample is its own past, as in Kaldi; its window weight is zero anyway.
    before = torch.cat((frames[..., :1], frames[..., :-1]), -1)
    frames = (frames - _PRE_EMPHASIS * before) * _window().to(device)
    padded = F.pad(frames, (0, _FFT_SAMPLES - FRAME_SAMPLES))
    power = torch.fft.rfft(padded).abs().square()  # [..., T, 257]
    energy: Tensor = power @ _mel_bank().to(device).T
    return energy.clamp_min(_FLOOR).log()


def _window() -> Tensor:
    return torch.hann_window(FRAME_SAMPLES, periodic=False, dtype=torch.float32).pow(_POVEY_POWER)


def _mel_bank() -> Tensor:
    """[80, 257]; the last column, the Nyquist frequency, is zero. In float32 throughout: a bank
    computed in float64 moves the lowest bands by 1e-4, because their triangles hold one or two
    frequencies each."""
    lowest, highest = (1127 * math.log(1 + hz / 700) for hz in (_LOWEST_HZ, _HIGHEST_HZ))
    step = (highest - lowest) / (BANDS + 1)
    band = torch.arange(BANDS, dtype=torch.float32)[:, None]
    left, centre, right = (lowest + (band + corner) * step for corner in range(3))
    bins_hz = torch.arange(_FFT_SAMPLES // 2, dtype=torch.float32) * (RATE_HZ / _FFT_SAMPLES)
    mel = 1127 * (1 + bins_hz / 700).log()
    rising, falling = (mel - left) / (centre - left), (right - mel) / (right - centre)
    return F.pad(torch.minimum(rising, falling).clamp_min(0), (0, 1))
