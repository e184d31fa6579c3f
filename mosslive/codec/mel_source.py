"""The mel of a live reply, chunk by chunk: from the flow's caches, or recomputed each time.

Both give the same mel for rendered chunks. "prefix" renders everything from the start for each
chunk, as the published stream does; "cached" computes nothing twice, and renders many replies in
one batch. Knows nothing of sound.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from torch import Tensor

from mosslive.codec.conformer import FRAMES_PER_TOKEN, LOOK_AHEAD
from mosslive.codec.flow import Flow, FlowVoice
from mosslive.codec.flow_stream import (
    FlowState,
    FlowStream,
    Move,
    TailRule,
    check_tail,
    next_move,
)

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

    def move(self, codes: list[int], last: bool) -> Move | None:
        """The move for checked codes, for a step with other replies. None: the last piece is the
        whole reply once more, see `FlowStream.whole_tail`."""
        if last and self._tail == "reference":
            return None
        return next_move(self.state, codes, last)

    def close(self) -> None:
        if not self.state.closed:
            self.state.close()


class Piece(NamedTuple):
    """What one source renders in a common step."""

    source: MelSource
    codes: list[int]  # a hop and three codes of look-ahead; all that are left, if it is the last
    last: bool
    move: Move | None  # of a cached source, unless its last piece is the whole reply once more


def next_piece(source: MelSource, codes: list[int], last: bool) -> Piece:
    move = source.move(codes, last) if isinstance(source, CachedMel) else None
    return Piece(source, codes, last, move)


def fitting(pieces: Sequence[Piece]) -> int:
    """How many pieces, from the first on, there are pages for. Raises `PoolFull` if there are none
    for the first."""
    if not (streams := _streams(pieces)):
        return len(pieces)
    (stream,) = streams
    return stream.fitting([piece.move.chunks if piece.move else 0 for piece in pieces])


def step_together(pieces: Sequence[Piece]) -> list[Tensor]:
    """The mel of every piece. Those of cached sources, which must share a flow stream, advance in
    one batch, all or none."""
    mels: dict[int, Tensor] = {}
    if moves := {row: piece.move for row, piece in enumerate(pieces) if piece.move}:
        (stream,) = _streams(pieces)
        mels |= zip(moves, stream.advance(list(moves.values())), strict=True)
    for row, (source, codes, last, _) in enumerate(pieces):
        if row not in mels:
            mels[row] = source.finish(codes) if last else source.step(codes)
    return [mels[row] for row in range(len(pieces))]


def _streams(pieces: Sequence[Piece]) -> set[FlowStream]:
    return {piece.source.stream for piece in pieces if isinstance(piece.source, CachedMel)}
