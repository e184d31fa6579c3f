"""Sound of callers and files in the form of the networks: one channel, float32 in [-1, 1].

Files are read by soundfile, which is imported only for that. Knows nothing of networks.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mosslive.codec.mel import check_pcm, is_in_range
from mosslive.errors import MossliveError

Pcm = NDArray[Any] | Tensor

# Formats of written files by suffix: libsndfile's container and encoding.
_FORMATS = {
    ".wav": ("WAV", "PCM_16"),
    ".flac": ("FLAC", "PCM_16"),
    ".ogg": ("OGG", "VORBIS"),
    ".opus": ("OGG", "OPUS"),
    ".mp3": ("MP3", "MPEG_LAYER_III"),
}
_MOST_CHANNELS = 64
_BLOCK_FRAMES = 1 << 16  # of a file, read at once


class BadSound(MossliveError, ValueError):
    """Sound that cannot be used: unreadable, empty, not finite, or of an impossible form."""


class Sound(NamedTuple):
    wave: Tensor  # [n] float32
    rate_hz: int


def mono(pcm: Pcm) -> Tensor:
    """[n], or [n, channels] as files have it, float or int16 → [n] float32. Of several channels the
    first is taken, as the published driver does; a mean would change codes."""
    if isinstance(pcm, np.ndarray):
        pcm = np.ascontiguousarray(pcm, pcm.dtype.newbyteorder("="))
        if pcm.dtype == np.float32 and pcm.ndim == 1 and is_in_range(pcm):
            return torch.from_numpy(pcm)  # a live packet; an operation of PyTorch takes longer
    try:
        tensor = torch.as_tensor(pcm)
    except (TypeError, ValueError, RuntimeError):
        found = getattr(pcm, "dtype", type(pcm).__name__)
        raise BadSound(f"sound of type {found}; allowed: floating point or int16") from None
    if tensor.is_meta or tensor.layout != torch.strided:
        raise BadSound("sound in a tensor without memory or sparse; allowed: ordinary tensors")
    if tensor.dim() == 2:
        if not 1 <= tensor.shape[1] <= _MOST_CHANNELS:  # more: the axes are swapped
            raise BadSound(
                f"sound of shape {list(tensor.shape)}; allowed: [samples, channels], 1 to "
                f"{_MOST_CHANNELS} channels"
            )
        tensor = tensor[:, 0]
    return check_pcm(tensor).cpu()


def check_rate(rate_hz: object) -> int:
    """8 to 192 kHz: below, speech is not intelligible; above, no device records."""
    whole = isinstance(rate_hz, int | np.integer) and not isinstance(rate_hz, bool)
    if not whole or not 8000 <= rate_hz <= 192_000:  # type: ignore[operator]
        raise BadSound(f"sample_rate is {rate_hz!r}; allowed: 8000..192000 Hz, a whole number")
    return int(rate_hz)  # type: ignore[call-overload,no-any-return]


def read_sound(path: str | Path) -> Sound:
    """First channel of a WAV, FLAC, OGG or any other file soundfile reads."""
    import soundfile

    if Path(path).is_dir():
        raise BadSound(f"{path}: is a folder; allowed: a file of sound")
    if not Path(path).exists():
        raise BadSound(f"{path}: no such file")
    pieces = []
    try:
        with soundfile.SoundFile(str(path)) as file:
            rate = file.samplerate
            # By blocks: a header may state more samples than fit into memory.
            while len(block := file.read(_BLOCK_FRAMES, dtype="float32", always_2d=True)):
                pieces.append(block[:, 0].copy())
    except (soundfile.LibsndfileError, OSError, RuntimeError, ValueError) as error:
        raise BadSound(f"{path}: not readable as sound: {error}") from None
    if not pieces:
        raise BadSound(f"{path}: holds no samples")
    try:
        return Sound(mono(np.concatenate(pieces)), check_rate(int(rate)))
    except MossliveError as error:
        raise BadSound(f"{path}: {error}") from None


def sound_format(path: str | Path) -> tuple[str, str]:
    """The container and encoding that the suffix of a path asks for; without a suffix: WAV. Raises
    `BadSound` for a suffix that cannot be written, with those that can."""
    import soundfile

    suffix = Path(path).suffix.lower()
    chosen = _FORMATS.get(suffix or ".wav")
    if chosen and soundfile.check_format(*chosen):  # libsndfile before 1.1 has no MP3
        return chosen
    known = [one for one, form in _FORMATS.items() if soundfile.check_format(*form)]
    raise BadSound(f"{path}: cannot write {suffix} files; use {', '.join(known)}")


def write_sound(path: str | Path, wave: NDArray[np.float32], rate_hz: int) -> None:
    """WAV, FLAC, OGG, OPUS or MP3 by the suffix, 16 bits where samples are stored. Samples are
    clipped first: a cross-fade may exceed full scale by 7 %."""
    import soundfile

    container, coding = sound_format(path)
    clipped = np.clip(wave, -1, 1)
    try:
        with soundfile.SoundFile(
            str(path), "w", rate_hz, channels=1, format=container, subtype=coding
        ) as file:
            # By blocks: libsndfile's Vorbis encoder overflows its stack with a long one.
            for first in range(0, len(clipped), _BLOCK_FRAMES):
                file.write(clipped[first : first + _BLOCK_FRAMES])
    except (soundfile.LibsndfileError, OSError) as error:
        raise BadSound(f"{path}: cannot be written: {error}") from None
