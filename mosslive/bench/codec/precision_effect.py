"""Measures what lower precision does to codes and sound, on a real codec and real recordings.

Of the encoder: the share of codes that flip. Of flow and vocoder: how far the sound moves, beside
what another seed of the vocoder's noise does to the same reply, which nobody hears as a change. The
flow runs in its own half precision. For encoder and vocoder the operands and results of every
product are rounded, with sums in float32, as a GPU computes them; pitch and source stay float32.
Runs on the CPU. Knows no times.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from mosslive.codec import Codec, Voice, load_codec, read_sound
from mosslive.codec.device import COMPUTE
from mosslive.codec.hift.stream import HiftStream
from mosslive.codec.mel import FLOW_MEL, HEARING_HZ, floor_and_scale, log_mel, segment_log10_mel
from mosslive.codec.resample import resample
from mosslive.config import refuse

HALVES = ("bfloat16", "float16")
# Each recording is also heard at other speeds, levels and with noise: other codes, same speaker.
_STRETCHES = (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.25)
_LEVELS = (0.1, 1.0)
_NOISES = (0.0, 1e-3, 1e-2)  # share of full scale at level 1
_PRODUCTS = {
    F.linear,
    F.conv1d,
    F.conv_transpose1d,
    F.scaled_dot_product_attention,
    torch.matmul,
    Tensor.matmul,
    Tensor.__matmul__,
    torch.bmm,
}
_N_FFT, _HOP = 1024, 256  # of the log-spectral distance
_FLOOR = 1e-5  # of the loudest magnitude; below it nothing is audible


@dataclass(frozen=True)
class CodesRow:
    precision: str
    codes: int
    flipped: int


@dataclass(frozen=True)
class SoundRow:
    what: str
    mel_db: float  # mean |difference| of the mel in dB
    spectrum_db: float  # log-spectral distance
    snr_db: float  # of the waveform; means little where the phase moves


class RoundedProducts(TorchFunctionMode):
    """Within it, products of this thread have operands and results of `dtype`."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype

    def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function not in _PRODUCTS:
            return function(*args, **kwargs)
        rounded = {name: self._round(value) for name, value in kwargs.items()}
        return self._round(function(*map(self._round, args), **rounded))

    def _round(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point():
            return value.to(self._dtype).to(value.dtype)
        return value


def measure_precision(
    folder: Path, voice: Path, recordings: Sequence[Path]
) -> tuple[list[CodesRow], list[SoundRow]]:
    """`folder`: of a codec with HiFT."""
    if not recordings:
        raise refuse("recordings", "none", "one or more sound files")
    load = partial(load_codec, folder, trace_cpu_steps=False)
    codec = load()
    waves = [wave for path in recordings for wave in _variants(path)]
    exact = [codec._encoder.encode(wave) for wave in waves]
    codes = list(codes_rows(codec, waves, exact))
    # One level and noise of each speed: replies differ by their codes alone.
    spoken = [found.tolist() for found in exact[:: len(_LEVELS) * len(_NOISES)]]
    return codes, list(sound_rows(load, voice, spoken))


def codes_rows(
    codec: Codec, waves: Sequence[Tensor], exact: Sequence[Tensor]
) -> Iterator[CodesRow]:
    encoder = codec._encoder
    for name in HALVES:
        flipped = 0
        for wave, wanted in zip(waves, exact, strict=True):
            log10 = segment_log10_mel(wave, encoder.dims.mel_bands)
            features = floor_and_scale(log10, log10.amax())[None]
            with RoundedProducts(COMPUTE[name]):
                states = encoder(features)
            flipped += int((encoder.quantise(states)[0] != wanted).sum())
        yield CodesRow(name, sum(map(len, exact)), flipped)


def sound_rows(
    load: Callable[..., Codec], voice_file: Path, replies: Sequence[list[int]]
) -> Iterator[SoundRow]:
    codec = load()
    voice = codec.voice(voice_file)
    exact = [_say(codec, voice, codes) for codes in replies]
    yield _compared("another seed", exact, [_say(codec, voice, codes, 1) for codes in replies])
    for name in HALVES:
        lower = load(dtype=name)
        yield _compared(f"flow {name}", exact, [_say(lower, voice, codes) for codes in replies])
    for name in HALVES:
        lower = load()
        _round_vocoder(lower, COMPUTE[name])
        yield _compared(f"HiFT {name}", exact, [_say(lower, voice, codes) for codes in replies])
    for name in HALVES:
        lower = load(dtype=name)
        _round_vocoder(lower, COMPUTE[name])
        both = f"flow and HiFT {name}"
        yield _compared(both, exact, [_say(lower, voice, codes) for codes in replies])


def _round_vocoder(codec: Codec, dtype: torch.dtype) -> None:
    stream = codec._vocoder
    if not isinstance(stream, HiftStream):
        raise refuse("vocoder", type(stream).__name__, "HiFT")
    exact = stream.hift.decode  # pitch and source are computed before

    def rounded(mel: Tensor, source: Tensor) -> Tensor:
        with RoundedProducts(dtype):
            return exact(mel, source)

    vars(stream.hift)["decode"] = rounded


def _variants(path: Path) -> Iterator[Tensor]:
    """The recording at 16 kHz, at several speeds, levels and noises."""
    sound = read_sound(path)
    count = 0
    for stretch in _STRETCHES:
        wave = resample(torch.as_tensor(sound.wave), sound.rate_hz, round(HEARING_HZ * stretch))
        for level in _LEVELS:
            for noise in _NOISES:
                generator = torch.Generator().manual_seed(count)
                hiss = noise * torch.randn(wave.shape, generator=generator)
                yield (level * (wave.float() + hiss)).clamp(-1, 1)
                count += 1


def _say(codec: Codec, voice: Voice, codes: list[int], seed: int = 0) -> Tensor:
    """The reply as it is rendered live."""
    stream = codec.decoder_stream(voice, tail="cached", seed=seed)
    return torch.from_numpy(np.concatenate((stream.push(codes), stream.finish())))


def _compared(what: str, exact: Sequence[Tensor], lower: Sequence[Tensor]) -> SoundRow:
    found = np.array([_distances(*pair) for pair in zip(exact, lower, strict=True)]).mean(0)
    return SoundRow(what, *map(float, found))


def _distances(exact: Tensor, lower: Tensor) -> tuple[float, float, float]:
    """(mel, log spectrum, signal to noise), in dB."""
    mels = log_mel(exact, FLOW_MEL) - log_mel(lower, FLOW_MEL)
    mel_db = 20 / math.log(10) * float(mels.abs().mean())
    window = torch.hann_window(_N_FFT)
    spectra = [
        torch.stft(wave, _N_FFT, _HOP, window=window, return_complex=True).abs()
        for wave in (exact, lower)
    ]
    floor = _FLOOR * max(float(spectrum.max()) for spectrum in spectra)
    one, two = (20 * torch.log10(spectrum.clamp(min=floor)) for spectrum in spectra)
    spectrum_db = float((one - two).square().mean(0).sqrt().mean())
    noise = float((exact - lower).square().sum()) or 1e-30
    return mel_db, spectrum_db, 10 * math.log10(float(exact.square().sum()) / noise)
