"""The layout of an utterance in time: trimmed, with a fixed silence before and after, in whole
codes.

The model is trained on speech in this layout, so the examination compares its replies with the
synthesiser's answers in the same layout: the same words at another start have other codes. Knows
samples only.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

CODE_SAMPLES = 1920  # at 24 kHz
Role = Literal["user", "assistant"]
# Silence before the first sound. A user's turn begins with a little; the assistant's is short,
# because the user would hear it as a wait (a `delay` adds at most 60 ms).
LEAD_SAMPLES: dict[Role, int] = {"user": CODE_SAMPLES, "assistant": 480}
# Silence after the last sound: more than half a mel window, so that utterances do not mix.
_TAIL_SAMPLES: dict[Role, int] = {"user": 1200, "assistant": 1920}
# The end of speech can be masked for the first nine rows, so no reply may be shorter.
LEAST_CODES = 12
_LOUD = 0.01  # share of the utterance's peak below which its ends count as silence
_FRAME_SAMPLES = 240


def lay_out(pcm: NDArray[np.int16], role: Role, delay: int = 0) -> NDArray[np.int16]:
    """Returns 24 kHz pcm in the layout of training. A `delay` in samples gives the same sound other
    codes."""
    lead = LEAD_SAMPLES[role] + delay
    whole = pcm[: len(pcm) // _FRAME_SAMPLES * _FRAME_SAMPLES].reshape(-1, _FRAME_SAMPLES)
    level = np.abs(whole.astype(np.int32)).max(1) if len(whole) else np.zeros(1, np.int32)
    loud = np.flatnonzero(level > max(_LOUD * level.max(), 16))
    if len(loud):
        begin, end = int(loud[0]) * _FRAME_SAMPLES, int(loud[-1] + 1) * _FRAME_SAMPLES
        pcm = pcm[begin:end]
    samples = lead + len(pcm) + _TAIL_SAMPLES[role]
    codes = -(-samples // CODE_SAMPLES)
    if role == "assistant":
        codes = max(codes, LEAST_CODES)
    out = np.zeros(codes * CODE_SAMPLES, np.int16)
    out[lead : lead + len(pcm)] = pcm
    return out
