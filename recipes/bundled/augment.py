"""Simulates other voices, rooms and microphones from the same recordings, one batch at a time.

Runs on the device, on the input of the encoder only; targets stay unchanged. Knows no networks.
Invariant: timing does not change, so targets in codes or frames stay aligned.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mosslive.codec.mel import floor_and_scale, segment_log10_mel

_BANDS = 128
_TOP_MEL = 15 + 27 * math.log(8.0) / math.log(6.4)  # of 8 kHz on Slaney's scale
_HZ = 16_000
_FAINT_DB = 50.0  # noise this far below the speech is negligible
_ECHO = 0.04  # relative to the direct sound: the longest echo is about as loud as the speaker


@dataclass(frozen=True)
class Augment:
    """The strongest of each effect; every row samples its own strength. 0 is off."""

    tract: float = 0.25  # the vocal tract is exp(±tract) as long
    tilt_db: float = 8.0  # from the lowest to the highest band
    colour_db: float = 6.0  # random equaliser, about 1 kHz wide
    noise_db: float = 8.0  # loudest noise: this far below the speech
    room_s: float = 0.35  # longest reverberation
    share: float = 0.85  # of the rows; the others stay as they are

    def scaled(self, strength: float) -> "Augment":
        """Returns a weaker augmentation by this factor; noise is further below the speech."""
        return Augment(
            tract=self.tract * strength,
            tilt_db=self.tilt_db * strength,
            colour_db=self.colour_db * strength,
            noise_db=_FAINT_DB - (_FAINT_DB - self.noise_db) * strength,
            room_s=self.room_s * strength,
            share=self.share,
        )


def features(wave: Tensor) -> Tensor:
    """wave [B, n] at 16 kHz → the encoder's features [B, 128, n / 160]."""
    log10 = segment_log10_mel(wave, _BANDS)
    return floor_and_scale(log10, log10.amax((1, 2), keepdim=True))


def augmented_features(wave: Tensor, how: Augment, generator: torch.Generator) -> Tensor:
    """Returns features of rows as if other speakers had said them in other rooms."""
    count = wave.shape[0]

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device=wave.device)

    chosen = (uniform(count, 1) < how.share).float()
    wet = _in_a_room(wave, how.room_s * uniform(count, 1), generator)
    wave = torch.lerp(wave, wet, chosen * (uniform(count, 1) < 0.4))
    wave = wave + chosen * _noise_for(wave, how, uniform, generator)
    # The level of live recordings varies much more than that of the corpus.
    wave = wave * 10 ** (chosen * (uniform(count, 1) * 1.4 - 1.0))
    log10 = segment_log10_mel(wave, _BANDS)
    factor = torch.exp(chosen * how.tract * (2 * uniform(count, 1) - 1))
    log10 = _stretched(log10, factor)
    place = torch.linspace(-0.5, 0.5, _BANDS, device=wave.device)
    tilt = how.tilt_db * (2 * uniform(count, 1) - 1) * place
    knots = how.colour_db * (2 * uniform(count, 1, 9) - 1)
    colour = torch.nn.functional.interpolate(knots, _BANDS, mode="linear", align_corners=True)
    log10 = (log10 + (chosen * (tilt + colour[:, 0]) / 10)[..., None]).clamp(min=-10)
    return floor_and_scale(log10, log10.amax((1, 2), keepdim=True))


def _noise_for(
    wave: Tensor, how: Augment, uniform: Callable[..., Tensor], generator: torch.Generator
) -> Tensor:
    """Returns noise of a random colour, `_FAINT_DB` to `noise_db` below the speech."""
    count, samples = wave.shape
    white = torch.randn(wave.shape, generator=generator, device=wave.device)
    spectrum = torch.fft.rfft(white)
    hz = torch.linspace(1, 2, spectrum.shape[1], device=wave.device)
    bent = spectrum * hz ** (-6 * uniform(count, 1))
    noise: Tensor = torch.fft.irfft(bent, samples)
    noise = noise / noise.square().mean(1, keepdim=True).sqrt()
    speech = wave.square().mean(1, keepdim=True).sqrt()
    below_db = how.noise_db + (_FAINT_DB - how.noise_db) * uniform(count, 1)
    level: Tensor = speech * 10 ** (-below_db / 20)
    return noise * level


def _in_a_room(wave: Tensor, seconds: Tensor, generator: torch.Generator) -> Tensor:
    """Adds an echo to each row that falls by 60 dB in `seconds` [B, 1]."""
    count, samples = wave.shape
    length = _HZ // 4
    tail = torch.randn(count, length, generator=generator, device=wave.device)
    time = torch.arange(length, device=wave.device) / _HZ
    tail = tail * torch.exp(-6.9 * time / (seconds + 0.02)) * _ECHO
    tail[:, 0] = 1
    size = samples + length
    spectrum = torch.fft.rfft(wave, size) * torch.fft.rfft(tail, size)
    echoed: Tensor = torch.fft.irfft(spectrum, size)[:, :samples]
    return echoed


def _stretched(log10: Tensor, factor: Tensor) -> Tensor:
    """Shifts log10 [B, 128, T] as if all frequencies were `factor` [B, 1] times higher."""
    step = _TOP_MEL / (_BANDS + 1)
    mel = step * torch.arange(1, _BANDS + 1, device=log10.device)
    wanted = _to_mel(_to_hz(mel) / factor)  # [B, 128]
    place = (wanted / step - 1).clamp(0, _BANDS - 1)
    below = place.floor().clamp(max=_BANDS - 2).long()
    weight = (place - below)[..., None]
    index = below[..., None].expand(-1, -1, log10.shape[2])
    return torch.lerp(log10.gather(1, index), log10.gather(1, index + 1), weight)


def _to_hz(mel: Tensor) -> Tensor:
    above = 1000 * torch.exp((mel - 15) * (math.log(6.4) / 27))
    return torch.where(mel < 15, mel * 200 / 3, above)


def _to_mel(hz: Tensor) -> Tensor:
    above = 15 + 27 * torch.log(hz.clamp(min=1) / 1000) / math.log(6.4)
    return torch.where(hz < 1000, 3 * hz / 200, above)
