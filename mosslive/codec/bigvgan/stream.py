"""One mel that still grows → its waveform; the rows of a batched mel advance together.

A `BigVganVocoder` with a single stream; see there for the look-ahead.
"""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from mosslive.codec.bigvgan.network import BigVganNetwork
from mosslive.codec.bigvgan.vocoder import BigVganVocoder
from mosslive.errors import MossliveError


class BigVganStream:
    """`push` takes mel and returns samples; `finish` returns the rest."""

    def __init__(self, network: BigVganNetwork, look_ahead_frames: int | None = None) -> None:
        self._vocoder = BigVganVocoder(network, look_ahead_frames)
        self.look_ahead_frames = self._vocoder.delay_frames
        self._stream = self._vocoder.open()
        self._no_mel: Tensor | None = None  # [B, bands, 0]
        self._batched = False
        self._finished = False

    @torch.no_grad()
    def push(self, mel: Tensor | NDArray[Any]) -> Tensor:
        """mel [B, bands, n] or [bands, n], any n → the samples that are due, [B, s] or [s]."""
        self._require_open()
        frames = self._vocoder.network.accept(mel)
        if self._no_mel is not None and len(frames) != len(self._no_mel):
            rows = len(self._no_mel)
            raise MossliveError(
                f"a mel of {len(frames)} rows in a stream that has {rows}; allowed: {rows}"
            )
        self._no_mel, self._batched = frames[..., :0], mel.ndim == 3
        return self._shaped(self._vocoder.push_rows([self._stream], [frames])[0])

    @torch.no_grad()
    def finish(self) -> Tensor:
        """The samples [B, s] or [s] that are left. The stream is closed afterwards."""
        self._require_open()
        self._finished = True
        if self._no_mel is None:
            return torch.zeros(0)
        return self._shaped(self._vocoder.finish_rows(self._stream, self._no_mel))

    def _shaped(self, wave: Tensor) -> Tensor:
        return wave if self._batched else wave[0]

    def _require_open(self) -> None:
        if self._finished:
            raise MossliveError("this stream is finished; open another for the next mel")
