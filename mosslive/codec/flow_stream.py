"""The flow live: codes come in chunks, mel goes out in chunks, and nothing is computed twice.

`open` computes a voice's prompt once; `fork` of that state starts a reply; `step` advances any
number of replies by a chunk in one batch; `finish` renders the rest. `advance` takes first, further
and last pieces together; `launch` does the same by recorded steps and does not wait for the device.
It does not decide when to step (`flow_hops` does) and has no queue. Invariants: the frames that
`step` returns equal those of `Flow.mel_prefix` for the same codes, whatever codes follow; a stream
that is closed, finished or collected has freed its pages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from mosslive.codec.conformer import FRAMES_PER_TOKEN, LOOK_AHEAD
from mosslive.codec.flow import Codes, Flow, FlowVoice
from mosslive.codec.flow_hops import settled_prompt
from mosslive.codec.flow_pages import FlowPagePool, Pages
from mosslive.codec.flow_step import ChunkInput, FlowStep
from mosslive.codec.flow_voices import VoiceRow
from mosslive.config import SECONDS_PER_CODE, refuse
from mosslive.config.files import is_positive_number
from mosslive.errors import MossliveError
from mosslive.kernels.dispatch import AUTO, Dispatch

TailRule = Literal["reference", "cached"]
POOL_SECONDS = 120.0
_UNUSED = torch.empty(0)


@dataclass(frozen=True)
class StreamSettings:
    chunk: int = 5  # codes; what the weights were trained for (5 or 25)
    # Frames the estimator sees before the chunk it computes; None: all. A bound changes results.
    # The conformer always sees all: its keys and values are half a percent of the memory.
    window_frames: int | None = None
    # Speech that all streams together can store, prompts included, shared ones counted once. The
    # memory is allocated at the start: 115 MB a second in half precision at the published size.
    pool_seconds: float = POOL_SECONDS
    dtype: torch.dtype = torch.float32  # of the estimator's products and of its keys and values
    # On a CPU, record the step of a single stream when it first runs, and run the recording without
    # Python afterwards. Recording takes seconds. The results are the same.
    trace_cpu_steps: bool = True

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise refuse("chunk", self.chunk, "1 or more")
        window = self.window_frames
        if window is not None and (type(window) is not int or window < 0):
            raise refuse("window_frames", window, "0 or more, a whole number, or None")
        if not is_positive_number(self.pool_seconds) or self.pages < 1:
            seconds = self.chunk * SECONDS_PER_CODE
            raise refuse("pool_seconds", self.pool_seconds, f"{seconds:g} or more")

    @property
    def pages(self) -> int:
        return int(round(self.pool_seconds / SECONDS_PER_CODE, 6) // self.chunk)


@dataclass(eq=False)
class FlowState:
    """A reply in progress, or a voice that replies can start from."""

    voice: FlowVoice
    prompt: list[int]
    prompt_feat: Tensor  # [4P, bands] on the flow's device
    speaker: Tensor  # [bands]
    chunk: int  # tokens
    conformer: Pages
    estimator: Pages
    page_bytes: tuple[int, int]  # of the conformer and of the estimator
    codes: list[int]  # of the reply, rendered
    row: VoiceRow | None = None  # of the voice, where steps are recorded
    settled: int = 0  # chunks of the prompt that `open` computed
    closed: bool = False

    @property
    def position(self) -> int:
        """Tokens computed, prompt included."""
        return self.chunk * len(self.conformer.held)

    @property
    def own_bytes(self) -> int:
        """Memory that `close` frees for certain; shared pages are not counted."""
        conformer, estimator = self.page_bytes
        return self.conformer.own * conformer + self.estimator.own * estimator

    def fork(self) -> "FlowState":
        """A second reply that continues from here. Nothing is copied."""
        _require_open(self)
        return replace(
            self,
            conformer=self.conformer.fork(),
            estimator=self.estimator.fork(),
            codes=list(self.codes),
        )

    def close(self) -> None:
        """Frees all pages at once, even if the state is still referenced."""
        self.conformer.close()
        self.estimator.close()
        self.prompt_feat = self.speaker = torch.empty(0)
        self.row = None
        self.closed = True


def check_tail(rule: TailRule) -> TailRule:
    if rule not in get_args(TailRule):
        raise refuse("tail", rule, ", ".join(get_args(TailRule)))
    return rule


class Move(NamedTuple):
    """What one stream computes in one call."""

    state: FlowState
    tokens: list[int]  # to compute, followed by those of the look-ahead
    new: int  # tokens to compute
    codes: list[int]  # the reply's codes among them, the last ones

    @property
    def frames(self) -> int:
        """Mel frames of the codes."""
        return FRAMES_PER_TOKEN * len(self.codes)

    @property
    def chunks(self) -> int:
        """Chunks to compute, and pages to take."""
        return -(-self.new // self.state.chunk)


def next_move(state: FlowState, codes: list[int], last: bool) -> Move:
    """The move for the stream's next codes, which are checked already: a hop and three codes of
    look-ahead, or all that are left."""
    tokens, ahead = state.prompt[state.position :] + codes, 0 if last else LOOK_AHEAD
    return Move(state, tokens, len(tokens) - ahead, codes[: len(codes) - ahead])


class FlowStream:
    def __init__(
        self,
        flow: Flow,
        settings: StreamSettings,
        dispatch: Dispatch = AUTO,
        recorded: bool | None = None,
    ) -> None:
        """Allocates the pool. Streams of one flow and one setting share it. `recorded`: steps are
        graphs; default: on a GPU."""
        self.flow, self.settings = flow, settings
        pages = settings.pages
        # A window frees the estimator's old pages but not the conformer's small ones.
        few = pages if settings.window_frames is None else 4 * pages
        self.pools = FlowPagePool(few, "conformer"), FlowPagePool(pages, "estimator")
        self._step = FlowStep(
            flow,
            settings.chunk,
            settings.window_frames,
            settings.dtype,
            (few, pages),
            settings.trace_cpu_steps,
            dispatch,
            recorded,
        )
        self.recorded = self._step.recorded
        tokens, frames, estimator = (form.page_bytes for form in self._step.forms)
        self._page_bytes = tokens + frames, estimator

    def compile(self, streams: int) -> None:
        """On a GPU: compiles the kernels of a step of this many streams."""
        self._step.compile(streams)

    @torch.no_grad()
    def open(self, voice: FlowVoice) -> FlowState:
        """Computes the chunks of the prompt that no reply can change. Keep the result with the
        voice and start each reply on a fork of it."""
        flow, chunk = self.flow, self.settings.chunk
        prompt: list[int] = flow.check_voice(voice).tolist()
        flow.check_length(len(prompt))
        state = FlowState(
            voice,
            prompt,
            voice.prompt_feat.to(flow.noise),
            flow.speaker(voice),
            chunk,
            *(Pages(self.pools[0]), Pages(self.pools[1])),
            self._page_bytes,
            [],
        )
        settled, frames = settled_prompt(len(prompt), chunk), FRAMES_PER_TOKEN * chunk
        voices = self._step.voices
        if voices is not None:
            state.row = voices.open(state.speaker)
        for begin in range(0, settled, chunk):
            tokens = prompt[begin : begin + chunk + LOOK_AHEAD]
            if state.row is not None:
                mel = FRAMES_PER_TOKEN * begin
                state.row.write_known(0, state.prompt_feat[mel : mel + frames])
                state.settled = begin // chunk
            self.advance([Move(state, tokens, chunk, [])])
        state.settled = settled // chunk
        if state.row is not None and voices is not None:
            rest = state.prompt_feat[FRAMES_PER_TOKEN * settled :]
            for index in range(voices.chunks):
                state.row.write_known(index, rest[frames * index : frames * (index + 1)])
            if flow.noise.is_cuda:  # steps on other CUDA streams read this voice
                torch.cuda.current_stream(flow.noise.device).synchronize()
        return state

    @torch.no_grad()
    def step(self, states: Sequence[FlowState], codes: Sequence[Codes]) -> list[Tensor]:
        """Each stream's next h + 3 codes, from its first code not rendered yet → its next 4h mel
        frames [bands, 4h]. The last three codes are context and come again in the next call. h may
        be 0 before the first hop, where that computes the end of the prompt: see `leads_in`."""
        moves = []
        for state, given in zip(states, codes, strict=True):
            checked = self._checked(state, given)
            hop = len(checked) - LOOK_AHEAD
            reached = len(state.prompt) + len(state.codes) + hop
            least = 0 if state.position < len(state.prompt) else 1
            if hop < least or reached % self.settings.chunk:
                raise MossliveError(
                    f"{len(checked)} codes to a stream with {len(state.prompt)} prompt codes and "
                    f"{len(state.codes)} rendered; allowed: {LOOK_AHEAD} more than end on a "
                    f"multiple of {self.settings.chunk}"
                )
            moves.append(next_move(state, checked, last=False))
        return self.advance(moves) if moves else []

    @torch.no_grad()
    def finish(self, state: FlowState, codes: Codes, rule: TailRule) -> Tensor:
        """The reply's last codes, all that are not rendered yet → their mel [bands, 4n]; the state
        is closed.

        "reference": what the reference does, the whole reply once more with full attention.
        "cached": the streaming mask to the end, from the caches; costs one step, and differs.
        """
        check_tail(rule)
        checked = self._checked(state, codes)
        if not checked:
            mel = self.flow.noise.new_zeros(len(self.flow.noise), 0)
        elif rule == "reference":
            mel = self.whole_tail(state, checked)
        else:
            (mel,) = self.advance([next_move(state, checked, last=True)])
        state.close()
        return mel

    @torch.no_grad()
    def whole_tail(self, state: FlowState, codes: list[int]) -> Tensor:
        """The mel of the last codes by the rule "reference"; the state does not change."""
        whole = self.flow.mel_offline(state.codes + codes, state.voice)
        return whole[:, FRAMES_PER_TOKEN * len(state.codes) :]

    @torch.no_grad()
    def advance(self, moves: Sequence[Move]) -> list[Tensor]:
        """Chunk by chunk, each of all streams that have one; all or nothing. → mel [bands, 4n] of
        the n codes of each move."""
        pieces: list[list[Tensor]] = [[] for _ in moves]

        def run(rows: list[int], inputs: list[ChunkInput], _: int) -> None:
            for row, mel in zip(rows, self._step(inputs), strict=True):
                pieces[row].append(mel)

        self._rounds(moves, run)
        mels = []
        for move, parts in zip(moves, pieces, strict=True):
            move.state.estimator.drop_before(self.old_chunks(move.state))
            end = FRAMES_PER_TOKEN * move.new
            mels.append(torch.cat(parts, 1)[:, end - move.frames : end])
        return mels

    @torch.no_grad()
    def launch(self, moves: Sequence[Move], rows: Sequence[int], urgent: bool) -> list[int]:
        """`advance` by recorded steps, without waiting for the device. The mel of a move is in its
        row of `frames`, from the returned frame on. Pages before a window are not freed, because
        the device may still read them: see `old_chunks`. At most `most` moves."""
        frames = FRAMES_PER_TOKEN * self.settings.chunk

        def run(members: list[int], inputs: list[ChunkInput], chunk: int) -> None:
            places = [(rows[member], frames * chunk) for member in members]
            self._step.launch(inputs, places, urgent)

        self._rounds(moves, run)
        return [FRAMES_PER_TOKEN * move.new - move.frames for move in moves]

    def record(self, streams: int, urgent: bool) -> None:
        """On a GPU: records the step of this many streams. Changes no stream."""
        self._step.record(streams, urgent)

    def frames(self, urgent: bool) -> Tensor:
        """[streams + 1, frames, bands]: what `launch` writes."""
        return self._step.frames(urgent)

    def most(self, urgent: bool) -> int:
        """Moves in one launch."""
        return self._step.most(urgent)

    @property
    def graphs(self) -> int:
        """How many graphs are recorded."""
        return self._step.graphs

    def fitting(self, chunks: Sequence[int]) -> int:
        """How many moves of so many chunks each, from the first on, there are pages for. Raises
        `PoolFull` if there are none for the first."""
        free = min(pool.free for pool in self.pools)
        fits = [total <= free for total in accumulate(chunks)]
        if fits and not fits[0]:
            for pool in self.pools:
                pool.require(chunks[0])
        return sum(fits)

    def old_chunks(self, state: FlowState) -> int:
        """The estimator's pages of so many first chunks are read by no later step."""
        window = self.settings.window_frames
        if window is None:
            return 0
        done, frames = len(state.estimator.held), FRAMES_PER_TOKEN * self.settings.chunk
        # The last page also holds the convolutions' tails.
        return min((frames * done - window) // frames, done - 1)

    def _checked(self, state: FlowState, codes: Codes) -> list[int]:
        _require_open(state)
        checked: list[int] = self.flow.check_codes(codes).tolist()
        self.flow.check_length(len(state.prompt) + len(state.codes) + len(checked))
        return checked

    def _rounds(
        self, moves: Sequence[Move], run: Callable[[list[int], list[ChunkInput], int], None]
    ) -> None:
        """Calls `run` with the rows that have a chunk, their inputs and the number of the chunk,
        until no move has a chunk left. If one call fails, no stream has moved."""
        states = [move.state for move in moves]
        assert len(set(map(id, states))) == len(states), "a stream moves once per call"
        marks = [len(state.conformer.held) for state in states]
        for pool in self.pools:  # before anything is computed
            pool.require(sum(move.chunks for move in moves))
        try:
            for chunk in range(max((move.chunks for move in moves), default=0)):
                rows = [row for row, move in enumerate(moves) if move.chunks > chunk]
                run(rows, [self._input(moves[row], chunk) for row in rows], chunk)
        except BaseException:
            for state, mark in zip(states, marks, strict=True):
                state.conformer.cut(mark)
                state.estimator.cut(mark)
            raise
        for move in moves:
            move.state.codes += move.codes

    def _input(self, move: Move, chunk: int) -> ChunkInput:
        """Chunk 0, 1 ... of the move, with a new page for it."""
        state, tokens = move.state, self.settings.chunk
        index, frames, begin = len(state.conformer.held), FRAMES_PER_TOKEN * tokens, tokens * chunk
        state.conformer.append()
        state.estimator.append()
        row = state.row
        return ChunkInput(
            move.tokens[begin : begin + tokens + LOOK_AHEAD],
            index,
            state.conformer.held,
            state.estimator.held,
            state.speaker,
            state.prompt_feat[frames * index : frames * (index + 1)] if row is None else _UNUSED,
            0 if row is None else row.row,
            0 if row is None else row.known(index - state.settled),
        )


def _require_open(state: FlowState) -> None:
    if state.closed:
        raise MossliveError("this stream is closed; fork an opened voice to start another")
