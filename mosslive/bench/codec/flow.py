"""Times flow and HiFT for one 5-code chunk of several replies, as the package renders it.

Cached: replies at different positions behind a shared voice prompt advance by one chunk in one
batch (on a GPU a recorded step) and are reset before each call. Prefix: the published way, which
recomputes everything, in the same run. HiFT's noise is off, because a comparison needs equal noise.
Invariant: stream 0 is the same in every row, and its mel and sound are compared with the CPU's
prefix recomputation.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from mosslive.bench.codec.check import HALVES, LEAST_COSINE, Row, compare, timed
from mosslive.bench.codec.networks import NetworkPair, normal, some_codes
from mosslive.bench.codec.precompile import CompileJob, compiling
from mosslive.bench.verified import NotVerified
from mosslive.codec.conformer import FRAMES_PER_TOKEN, LOOK_AHEAD
from mosslive.codec.flow import Flow, FlowVoice
from mosslive.codec.flow_stream import FlowState, FlowStream, StreamSettings
from mosslive.codec.hift import Hift
from mosslive.codec.hift.arena import OVERLAP_FRAMES
from mosslive.codec.hift.stream import HiftStream
from mosslive.config import SECONDS_PER_CODE
from mosslive.kernels.arithmetic import Precision, arithmetic

CHUNK_CODES = 5
PROMPT_CODES = 50
REPLY_CODES = 50  # rendered before the timed chunk, by stream 0
STREAMS = (1, 8, 32, 64)
GOAL_MS = 25.0  # at 1 stream
_HIFT_PROCESSES = 4  # to compile HiFT's kernels
_POSITIONS = 4  # streams are up to 3 chunks ahead of stream 0
_SOUND_MS = 1e3 * SECONDS_PER_CODE * CHUNK_CODES
_CHUNK_FRAMES = FRAMES_PER_TOKEN * CHUNK_CODES
_WINDOWS = (OVERLAP_FRAMES + _CHUNK_FRAMES, FRAMES_PER_TOKEN * REPLY_CODES)  # of HiFT, in frames

Sounds = tuple[list[Tensor], list[Tensor]]  # mel [bands, 20] and samples of each stream


def flow_rows(pair: NetworkPair, repeats: int, streams: tuple[int, ...] = STREAMS) -> Iterator[Row]:
    counts: dict[Precision, tuple[int, ...]]
    # bf16 and fp16 differ in rounding, not in time.
    counts = {"fp32": streams, "bf16": streams, "fp16": streams[:1]}
    cuda = pair.device == "cuda"
    jobs = [
        CompileJob("flow", precision, (count,))
        for precision in counts
        for count in counts[precision]
    ]
    jobs += CompileJob("hift", "fp32", streams, _WINDOWS).split(_HIFT_PROCESSES)
    with torch.no_grad(), arithmetic("fp32", cudnn_benchmark=True):
        with compiling(pair.size, pair.device, jobs):
            cpu_flow, flow = pair.flow()
            cpu_hift, hift = pair.hift()
            mels, waves = _Prefix(cpu_flow, cpu_hift).first()
            wanted = mels[0], waves[0]
        prefix = _Prefix(flow, hift)
        row = Row("flow + HiFT", "5-code chunk, prefix", 1, "fp32", "eager", 0, 0, _SOUND_MS)
        yield _measured(row, prefix.chunk, prefix.back, wanted, pair.device, repeats)
        for precision in counts:
            dtype = HALVES.get(precision, torch.float32)
            scene = _Scene(flow, hift, max(counts[precision]), dtype)
            for count in counts[precision]:
                row = replace(
                    row,
                    what="5-code chunk, cached",
                    streams=count,
                    precision=precision,
                    form="graph" if cuda else "eager",
                    goal_ms=GOAL_MS if count == 1 else None,
                )
                replies = scene.replies(count)
                yield _measured(row, replies.chunk, replies.back, wanted, pair.device, repeats)
                del replies  # frees its pages
            del scene
            if cuda:
                torch.cuda.empty_cache()  # the pool of the next precision needs the memory


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
        compare(name, mel, mel)  # with itself: raises for NaN or silence
        compare(name, wave, wave)
    close, heard = compare(name, mels[0], wanted[0]), compare(name, waves[0], wanted[1])
    # By cosine even in float32: the phase accumulates the rounding of the pitch.
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


def _lead(stream: int) -> int:
    """Returns the number of first codes that a reply shares with others."""
    return CHUNK_CODES * (stream % _POSITIONS + 1)


def _codes(flow: Flow, stream: int) -> list[int]:
    """Returns the codes of a reply up to the end of the timed chunk and its look-ahead."""
    limit, common = flow.settings.code_limit, _lead(stream) + LOOK_AHEAD
    own = some_codes(100 + stream, REPLY_CODES + CHUNK_CODES, limit)
    return some_codes(99, _lead(-1) + LOOK_AHEAD, limit)[:common] + own


class _Vocoding:
    """HiFT's streams, with a reset to the state before the timed chunk."""

    def __init__(self, hift: Hift, before: list[Tensor]) -> None:
        self._stream = HiftStream(hift)
        self._voices = [self._stream.open() for _ in before]
        self._stream.push(self._voices, before)
        self._marks = [dict(vars(voice)) for voice in self._voices]

    def __call__(self, mels: list[Tensor]) -> list[Tensor]:
        return self._stream.push(self._voices, mels)

    def back(self) -> None:
        """Resets the streams. A push replaces the fields of a stream and modifies none in place."""
        for voice, mark in zip(self._voices, self._marks, strict=True):
            vars(voice).update(mark)


class _Prefix:
    """Stream 0 alone, recomputed from the start of the prompt."""

    def __init__(self, flow: Flow, hift: Hift) -> None:
        self._flow, self._codes, self._voice = flow, _codes(flow, 0), _voice(flow)
        self._whole = self._mel(self._codes)
        before = self._whole[:, :-_CHUNK_FRAMES]
        # Cut like the cached streams, because the cuts of the mel affect the sound.
        self._vocoding = _Vocoding(hift, [before[:, -FRAMES_PER_TOKEN * REPLY_CODES :]])
        self.back = self._vocoding.back

    def first(self) -> Sounds:
        """Returns the chunk from the mel that is already computed: at full size a CPU needs seconds
        for it."""
        mels = [self._whole[:, -_CHUNK_FRAMES:]]
        return mels, self._vocoding(mels)

    def chunk(self) -> Sounds:
        mels = [self._mel(self._codes)[:, -_CHUNK_FRAMES:]]
        return mels, self._vocoding(mels)

    def _mel(self, codes: list[int]) -> Tensor:
        return self._flow.mel_prefix(codes, self._voice, CHUNK_CODES, finalize=False)


class _Scene:
    """A voice and the positions at which replies fork from it, in a pool for the largest batch."""

    def __init__(self, flow: Flow, hift: Hift, most: int, dtype: torch.dtype) -> None:
        self._hift = hift
        shared = PROMPT_CODES // CHUNK_CODES + _POSITIONS
        chunks = most * (REPLY_CODES // CHUNK_CODES + 1) + shared
        seconds = SECONDS_PER_CODE * CHUNK_CODES * chunks
        self._stream = FlowStream(flow, StreamSettings(CHUNK_CODES, None, seconds, dtype))
        self._starts: list[FlowState] = []
        state = self._stream.open(_voice(flow))
        for stream in range(_POSITIONS):
            said = len(state.codes)
            common = _codes(flow, stream)[said : said + CHUNK_CODES + LOOK_AHEAD]
            self._stream.step([state], [common])
            self._starts.append(state.fork())

    def replies(self, count: int) -> "_Replies":
        states = [self._starts[row % _POSITIONS].fork() for row in range(count)]
        return _Replies(self._stream, self._hift, states)


class _Replies:
    """Streams in the middle of a reply that render the same chunk each time."""

    def __init__(self, flow_stream: FlowStream, hift: Hift, states: list[FlowState]) -> None:
        codes = [_codes(flow_stream.flow, stream) for stream in range(len(states))]
        self._stream, self._states = flow_stream, states
        self._codes = [row[-CHUNK_CODES - LOOK_AHEAD :] for row in codes]
        own = [row[_lead(stream) : -CHUNK_CODES] for stream, row in enumerate(codes)]
        before = self._stream.step(states, own)
        self._vocoding = _Vocoding(hift, before)
        self._marks = [state.fork() for state in states]

    def back(self) -> None:
        for state, mark in zip(self._states, self._marks, strict=True):
            state.close()
            vars(state).update(vars(mark.fork()))
        self._vocoding.back()

    def chunk(self) -> Sounds:
        mels = self._stream.step(self._states, self._codes)
        return mels, self._vocoding(mels)
