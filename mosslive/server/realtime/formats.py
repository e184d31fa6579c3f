"""Audio formats of the API: bytes ↔ samples. PCM at 24 kHz, and G.711 at 8 kHz by libsndfile.

Samples are float32 in [-1, 1]. An `Encoder` belongs to one stream; everything else is stateless and
runs on every thread. Knows no events and no base64.
"""

from dataclasses import dataclass
from io import BytesIO
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from mosslive.codec.resample import ResampleStream
from mosslive.server.realtime.fields import bad

Samples = NDArray[np.float32]
Kind = Literal["audio/pcm", "audio/pcmu", "audio/pcma"]

_SUBTYPES: dict[Kind, str] = {"audio/pcmu": "ULAW", "audio/pcma": "ALAW"}
BETA_NAMES: dict[Kind, str] = {
    "audio/pcm": "pcm16",
    "audio/pcmu": "g711_ulaw",
    "audio/pcma": "g711_alaw",
}


@dataclass(frozen=True)
class AudioFormat:
    kind: Kind = "audio/pcm"

    @property
    def rate_hz(self) -> int:
        return 24_000 if self.kind == "audio/pcm" else 8000

    @property
    def bytes_per_sample(self) -> int:
        return 2 if self.kind == "audio/pcm" else 1

    def document(self) -> dict[str, Any]:
        rate = {"rate": self.rate_hz} if self.kind == "audio/pcm" else {}
        return {"type": self.kind, **rate}

    def decode(self, data: bytes) -> Samples:
        """`data`: complete samples."""
        if self.kind == "audio/pcm":
            return np.frombuffer(data, "<i2").astype(np.float32) * np.float32(1 / 32768)
        import soundfile

        if not data:
            return np.zeros(0, np.float32)
        raw: dict[str, Any] = {"format": "RAW", "subtype": _SUBTYPES[self.kind]}
        samples: Samples
        samples, _ = soundfile.read(
            BytesIO(data), samplerate=self.rate_hz, channels=1, dtype="float32", **raw
        )
        return samples

    def encode(self, wave: Samples) -> bytes:
        """`wave`: at `rate_hz`. Clips it: a cross-fade may exceed full scale by 7 %."""
        clipped = np.clip(wave, -1, 1)
        if self.kind == "audio/pcm":
            return np.round(clipped * 32767).astype("<i2").tobytes()
        import soundfile

        out = BytesIO()
        soundfile.write(out, clipped, self.rate_hz, format="RAW", subtype=_SUBTYPES[self.kind])
        return out.getvalue()


class Encoder:
    """A stream of sound at the codec's rate → bytes of a format."""

    def __init__(self, form: AudioFormat, rate_hz: int) -> None:
        self._form = form
        same = form.rate_hz == rate_hz
        self._resampler = None if same else ResampleStream(rate_hz, form.rate_hz)

    def push(self, wave: Samples) -> bytes:
        if self._resampler:
            wave = self._resampler.push(torch.from_numpy(wave)).numpy()
        return self._form.encode(wave)

    def finish(self) -> bytes:
        if not self._resampler:
            return b""
        return self._form.encode(self._resampler.finish().numpy())


def read_format(raw: object, where: str) -> AudioFormat:
    """Reads `{"type": "audio/pcm", "rate": 24000}`, or the same for G.711."""
    kind = raw.get("type") if isinstance(raw, dict) else None
    if not isinstance(raw, dict) or not isinstance(kind, str) or kind not in BETA_NAMES:
        raise bad(where, raw, f"an object whose type is {', '.join(BETA_NAMES)}")
    form = AudioFormat(kind)
    if raw.get("rate") not in (None, form.rate_hz):
        raise bad(f"{where}.rate", raw["rate"], str(form.rate_hz))
    return form
