"""Times of flow and HiFT for one 5-code chunk of several replies, as the package renders it.

Cached: replies stand at different points behind a shared voice prompt, move by a chunk in one batch
(on a GPU a recorded step), and go back before each call. Prefix: the published way, everything
anew, in the same run. HiFT's noise is off: equal noise is needed to compare. Invariant: stream 0 is
the same in every row, and its mel and sound are compared with the CPU's prefix recomputation.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import get_args

import torch
from torch import Tensor

from mosslive.bench.codec_check import HALVES, LEAST_COSINE, Form, Row, compare, timed
from mosslive.bench.codec_networks import Pair, normal, some_codes
from mosslive.bench.verified import NotVerified
from mosslive.codec.conformer import FRAMES_PER_TOKEN, LOOK_AHEAD
from mosslive.codec.flow import Flow, FlowVoice
from mosslive.codec.flow_stream import FlowStream, StreamSettings
from mosslive.codec.hift import Hift
from mosslive.codec.hift_stream import HiftStream
from mosslive.config import SECONDS_PER_CODE
from mosslive.kernels.arithmetic import Precision, arithmetic

CHUNK_CODES = 5
PROMPT_CODES = 50
REPLY_CODES = 50  # rendered before the timed chunk, by stream 0
STREAMS = (1, 8, 32, 64)
GOAL_MS = 25.0  # at 1 stream
_POSITIONS = 4  # streams stand 0 to 3 chunks further than stream 0
_SOUND_MS = 1e3 * SECONDS_PER_CODE * CHUNK_CODES

Sounds = tuple[list[Tensor], list[Tensor]]  # mel [bands, 20] and samples of each stream


def speaking_rows(pair: Pair, repeats: int, streams: tuple[int, ...] = STREAMS) -> Iterator[Row]:
    cpu_flow, flow = pair.flow()
    cpu_hift, hift = pair.hift()
    with torch.no_grad():
        first, rest = _Prefix(cpu_flow, cpu_hift).chunk()
        wanted = first[0], rest[0]
        with arithmetic("fp32", trials=True):
            prefix = _Prefix(flow, hift)
            row = Row("flow + HiFT", "5-code chunk, prefix", 1, "fp32", "eager", 0, 0, _SOUND_MS)
            yield _measured(row, prefix.chunk, prefix.back, wanted, pair.device, repeats)
        for precision in get_args(Precision):
            # Halves are the estimator's own affair; all else stays float32, as in the package.
            sums: Precision = "tf32" if precision == "tf32" else "fp32"
            with arithmetic(sums, trials=True), _pitch_exact(hift):
                for count in streams:
                    yield _cached_row(pair, flow, hift, count, precision, wanted, repeats)


def _cached_row(
    pair: Pair,
    flow: Flow,
    hift: Hift,
    count: int,
    precision: Precision,
    wanted: tuple[Tensor, Tensor],
    repeats: int,
) -> Row:
    if pair.device == "cuda":
        torch.cuda.empty_cache()  # the largest count takes most of the memory
    form: Form = "graph" if pair.device == "cuda" else "eager"
    row = Row("flow + HiFT", "5-code chunk, cached", count, precision, form, 0, 0, _SOUND_MS)
    row = replace(row, goal_ms=GOAL_MS if count == 1 else None)
    replies = _Replies(flow, hift, count, HALVES.get(precision, torch.float32))
    return _measured(row, replies.chunk, replies.back, wanted, pair.device, repeats)


def _measured(
    row: Row,
    work: Callable[[], Sounds],
    back: Callable[[], None],
    wanted: tuple[Tensor, Tensor],
    place: str,
    repeats: int,
) -> Row:
    back()
    mels, waves = work()
    name = f"{row.part}, {row.what}, {row.streams} streams, {row.precision}"
    for mel, wave in zip(mels[1:], waves[1:], strict=True):
        compare(name, mel, mel)  # with nothing, but never NaN or silence
        compare(name, wave, wave)
    close, heard = compare(name, mels[0], wanted[0]), compare(name, waves[0], wanted[1])
    # By cosine even in float32: the phase sums up the rounding of the pitch.
    if row.precision == "fp32" and heard.cosine < LEAST_COSINE:
        raise NotVerified(f"{name}: the sound's cosine with the CPU's is {heard.cosine:.5f}")
    row = replace(row, error=close.error, cosine=close.cosine, wave_cosine=heard.cosine)
    return timed(row, work, place, repeats, back)


def _voice(flow: Flow) -> FlowVoice:
    return FlowVoice(
        torch.tensor(some_codes(0, PROMPT_CODES, flow.settings.code_limit)),
        normal(4, FRAMES_PER_TOKEN * PROMPT_CODES, len(flow.noise)),
        normal(5, flow.dims.speaker),
    )


def _codes(flow: Flow, stream: int) -> list[int]:
    """Up to and with the timed chunk and what it looks ahead at."""
    count = REPLY_CODES + CHUNK_CODES * (stream % _POSITIONS + 1) + LOOK_AHEAD
    return some_codes(100 + stream, count, flow.settings.code_limit)


class _Vocoding:
    """HiFT's streams, and the way back to before the timed chunk."""

    def __init__(self, hift: Hift, before: list[Tensor]) -> None:
        self._stream = HiftStream(hift)
        self._voices = [self._stream.open() for _ in before]
        self._stream.push(self._voices, before)
        self._marks = [dict(vars(voice)) for voice in self._voices]

    def __call__(self, mels: list[Tensor]) -> list[Tensor]:
        return self._stream.push(self._voices, mels)

    def back(self) -> None:
        """A push replaces what a stream holds and changes none of it."""
        for voice, mark in zip(self._voices, self._marks, strict=True):
            vars(voice).update(mark)


class _Prefix:
    """Stream 0 alone, recomputed from the prompt's start on."""

    def __init__(self, flow: Flow, hift: Hift) -> None:
        self._flow, self._codes, self._voice = flow, _codes(flow, 0), _voice(flow)
        before = self._mel(self._codes[:-CHUNK_CODES])
        self._vocoding = _Vocoding(hift, [before])
        self.back = self._vocoding.back

    def chunk(self) -> Sounds:
        mels = [self._mel(self._codes)[:, FRAMES_PER_TOKEN * REPLY_CODES :]]
        return mels, self._vocoding(mels)

    def _mel(self, codes: list[int]) -> Tensor:
        return self._flow.mel_prefix(codes, self._voice, CHUNK_CODES, finalize=False)


class _Replies:
    """Streams that have spoken for a while and are about to render the same chunk each time."""

    def __init__(self, flow: Flow, hift: Hift, count: int, dtype: torch.dtype) -> None:
        codes = [_codes(flow, stream) for stream in range(count)]
        # Each has the last chunk of the prompt to itself: it looks ahead at the reply.
        chunks = sum(len(row) // CHUNK_CODES + 1 for row in codes) + PROMPT_CODES // CHUNK_CODES
        seconds = SECONDS_PER_CODE * CHUNK_CODES * chunks
        self._stream = FlowStream(flow, StreamSettings(CHUNK_CODES, None, seconds, dtype))
        opened = self._stream.open(_voice(flow))
        self._states = [opened.fork() for _ in codes]
        self._codes = [row[-CHUNK_CODES - LOOK_AHEAD :] for row in codes]
        before = self._stream.step(self._states, [row[:-CHUNK_CODES] for row in codes])
        self._vocoding = _Vocoding(hift, before)
        self._marks = [state.fork() for state in self._states]

    def back(self) -> None:
        for state, mark in zip(self._states, self._marks, strict=True):
            state.conformer.close()
            state.estimator.close()
            vars(state).update(vars(mark.fork()))
        self._vocoding.back()

    def chunk(self) -> Sounds:
        mels = self._stream.step(self._states, self._codes)
        return mels, self._vocoding(mels)


@contextmanager
def _pitch_exact(hift: Hift) -> Iterator[None]:
    """The pitch and the hum made from it never go through TF32."""
    with ExitStack() as hooks:
        for module in (hift.f0_predictor, hift.m_source):
            running = ExitStack()

            def before(*_: object, running: ExitStack = running) -> None:
                running.enter_context(arithmetic("fp32"))

            def after(*_: object, running: ExitStack = running) -> None:
                running.close()

            hooks.callback(module.register_forward_pre_hook(before).remove)
            hooks.callback(module.register_forward_hook(after).remove)
        yield
