"""Rows of device memory for what a voice gives to every step: its speaker vector and prompt mel.

A recorded step finds them by row number, so the host sends two numbers and not the values. Knows
nothing of networks. Invariants: row 0 of both is zeros and is never taken; a row is free when the
last stream of its voice is closed or collected.
"""

import torch
from torch import Tensor

from mosslive.codec.flow_pages import PoolFull

_VOICES = 512  # that can be open at once


class VoiceRow:
    """The row of one open voice, shared by its replies; freed when it is collected."""

    def __init__(self, rows: "VoiceRows", row: int) -> None:
        self._rows, self.row = rows, row

    def known(self, chunk: int) -> int:
        """The row of the prompt mel of chunk 0, 1 ... after the settled prompt; 0: no mel."""
        chunks = self._rows.chunks
        return 1 + chunks * (self.row - 1) + chunk if 0 <= chunk < chunks else 0

    def write_known(self, chunk: int, mel: Tensor) -> None:
        """mel [n, bands], n may be less than a chunk's frames."""
        target = self._rows.known[self.known(chunk)]
        target.zero_()
        target[: len(mel)] = mel

    def __del__(self) -> None:
        self._rows.free.append(self.row)


class VoiceRows:
    def __init__(self, bands: int, frames: int, chunks: int, device: torch.device) -> None:
        """`frames` of a chunk; `chunks` of a prompt that are not computed with the voice."""
        self.chunks = chunks
        self.speakers = torch.zeros(1 + _VOICES, bands, device=device)
        self.known = torch.zeros(1 + chunks * _VOICES, frames, bands, device=device)
        self.free = list(range(_VOICES, 0, -1))

    def open(self, speaker: Tensor) -> VoiceRow:
        """Raises `PoolFull` if too many voices are open."""
        if not self.free:
            raise PoolFull(f"{_VOICES} voices are open; close some of them to open another")
        voice = VoiceRow(self, self.free.pop())
        self.speakers[voice.row] = speaker
        return voice
