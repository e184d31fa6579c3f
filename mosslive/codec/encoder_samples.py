"""The samples of one segment of a turn, cut into what the features of its blocks need.

Host memory only. Knows neither features nor devices. Invariant: what is taken does not depend on
how the sound was cut into packets.
"""

import numpy as np
from numpy.typing import NDArray

from mosslive.codec.mel import BLOCK_SAMPLES, HEARING_HOP_SAMPLES, HEARING_N_FFT

Samples = NDArray[np.float32]

# Samples of its own block that a code needs: its last frame, the seventh, is at sample 960.
_EDGE_SAMPLES = HEARING_N_FFT // 2
_NEEDED_SAMPLES = 6 * HEARING_HOP_SAMPLES + _EDGE_SAMPLES
# A block's eight frames reach this far beyond a block, from the start of the first one on.
_OVERLAP_SAMPLES = HEARING_N_FFT - HEARING_HOP_SAMPLES
WINDOW_SAMPLES = BLOCK_SAMPLES + _OVERLAP_SAMPLES  # of the eight frames of a block
LAST_SAMPLES = HEARING_N_FFT  # of the one frame after the last block


class SegmentSamples:
    """Sound at 16 kHz of one segment; the caller pushes no more than a segment holds."""

    def __init__(self) -> None:
        self.count = 0  # samples pushed
        self.taken = 0  # blocks taken
        # From the first frame of the next block on.
        self._waiting: list[Samples] = []

    def push(self, pcm: Samples) -> None:
        if len(pcm):
            self.count += len(pcm)
            self._waiting.append(pcm)

    def copy(self) -> "SegmentSamples":
        copied = SegmentSamples()
        copied.count, copied.taken, copied._waiting = self.count, self.taken, [*self._waiting]
        return copied

    @property
    def blocks(self) -> int:
        """Blocks of the segment if it ends now, the last one filled up with silence."""
        return -(-self.count // BLOCK_SAMPLES)

    @property
    def whole(self) -> int:
        """Blocks that can be taken: all their samples have come."""
        return max(0, (self.count - _NEEDED_SAMPLES) // BLOCK_SAMPLES + 1 - self.taken)

    def take(self, blocks: int) -> Samples:
        """The samples of the frames of the next blocks: [blocks · 1280 + 240]."""
        waiting = np.concatenate(self._waiting)
        if not self.taken:
            waiting = _with_front(waiting)
        size = blocks * BLOCK_SAMPLES
        self._waiting = [waiting[size:].copy()]
        self.taken += blocks
        return waiting[: size + _OVERLAP_SAMPLES]

    def take_rest(self) -> Samples:
        """Ends the segment: the samples of the frames of all further blocks and of one frame more,
        which no code uses but which may be the loudest. It sees the end mirrored."""
        pad = np.zeros(-self.count % BLOCK_SAMPLES, np.float32)
        waiting = np.concatenate((*self._waiting, pad))
        if not self.taken:
            waiting = _with_front(waiting)
        beyond = _OVERLAP_SAMPLES - _EDGE_SAMPLES
        self._waiting, self.taken = [], self.blocks
        return np.concatenate((waiting, waiting[-beyond - 1 : -1][::-1]))


def windows(samples: Samples) -> list[Samples]:
    """[n · 1280 + 240 or 400] → n views of [1520], the samples of each block's frames."""
    firsts = range(0, len(samples) - WINDOW_SAMPLES + 1, BLOCK_SAMPLES)
    return [samples[first : first + WINDOW_SAMPLES] for first in firsts]


def _with_front(samples: Samples) -> Samples:
    """The start of a segment as its first frames see it: mirrored, after one hop of zeros."""
    front = np.zeros(HEARING_HOP_SAMPLES, np.float32)
    return np.concatenate((front, samples[1 : _EDGE_SAMPLES + 1][::-1], samples))
