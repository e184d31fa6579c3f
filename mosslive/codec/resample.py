"""Changing the sample rate: the published windowed-sinc resampler, whole or as it arrives.

Codes depend on the exact resampler, so sound for the encoder goes through `resample` or
`ResampleStream`, which give torchaudio's default result. For everything that no network was
trained on (playing, storing, odd rates) use `resample_soxr`. Knows nothing of networks.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from mosslive.errors import MossliveError

_ZERO_CROSSINGS = 6
_ROLLOFF = 0.99
_MOST_TAPS = 1 << 24  # 64 MiB of kernel; only rates with hardly a common factor come near
_PIECE_TAPS = 1 << 24  # windows overlap up to fifteenfold: an hour at once would fill the memory


def resample(wave: Tensor, from_hz: int, to_hz: int) -> Tensor:
    """wave [..., n] float → float32 [..., ceil(n · to / from)], on the same device. Use it wherever
    the result reaches the encoder, a mel or a speaker vector."""
    stream = ResampleStream(from_hz, to_hz)
    return torch.cat((stream.push(wave), stream.finish()), -1)


class ResampleStream:
    """`resample` for sound that arrives in pieces: the results of push and finish, joined, equal
    `resample` of the whole."""

    def __init__(self, from_hz: int, to_hz: int) -> None:
        for name, rate in (("from_hz", from_hz), ("to_hz", to_hz)):
            if isinstance(rate, bool) or not isinstance(rate, int) or rate < 1:
                raise MossliveError(f"{name} is {rate!r}; allowed: a positive whole number")
        common = math.gcd(from_hz, to_hz)
        # Every `_from` samples that come in, `_to` samples go out: one block.
        self._from, self._to = from_hz // common, to_hz // common
        self._reach = _reach(self._from, self._to)
        if self._taps * self._to > _MOST_TAPS:
            raise MossliveError(
                f"{from_hz} Hz to {to_hz} Hz needs {self._to} filters of {self._taps} taps, too "
                f"many to keep; use resample_soxr, or rates with a larger common factor"
            )
        self._held: Tensor | None = None  # [..., m] input that later output still needs
        self._came_samples = self._went_samples = 0
        self._finished = False

    @property
    def _taps(self) -> int:
        return 2 * self._reach + self._from

    @property
    def delay_samples(self) -> int:
        """The most input samples that must follow a sample before its last output is returned."""
        return 0 if self._from == self._to else self._reach + self._from

    def push(self, wave: Tensor) -> Tensor:
        """wave [..., n], any n, the leading axes as in the first call → float32 [..., m]."""
        if self._finished:
            raise MossliveError("sound pushed into a resampler that was finished")
        if not wave.is_floating_point() or not wave.dim():
            raise MossliveError(
                f"sound to resample is {wave.dtype} of shape {list(wave.shape)}; "
                f"allowed: floating point with time as its last axis"
            )
        wave = wave.float()
        if self._from == self._to:
            self._held = wave[..., :0]
            return wave
        held = wave.new_zeros(*wave.shape[:-1], self._reach) if self._held is None else self._held
        if held.shape[:-1] != wave.shape[:-1]:
            raise MossliveError(
                f"sound of shape {list(wave.shape)} pushed into a resampler; allowed: "
                f"{[*held.shape[:-1], 'any']}, as in the first call"
            )
        self._came_samples += wave.shape[-1]
        return self._advance(torch.cat((held, wave), -1))

    def finish(self) -> Tensor:
        """The rest [..., m]. Afterwards the stream takes no more."""
        if self._finished:
            raise MossliveError("a resampler finished twice")
        self._finished = True
        if self._held is None:
            return torch.zeros(0)
        if self._from == self._to:
            return self._held
        rest = self._advance(F.pad(self._held, (0, self._reach + self._from)))
        total = -(-self._came_samples * self._to // self._from)
        return rest[..., : rest.shape[-1] - (self._went_samples - total)]

    def _advance(self, wave: Tensor) -> Tensor:
        """Filters all whole blocks of held and new input, and keeps what the next block needs."""
        blocks = max(0, (wave.shape[-1] - self._taps) // self._from + 1)
        self._held = wave[..., blocks * self._from :].clone()
        self._went_samples += blocks * self._to
        if not blocks:
            return wave[..., :0]
        kernel = _kernel_on(wave.device, self._from, self._to)
        windows = wave.unfold(-1, self._taps, self._from)  # [..., blocks, taps]
        # Products, not a convolution, which cuDNN may round to TF32.
        pieces = torch.split(windows, max(1, _PIECE_TAPS // self._taps), -2)
        return torch.cat([F.linear(piece, kernel).flatten(-2) for piece in pieces], -1)


def resample_soxr(wave: Tensor, from_hz: float, to_hz: float) -> Tensor:
    """wave [..., n] → float32 [..., about n · to / from] on the CPU, by the soxr library: sharper
    filter, any rates, not the encoder's resampler. Use it for sound that people will hear."""
    try:
        import soxr  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise MossliveError("resample_soxr needs the package soxr; pip install soxr") from None
    frames = wave.detach().float().cpu().reshape(-1, wave.shape[-1]).T  # soxr wants time first
    result = torch.from_numpy(soxr.resample(frames.numpy(), from_hz, to_hz))
    return result.T.reshape(*wave.shape[:-1], -1)


def _reach(orig: int, new: int) -> int:
    """Input samples on each side that one output sample depends on."""
    return math.ceil(_ZERO_CROSSINGS * orig / (min(orig, new) * _ROLLOFF))


@lru_cache(maxsize=16)
def _kernel_on(device: torch.device, orig: int, new: int) -> Tensor:
    """One filter for each of the `new` outputs of a block, [new, 2·reach + orig] float32."""
    reach, base = _reach(orig, new), min(orig, new) * _ROLLOFF
    taps = torch.arange(-reach, reach + orig, dtype=torch.float64) / orig
    # The published code rounds these fractions to float32 and nothing else; codes depend on it.
    phases = (torch.arange(new) / new).double()
    t = ((taps - phases[:, None]) * base).clamp(-_ZERO_CROSSINGS, _ZERO_CROSSINGS)
    window = (t * (math.pi / (2 * _ZERO_CROSSINGS))).cos().square()
    kernel = (base / orig) * window * torch.sinc(t)
    return kernel.float().to(device)
