"""The user's sound: decodes it to samples and keeps what the item of a turn may need.

With turn detection it keeps the recent past, from which a turn is taken by its times. Without it it
keeps everything since the last commit. Used on the event loop of the session; long sound is decoded
on another thread. Knows no events and no conversation.
"""

import asyncio
import base64
from collections import deque
from collections.abc import Iterator

import numpy as np

from mosslive.server.api_errors import ApiError
from mosslive.server.realtime.formats import AudioFormat, Samples

_PIECE_S = 0.1  # passed to the conversation at once, so that a long append does not block others
_LONG = 1 << 18  # characters of base64 or bytes of sound; decoding them takes 2 ms


async def read_sound(text: str, form: AudioFormat, where: str) -> tuple[Samples, bytes]:
    """The samples of sound in base64, and the bytes of an incomplete sample at its end."""
    return await _samples(await read_base64(text, where), form)


async def read_base64(text: str, where: str) -> bytes:
    """`decode_base64`, with an `ApiError` about the field `where`."""
    try:
        return await decode_base64(text)
    except ValueError:
        raise ApiError("audio is not valid base64", "invalid_audio", where) from None


async def decode_base64(text: str) -> bytes:
    """Decodes long texts on another thread. Raises `ValueError`."""
    if len(text) <= _LONG:
        return base64.b64decode(text, validate=True)
    return await asyncio.to_thread(_decoded, text)


def _decoded(text: str) -> bytes:
    parts = []
    for first in range(0, len(text), _LONG):  # other threads can run between two parts
        part = text[first : first + _LONG]
        if "=" in part and first + _LONG < len(text):
            raise ValueError("padding before the end")
        parts.append(base64.b64decode(part, validate=True))
    return b"".join(parts)


async def _samples(data: bytes, form: AudioFormat) -> tuple[Samples, bytes]:
    whole = len(data) - len(data) % form.bytes_per_sample
    if len(data) <= _LONG:
        return form.decode(data[:whole]), data[whole:]
    return await asyncio.to_thread(form.decode, data[:whole]), data[whole:]


class InputBuffer:
    def __init__(self, form: AudioFormat, most_s: float) -> None:
        """Keeps at most `most_s` of sound."""
        self._form, self._most_s = form, most_s
        self._odd = b""  # an incomplete sample
        self._before_s = 0.0  # of sound in earlier formats
        self._came = 0  # samples in this format
        self._kept: deque[Samples] = deque()
        self._kept_samples = 0

    @property
    def rate_hz(self) -> int:
        return self._form.rate_hz

    @property
    def came_s(self) -> float:
        """Seconds of sound since the session began."""
        return self._before_s + self._came / self.rate_hz

    @property
    def kept_s(self) -> float:
        return self._kept_samples / self.rate_hz

    def use(self, form: AudioFormat) -> None:
        if form != self._form:
            self._before_s = self.came_s
            self._form, self._came, self._odd = form, 0, b""
            self.forget()

    async def read(self, data: bytes) -> Samples:
        """The samples of an append. An incomplete sample at its end waits for the next append."""
        wave, self._odd = await _samples(self._odd + data, self._form)
        return wave

    def pieces(self, wave: Samples) -> Iterator[Samples]:
        step = round(_PIECE_S * self.rate_hz)
        return (wave[first : first + step] for first in range(0, len(wave), step))

    def keep(self, wave: Samples) -> None:
        self._came += len(wave)
        self._kept.append(wave)
        self._kept_samples += len(wave)

    def trim(self, keep_s: float) -> None:
        """Forgets all but the latest `keep_s`."""
        most = round(min(keep_s, self._most_s) * self.rate_hz)
        while self._kept and self._kept_samples - len(self._kept[0]) >= most:
            self._kept_samples -= len(self._kept.popleft())

    def forget(self) -> None:
        self._kept.clear()
        self._kept_samples = 0

    def take(self) -> Samples:
        """Returns all sound that is kept, and forgets it."""
        wave = np.concatenate([*self._kept, np.zeros(0, np.float32)])
        self.forget()
        return wave

    def between(self, start_s: float, end_s: float) -> Samples:
        """The sound of a stretch of time, as far as it is kept."""
        wave = np.concatenate([*self._kept, np.zeros(0, np.float32)])
        first_s = self.came_s - self.kept_s
        start = max(0, round((start_s - first_s) * self.rate_hz))
        end = max(0, round((end_s - first_s) * self.rate_hz))
        return wave[start:end].copy()
