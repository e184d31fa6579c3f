"""Times the encoder: one 80 ms step of several streams, and a whole segment at once.

Does not time the features, which are computed from the samples before. Invariant: each timed call
is compared with the same call on the CPU.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from mosslive.bench.codec.check import Form, Row, compare, timed
from mosslive.bench.codec.networks import NetworkPair, normal
from mosslive.bench.codec.precompile import CompileJob, compiling
from mosslive.codec.encoder import BLOCK_FRAMES, POOL, Encoder, EncoderState
from mosslive.kernels.arithmetic import arithmetic
from mosslive.kernels.graph import Graphed

GOAL_STEP_MS = 4.0
STREAMS = (1, 8)
_STATES_PER_SECOND = 50
_REACH_STEP = 64  # the step by which streams grow their reach
_CODE_MS = 80.0


def encoder_rows(pair: NetworkPair, repeats: int) -> Iterator[Row]:
    with compiling(pair.size, pair.device, [CompileJob("encoder", "fp32", (n,)) for n in STREAMS]):
        cpu, device = pair.encoder()
    with torch.no_grad(), arithmetic("fp32"):
        for streams in STREAMS:
            states = _filled(cpu, streams, pair.device)
            for seconds in (10, 30):
                yield from _step_rows(cpu, device, states, seconds, repeats)
        yield _segment_row(cpu, device, pair.device, repeats)


def _step_rows(
    cpu: Encoder,
    device: Encoder,
    pasts: tuple[EncoderState, EncoderState],
    seconds: int,
    repeats: int,
) -> Iterator[Row]:
    dims, (reference, state) = cpu.dims, pasts
    streams, place = len(state.position), state.position.device.type
    states = min(_STATES_PER_SECOND * seconds, dims.positions)
    reach = min(-(-states // _REACH_STEP) * _REACH_STEP, dims.positions)
    frames = normal(1, streams, dims.mel_bands, BLOCK_FRAMES)
    wanted = _step(cpu, reference, states - POOL, reach)(frames)
    # On a GPU like the recorded step of a stream: any position, which the device reads.
    eager = _step(device, state, states - POOL, None if place == "cuda" else reach)
    given = frames.to(place)
    what = f"80 ms step, {seconds} s of context"
    forms: dict[Form, Callable[[Tensor], Tensor]] = {"eager": eager, "graph": Graphed(eager, given)}
    for form, work in forms.items():
        close = compare(f"encoder, {what}, {form}", work(given), wanted)
        row = Row("encoder", what, streams, "fp32", form, close.error, close.cosine, _CODE_MS)
        yield timed(replace(row, goal_ms=GOAL_STEP_MS), partial(work, given), place, repeats)


def _filled(encoder: Encoder, streams: int, place: str) -> tuple[EncoderState, EncoderState]:
    """Makes a state of random values on the CPU and on the device `place`. Zeros would hide errors
    and can be faster. Streams have the same values at shifted positions, because sampling each
    takes long."""
    state = encoder.open(streams)
    for seed, (tensor, row) in enumerate(
        ((state.k, 1), (state.v, 1), (state.frame_tails, 0), (state.conv_tails, 0))
    ):
        values = normal(seed, *tensor.select(row, 0).shape)
        for stream in range(streams):
            tensor.select(row, stream).copy_(values.roll(stream, dims=1))
    return state, EncoderState(*(each.to(place, copy=True) for each in vars(state).values()))


def _step(
    encoder: Encoder, state: EncoderState, position: int, reach: int | None
) -> Callable[[Tensor], Tensor]:
    """Returns a function that repeats one step: it resets the position first."""

    def step(frames: Tensor) -> Tensor:
        state.position.fill_(position)
        return encoder.step(state, frames, reach)[0]

    return step


def _segment_row(cpu: Encoder, device: Encoder, place: str, repeats: int) -> Row:
    frames = BLOCK_FRAMES * cpu.dims.segment_codes
    features = normal(2, 1, cpu.dims.mel_bands, frames)
    given = features.to(place)

    def work() -> Tensor:
        states: Tensor = device(given)
        device.quantise(states)
        return states

    close = compare("encoder, whole segment", work(), cpu(features))
    sound_ms = _CODE_MS * cpu.dims.segment_codes
    what = f"{sound_ms / 1e3:g} s segment, offline"
    row = Row("encoder", what, 1, "fp32", "eager", close.error, close.cosine, sound_ms)
    return timed(row, work, place, repeats)
