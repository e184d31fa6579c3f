"""Times of flow and HiFT for one 5-code chunk of several replies, in the cached form.

Every stream stands behind a voice prompt and a piece of reply, and goes back there before each
call. HiFT's noise is off: drawing it is not timed, and equal noise is needed to compare. Invariant:
stream 0 is the same in every row, and its mel and sound are compared with the CPU's.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import torch
from torch import Tensor, nn

from mosslive.bench.codec_check import (
    HALVES,
    LEAST_COSINE,
    Form,
    Row,
    compare,
    timed,
)
from mosslive.bench.codec_networks import Pair, normal, some_codes
from mosslive.bench.step import NotVerified
from mosslive.codec.conformer import FRAMES_PER_TOKEN, LOOK_AHEAD
from mosslive.codec.flow import Flow, FlowVoice
from mosslive.codec.flow_memory import Memory
from mosslive.codec.flow_resume import Resumed, Sight
from mosslive.codec.flow_solver import Condition, solve
from mosslive.codec.flow_stream import FlowState, FlowStream, StreamSettings
from mosslive.codec.hift import Hift
from mosslive.codec.hift_stream import HiftStream
from mosslive.kernels.arithmetic import Precision, arithmetic
from mosslive.kernels.graph import Graphed, is_recording

CHUNK_CODES = 5
PROMPT_CODES = 50
REPLY_CODES = 50  # rendered before the timed chunk
STREAMS = (1, 8, 32, 64)
GOAL_MS = 25.0  # at 1 stream
_GRAPH_STREAMS = (1, 8)  # attention goes stream by stream: more would be 100,000s of nodes
_CODE_MS = 80.0

Sounds = tuple[list[Tensor], list[Tensor]]  # mel [bands, 20] and samples of each stream


def speaking_rows(pair: Pair, repeats: int, streams: tuple[int, ...] = STREAMS) -> Iterator[Row]:
    cpu_flow, flow = pair.flow()
    cpu_hift, hift = pair.hift()
    _keep_pitch_exact(hift)
    with torch.no_grad():
        mels, waves = _Replies(cpu_flow, cpu_hift, 1).chunk()
        wanted = mels[0], waves[0]
        for precision in ("fp32", "tf32", "bf16", "fp16"):
            half = HALVES.get(precision)
            used = flow if half is None else copy.deepcopy(flow).to(half)
            for count in streams:
                with arithmetic(precision, trials=True):
                    yield from _rows(pair.device, used, hift, count, precision, wanted, repeats)


def _rows(
    place: str,
    flow: Flow,
    hift: Hift,
    count: int,
    precision: Precision,
    wanted: tuple[Tensor, Tensor],
    repeats: int,
) -> Iterator[Row]:
    if place == "cuda":
        torch.cuda.empty_cache()  # the largest count takes most of the memory
    replies = _Replies(flow, hift, count)
    forms: dict[Form, Callable[[], Sounds]] = {"eager": replies.chunk}
    if count in _GRAPH_STREAMS:
        forms["graph"] = replies.recorded()
    for form, work in forms.items():
        replies.back()
        mels, waves = work()
        name = f"flow + HiFT, {count} streams, {precision}, {form}"
        for index in range(1, count):  # compared with nothing, but never NaN or silence
            compare(name, mels[index], mels[index])
            compare(name, waves[index], waves[index])
        close, heard = compare(name, mels[0], wanted[0]), compare(name, waves[0], wanted[1])
        # By cosine even in float32: the phase sums up the rounding of the pitch.
        if precision == "fp32" and heard.cosine < LEAST_COSINE:
            raise NotVerified(f"{name}: the sound's cosine with the CPU's is {heard.cosine:.5f}")
        what = f"{CHUNK_CODES}-code chunk" + (", at one position" if form == "graph" else "")
        sound_ms = _CODE_MS * CHUNK_CODES
        row = Row("flow + HiFT", what, count, precision, form, close.error, close.cosine, sound_ms)
        row = replace(row, wave_cosine=heard.cosine, goal_ms=GOAL_MS if count == 1 else None)
        yield timed(row, work, place, repeats, replies.back)


class _Replies:
    """Streams that have spoken for a while and are about to render the same chunk each time."""

    def __init__(self, flow: Flow, hift: Hift, count: int) -> None:
        bands, limit = len(flow.noise), flow.settings.code_limit
        voice = FlowVoice(
            torch.tensor(some_codes(0, PROMPT_CODES, limit)),
            normal(4, FRAMES_PER_TOKEN * PROMPT_CODES, bands),
            normal(5, flow.dims.speaker),
        )
        said = REPLY_CODES + CHUNK_CODES + LOOK_AHEAD
        codes = [some_codes(100 + index, said, limit) for index in range(count)]
        self._codes = [row[REPLY_CODES:] for row in codes]
        self._stream = FlowStream(flow, StreamSettings(CHUNK_CODES))
        opened = self._stream.open(voice)
        self._states = [opened.fork() for _ in codes]
        self._vocoder = HiftStream(hift)
        self._voices = [self._vocoder.open() for _ in codes]
        before = [row[: REPLY_CODES + LOOK_AHEAD] for row in codes]
        self._vocoder.push(self._voices, self._stream.step(self._states, before))
        self._marks = [
            [(memory, memory.own.length, memory.tails) for memory in _memories(state)]
            for state in self._states
        ]
        self._voice_marks = [dict(vars(voice)) for voice in self._voices]

    def back(self) -> None:
        """To before the chunk. A memory counts its columns only up to its length, so setting the
        length is enough; everything else was replaced, not changed."""
        for state, marks in zip(self._states, self._marks, strict=True):
            del state.codes[REPLY_CODES:]
            for memory, length, tails in marks:
                memory.own.length, memory.tails = length, tails
        for voice, mark in zip(self._voices, self._voice_marks, strict=True):
            vars(voice).update(mark)

    def chunk(self) -> Sounds:
        mels = self._stream.step(self._states, self._codes)
        return mels, self._vocoder.push(self._voices, mels)

    def recorded(self) -> Callable[[], Sounds]:
        """The same pass as a graph. It holds for this position only and leaves the memories'
        lengths alone: what the host decides (which columns are read and written) is made before,
        and not timed. A runtime would have to hand that in as tensors."""
        self.back()
        flow, device = self._stream.flow, self._stream.flow.noise.device
        start = FRAMES_PER_TOKEN * self._states[0].position
        noise = flow.noise[:, start : start + FRAMES_PER_TOKEN * CHUNK_CODES]
        noise = noise.expand(len(self._states), -1, -1)
        speaker = torch.stack([state.speaker for state in self._states])
        codes = torch.tensor(self._codes, device=device)
        present = torch.ones_like(codes, dtype=torch.bool)
        ready = self._pasts()

        def work(codes: Tensor) -> Sounds:
            # A past serves one pass; lists of numbers cannot go to the device while recording.
            tokens, frames, estimator = ready if is_recording() else self._pasts()
            mu = flow.mu(codes, present, tokens, frames)
            condition = Condition(mu, speaker, torch.zeros_like(noise))
            mels = list(solve(flow.estimator, noise, condition, estimator, flow.settings))
            self.back()
            return mels, self._vocoder.push(self._voices, mels)

        graph = Graphed(work, codes)
        return lambda: graph(codes)

    def _pasts(self) -> tuple[Resumed, Resumed, Resumed]:
        block, table = self._stream.settings.block, self._stream.flow.encoder.table
        wide = Sight(FRAMES_PER_TOKEN * CHUNK_CODES, None, FRAMES_PER_TOKEN * block)
        new = [CHUNK_CODES] * len(self._states)
        new_frames = [FRAMES_PER_TOKEN * CHUNK_CODES] * len(self._states)
        tokens, frames, estimator = zip(*map(_memories, self._states), strict=True)
        return (
            Resumed(tokens, new, Sight(CHUNK_CODES, None, block), table),
            Resumed(frames, new_frames, wide, table),
            Resumed(estimator, new_frames, wide),
        )


def _memories(state: FlowState) -> tuple[Memory, Memory, Memory]:
    return state.tokens, state.frames, state.estimator


def _keep_pitch_exact(hift: Hift) -> None:
    """The pitch and the hum made from it never go through TF32."""
    for module in (hift.f0_predictor, hift.m_source):
        _exactly(module)


def _exactly(module: nn.Module) -> None:
    inside = ExitStack()

    def before(*_: object) -> None:
        inside.enter_context(arithmetic("fp32"))

    def after(*_: object) -> None:
        inside.close()

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)
