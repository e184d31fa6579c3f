"""The mel of a live reply, chunk by chunk: from the flow's caches, or recomputed each time.

Both give the same mel for rendered chunks. "prefix" renders everything from the start for each
chunk, as the published stream does; "cached" computes nothing twice, and renders many replies in
one batch. Knows nothing of sound.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from torch import Tensor

from mosslive.codec.conformer import FRAMES_PER_TOKEN, LOOK_AHEAD
from mosslive.codec.flow import Flow, FlowVoice
from mosslive.codec.flow_stream import FlowState, FlowStream, TailRule, check_tail

Method = Literal["cached", "prefix"]


class MelSource(Protocol):
    """The mel of one reply."""

    leads_in: bool  # whether `step` takes three codes alone, for the end of the prompt

    def check(self, codes: Sequence[int], tokens: int) -> None:
        """Raises `MossliveError` for a number that is not a code, and if `tokens`, which counts the
        prompt and these codes, exceeds the flow's limit."""

    def step(self, codes: list[int]) -> Tensor:
        """The next hop, 0 to lead in, and three codes of look-ahead → the hop's mel
        [bands, 4 · hop]."""

    def finish(self, codes: list[int]) -> Tensor:
        """All codes not rendered yet → their mel."""

    def close(self) -> None:
        """Frees all memory."""


class PrefixMel:
    """The published stream: the whole prefix again for every chunk."""

    leads_in = False

    def __init__(self, flow: Flow, voice: FlowVoice, chunk: int) -> None:
        self._flow, self._voice, self._chunk = flow, voice, chunk
        self._codes: list[int] = []

    def check(self, codes: Sequence[int], tokens: int) -> None:
        self._flow.check_codes(codes)
        self._flow.check_length(tokens)

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
    leads_in = True

    def __init__(self, stream: FlowStream, opened: FlowState, tail: TailRule) -> None:
        self.stream, self.state, self._tail = stream, opened.fork(), check_tail(tail)

    def check(self, codes: Sequence[int], tokens: int) -> None:
        self.stream.flow.check_codes(codes)
        self.stream.flow.check_length(tokens)

    def step(self, codes: list[int]) -> Tensor:
        return self.stream.step([self.state], [codes])[0]

    def finish(self, codes: list[int]) -> Tensor:
        return self.stream.finish(self.state, codes, self._tail)

    def close(self) -> None:
        if not self.state.closed:
            self.state.close()


def step_together(sources: Sequence[MelSource], codes: Sequence[list[int]]) -> list[Tensor]:
    """`step` of every source. Cached ones, which must share a flow stream, advance in one batch,
    all or none."""
    cached = [row for row, source in enumerate(sources) if isinstance(source, CachedMel)]
    mels: dict[int, Tensor] = {}
    if cached:
        members = [source for source in sources if isinstance(source, CachedMel)]
        (stream,) = {member.stream for member in members}
        moved = stream.step([member.state for member in members], [codes[row] for row in cached])
        mels |= zip(cached, moved, strict=True)
    return [
        mels[row] if row in mels else source.step(codes[row]) for row, source in enumerate(sources)
    ]
