"""How an utterance lies in time: trimmed, with a set silence before and after, in whole codes.

The bundled voice is taught with speech laid out like this, so its replies are compared with the
synthesiser's answers in the same layout: codes of the same words begun elsewhere are other codes.
Knows samples only.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

CODE_SAMPLES = 1920  # at 24 kHz
Role = Literal["user", "assistant"]
# Before the first sound: a user's turn begins with a little silence; an assistant's wait is heard
# (begun `later` it is at most 60 ms longer).
LEAD_SAMPLES: dict[Role, int] = {"user": CODE_SAMPLES, "assistant": 480}
# After the last sound; more than half a mel window, so that frames of two utterances do not mix.
_TAIL_SAMPLES: dict[Role, int] = {"user": 1200, "assistant": 1920}
# The end of speech may be masked for the first nine rows of a reply: no reply may be shorter.
LEAST_CODES = 12
_LOUD = 0.01  # of the utterance's own peak: below it, ends count as silence
_FRAME_SAMPLES = 240


def laid(pcm: NDArray[np.int16], role: Role, later: int = 0) -> NDArray[np.int16]:
    """pcm at 24 kHz → as it is taught; begun so many samples `later`, the same sound is other
    codes."""
    lead = LEAD_SAMPLES[role] + later
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
