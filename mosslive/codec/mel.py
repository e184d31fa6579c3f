"""Mel spectrograms: the encoder's log10 power features, and the ln magnitude mel of the decoders.

Knows waveforms and spectra only, neither networks nor streams. The encoder's features come in two
steps on purpose: `log10_mel` is local to each frame, and only `floor_and_scale` looks at the
loudest value of the segment, so a stream can keep frames and learn the loudest value later.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from mosslive.errors import MossliveError

# The encoder's analysis: 25 ms windows every 10 ms at 16 kHz.
HEARING_HZ = 16_000
HEARING_N_FFT = 400
HEARING_HOP_SAMPLES = 160
BLOCK_SAMPLES = 1280  # one code: hop 160 · convolution stride 2 · pooling 4
# Far above what resampling adds to full scale; 16-bit numbers mistaken for floats are far above it.
_MOST_AMPLITUDE = 4.0
_LEAST_POWER = 1e-10
_RANGE = 8.0  # values this many powers of ten below the loudest are raised to that floor

_LEAST_MAGNITUDE = 1e-5
_SQUARE_OFFSET = 1e-9  # under the root of re² + im²; the published training code has it


@dataclass(frozen=True)
class MelSettings:
    """An ln magnitude mel; the window is as long as the transform."""

    sample_rate_hz: int
    n_fft: int
    hop_samples: int
    bands: int
    fmin_hz: float
    fmax_hz: float

    def description(self) -> dict[str, str]:
        """For people: every property that a vocoder depends on."""
        return {
            "sample rate": f"{self.sample_rate_hz} Hz",
            "bands": str(self.bands),
            "range": f"{self.fmin_hz:g}-{self.fmax_hz:g} Hz",
            "hop": f"{self.hop_samples} samples",
            "window": f"{self.n_fft} samples",
            "values": f"ln magnitude >= {_LEAST_MAGNITUDE:g}",
        }

    @property
    def edge_samples(self) -> int:
        """Mirrored samples on both sides, so that n samples give n // hop frames."""
        return (self.n_fft - self.hop_samples) // 2

    @classmethod
    def from_bigvgan(cls, config: Mapping[str, Any]) -> "MelSettings":
        """From the parsed `config.json` of a BigVGAN checkpoint; its fmax of null is half the
        sample rate."""
        names = ("sampling_rate", "n_fft", "win_size", "hop_size", "num_mels", "fmin", "fmax")
        missing = [name for name in names if name not in config]
        if missing:
            raise MossliveError(f"BigVGAN config: {', '.join(missing)} missing")
        rate, n_fft, win, hop, bands, fmin, fmax = (config[name] for name in names)
        if win != n_fft:
            raise MossliveError(f"BigVGAN config: win_size is {win}; allowed: n_fft = {n_fft}")
        return cls(rate, n_fft, hop, bands, fmin, rate / 2 if fmax is None else fmax)


FLOW_MEL = MelSettings(24_000, 1920, 480, 80, 0.0, 8000.0)


def _hz_to_mel(hz: float) -> float:
    """Slaney's scale: straight below 1 kHz, logarithmic above."""
    return 3 * hz / 200 if hz < 1000 else 15 + 27 * math.log(hz / 1000) / math.log(6.4)


@lru_cache(maxsize=16)
def slaney_filterbank(sample_rate: int, n_fft: int, bands: int, fmin: float, fmax: float) -> Tensor:
    """Triangles, straight in Hz and of equal area, [bands, n_fft/2 + 1] float32. Shared between
    callers: do not write to it."""
    wide = torch.float64
    mels = torch.linspace(_hz_to_mel(fmin), _hz_to_mel(fmax), bands + 2, dtype=wide)
    above = 1000 * torch.exp((mels - 15) * (math.log(6.4) / 27))
    edges = torch.where(mels < 15, mels * 200 / 3, above)  # [bands + 2] Hz
    lower, centre, upper = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    bins = torch.arange(n_fft // 2 + 1, dtype=wide) * (sample_rate / n_fft)
    rising = (bins - lower) / (centre - lower)
    falling = (upper - bins) / (upper - centre)
    triangles = torch.minimum(rising, falling).clamp(min=0)
    return (triangles * (2 / (upper - lower))).float()


def check_pcm(pcm: Tensor) -> Tensor:
    """Mono sound, float in [-1, 1] or int16, as float32 [n]; anything else is refused."""
    if pcm.dim() != 1:
        raise MossliveError(f"sound of shape {list(pcm.shape)}; allowed: one axis, mono samples")
    if pcm.dtype == torch.int16:
        return pcm.float() / 32768
    if not pcm.is_floating_point():
        raise MossliveError(f"sound of type {pcm.dtype}; allowed: floating point or torch.int16")
    pcm = pcm.float()
    # One reduction: NaN fails the comparison too.
    if pcm.numel() and not bool(pcm.abs().amax() <= _MOST_AMPLITUDE):
        raise MossliveError(
            f"sound that is not finite or exceeds {_MOST_AMPLITUDE}; allowed: samples in [-1, 1]"
        )
    return pcm


def is_in_range(pcm: NDArray[np.float32]) -> bool:
    """Whether all samples are finite and not too large."""
    # Comparisons with NaN are false.
    if not len(pcm):
        return True
    least, most = np.minimum.reduce(pcm), np.maximum.reduce(pcm)
    return bool(least >= -_MOST_AMPLITUDE and most <= _MOST_AMPLITUDE)


def log10_mel(framed: Tensor, bands: int) -> Tensor:
    """log10 of the mel power of every whole window, without the floor.

    framed [..., n], with the padding before and after the sound included: frame t is
    samples 160t .. 160t+399 → [..., bands, (n - 400) // 160 + 1].

    In double precision inside: a float32 transform is only good to some 1e-5 near the floor, and by
    how much it errs depends on the library and on how many frames are computed together.
    """
    _check_float32(framed)
    spectrum = _spectrum(framed.double(), HEARING_N_FFT, HEARING_HOP_SAMPLES)
    top_hz = HEARING_HZ / 2
    bank = _bank_on(framed.device, HEARING_HZ, HEARING_N_FFT, bands, 0.0, top_hz)
    power = bank.double() @ spectrum.abs().square()
    return power.clamp(min=_LEAST_POWER).log10().float()


def segment_log10_mel(wave: Tensor, bands: int) -> Tensor:
    """wave [..., n] at 16 kHz, one segment → [..., bands, 8 · ceil(n / 1280)]: zeros up to whole
    blocks, mirrored ends, and the frame after the last block dropped."""
    padded = F.pad(wave, (0, -wave.shape[-1] % BLOCK_SAMPLES))
    if not padded.shape[-1]:
        return wave.new_zeros(*wave.shape[:-1], bands, 0)
    return log10_mel(_mirror_ends(padded, HEARING_N_FFT // 2), bands)[..., :-1]


def floor_and_scale(log10: Tensor, loudest: Tensor) -> Tensor:
    """log10 [..., bands, frames] and the segment's loudest value (anything that broadcasts; one per
    frame is allowed) → the encoder's features."""
    return (torch.maximum(log10, loudest - _RANGE) + 4) / 4


def floor_rises(lowest: Tensor, loudest: Tensor, later_loudest: Tensor) -> Tensor:
    """Whether a frame whose lowest value is `lowest` has other features once the segment's loudest
    value is `later_loudest` instead of `loudest`; all broadcast."""
    return torch.maximum(lowest, loudest - _RANGE) < later_loudest - _RANGE


def log_mel(wave: Tensor, settings: MelSettings) -> Tensor:
    """ln mel magnitudes of wave [..., n] at the settings' rate → [..., bands, n // hop]."""
    _check_float32(wave)
    s, edge = settings, settings.edge_samples
    if wave.shape[-1] <= edge:
        raise MossliveError(
            f"a sound of {wave.shape[-1]} samples is too short for its mel spectrogram; "
            f"allowed: {edge + 1} or more"
        )
    spectrum = _spectrum(_mirror_ends(wave, edge), s.n_fft, s.hop_samples)
    real = torch.view_as_real(spectrum)
    magnitude = (real.square().sum(-1) + _SQUARE_OFFSET).sqrt()
    bank = _bank_on(wave.device, s.sample_rate_hz, s.n_fft, s.bands, s.fmin_hz, s.fmax_hz)
    return (bank @ magnitude).clamp(min=_LEAST_MAGNITUDE).log()


def _check_float32(wave: Tensor) -> None:
    if wave.dtype != torch.float32:
        raise MossliveError(f"sound of type {wave.dtype}; allowed: torch.float32")


def _mirror_ends(wave: Tensor, samples: int) -> Tensor:
    """The edge sample itself is not repeated."""
    rows = wave.reshape(-1, wave.shape[-1])  # reflection wants exactly one leading axis
    return F.pad(rows, (samples, samples), mode="reflect").view(*wave.shape[:-1], -1)


def _spectrum(framed: Tensor, n_fft: int, hop: int) -> Tensor:
    """framed [..., n] → complex [..., n_fft/2 + 1, frames], no padding, periodic Hann window."""
    rows = framed.reshape(-1, framed.shape[-1])
    window = _window_on(framed.device, n_fft).to(framed.dtype)
    spectrum = torch.stft(rows, n_fft, hop, window=window, center=False, return_complex=True)
    return spectrum.reshape(*framed.shape[:-1], *spectrum.shape[1:])


# A stream computes eight frames at a time: the constants must already be where the sound is.
@lru_cache(maxsize=16)
def _bank_on(
    device: torch.device, rate: int, n_fft: int, bands: int, lo: float, hi: float
) -> Tensor:
    return slaney_filterbank(rate, n_fft, bands, lo, hi).to(device)


@lru_cache(maxsize=16)
def _window_on(device: torch.device, n_fft: int) -> Tensor:
    return torch.hann_window(n_fft, device=device)
