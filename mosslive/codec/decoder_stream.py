"""A reply spoken while its codes arrive: the hop rule, the flow and the vocoder joined.

Two ways that give the same sound for committed chunks: "prefix" renders everything from the start
for each chunk, as the published stream does; "cached" computes nothing twice. Invariant: a finished
stream has given exactly 1920 samples per code at the published sizes.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mosslive.codec.conformer import FRAMES_PER_TOKEN, LOOK_AHEAD
from mosslive.codec.flow import Flow, FlowVoice
from mosslive.codec.flow_hops import next_hop
from mosslive.codec.flow_stream import FlowState, FlowStream, TailRule
from mosslive.codec.hift_stream import HiftStream
from mosslive.errors import MossliveError

Method = Literal["cached", "prefix"]


class MelSource(Protocol):
    """Codes → mel, chunk by chunk, then the rest."""

    def step(self, codes: list[int]) -> Tensor:
        """The next hop and three codes of look-ahead → the hop's mel [bands, 4 · hop]."""

    def finish(self, codes: list[int]) -> Tensor:
        """All codes not rendered yet → their mel."""

    def close(self) -> None:
        """Lets go of all memory."""


class PrefixMel:
    """The published stream: the whole prefix again for every chunk."""

    def __init__(self, flow: Flow, voice: FlowVoice, chunk: int) -> None:
        self._flow, self._voice, self._chunk = flow, voice, chunk
        self._codes: list[int] = []

    def step(self, codes: list[int]) -> Tensor:
        mel = self._flow.mel_prefix(self._codes + codes, self._voice, self._chunk, finalize=False)
        new = mel[:, FRAMES_PER_TOKEN * len(self._codes) :]
        self._codes += codes[:-LOOK_AHEAD]
        return new

    def finish(self, codes: list[int]) -> Tensor:
        mel = self._flow.mel_offline(self._codes + codes, self._voice)
        return mel[:, FRAMES_PER_TOKEN * len(self._codes) :]

    def close(self) -> None:
        self._codes = []


class CachedMel:
    def __init__(self, stream: FlowStream, opened: FlowState, tail: TailRule) -> None:
        self._stream, self._state, self._tail = stream, opened.fork(), tail

    def step(self, codes: list[int]) -> Tensor:
        return self._stream.step([self._state], [codes])[0]

    def finish(self, codes: list[int]) -> Tensor:
        return self._stream.finish(self._state, codes, self._tail)

    def close(self) -> None:
        if not self._state.closed:
            self._state.close()


class DecoderStream:
    """push codes as they come, finish when the reply ends, close to drop it at any time."""

    def __init__(
        self,
        mel: MelSource,
        vocoder: HiftStream,
        prompt_codes: int,
        chunk: int,
        generator: torch.Generator | None,
    ) -> None:
        self._mel, self._vocoder = mel, vocoder
        self._prompt, self._chunk = prompt_codes, chunk
        self._state = vocoder.open(generator)
        self._waiting: list[int] = []  # codes not rendered yet
        self._rendered = 0
        self._open = True

    def push(self, codes: Sequence[int]) -> NDArray[np.float32]:
        """The samples these codes settle; empty while a chunk and its look-ahead are not whole."""
        self._require_open()
        self._waiting += [int(code) for code in codes]
        pieces = []
        while hop := next_hop(
            self._rendered + len(self._waiting), self._rendered, self._prompt, self._chunk
        ):
            mel = self._mel.step(self._waiting[: hop + LOOK_AHEAD])
            pieces += self._vocoder.push([self._state], [mel])
            self._waiting = self._waiting[hop:]
            self._rendered += hop
        return _joined(pieces)

    def finish(self) -> NDArray[np.float32]:
        """Everything still owed; the stream is closed."""
        self._require_open()
        mels = [self._mel.finish(self._waiting)] if self._waiting else []
        bands = self._vocoder.hift.settings.mel_bins
        mel = mels[0] if mels else torch.zeros(bands, 0, device=self._state.mel.device)
        rest = self._vocoder.finish([self._state], [mel]) if self._rendered or mels else []
        self.close()
        return _joined(rest)

    def close(self) -> None:
        """Frees all memory of the reply; nothing more comes."""
        self._mel.close()
        self._waiting = []
        self._open = False

    def _require_open(self) -> None:
        if not self._open:
            raise MossliveError("this reply was finished or closed; open another stream")


def _joined(pieces: list[Tensor]) -> NDArray[np.float32]:
    if not pieces:
        return np.zeros(0, dtype=np.float32)
    joined: NDArray[np.float32] = torch.cat(pieces).float().cpu().numpy()
    return joined
