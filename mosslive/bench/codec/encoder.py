"""Times the encoder as the server runs it: steps and ends of turns in `EncoderBatch`, and a whole
segment at once.

Times of steps and ends are wall clock, from samples on the host to codes on the host; features are
included, except in the whole segment. Knows no conversation. Invariant: the codes of every timed
form are compared with the states of the same sound, computed at once in float32 on the CPU.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle

import torch
from torch import Tensor

from mosslive.bench.codec.check import HALVES, Form, Row, compare, timed
from mosslive.bench.codec.networks import NetworkPair, normal
from mosslive.bench.codec.precompile import compiling, encoder_jobs
from mosslive.bench.timing import free_memory
from mosslive.bench.verified import NotVerified
from mosslive.codec.encoder import BLOCK_FRAMES, Encoder
from mosslive.codec.encoder_batch import EncoderBatch, Turn
from mosslive.codec.encoder_pages import PAGE_CODES, page_bytes, pages_for
from mosslive.codec.encoder_stream import HeardTurn
from mosslive.codec.mel import BLOCK_SAMPLES, HEARING_HZ, floor_and_scale, segment_log10_mel
from mosslive.kernels.arithmetic import Precision, arithmetic

GOAL_STEP_MS = 4.0  # of one turn
STREAMS = (1, 8, 64, 128)
CPU_STREAMS = (1, 2)
CONTEXTS_S = (5, 25)
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16")
_SOUNDS = 4  # different ones; further turns repeat them
_CODE_MS = 80.0
_MEMORY_SHARE = 0.8  # of the free memory, for pages


@dataclass(frozen=True)
class _Sound:
    wave: Tensor  # [n]
    states: Tensor  # [codes, width], on the CPU


def encoder_rows(pair: NetworkPair, repeats: int) -> Iterator[Row]:
    jobs = [job for precision in PRECISIONS for job in encoder_jobs(precision)]
    with torch.no_grad(), arithmetic("fp32"):
        with compiling(pair.size, pair.device, jobs):
            cpu, device = pair.encoder()
            sounds = [_sound(cpu, seed, cpu.dims.segment_samples) for seed in range(_SOUNDS)]
            _use_as_codes(sounds, cpu, device)
        for precision in PRECISIONS:
            device.to_precision(HALVES.get(precision, torch.float32))
            run = _Run(cpu, device, pair.device, precision, repeats)
            for streams in run.fitting():
                yield from run.step_rows(sounds, streams)
            yield run.end_row()
            if precision == "fp32":
                yield _segment_row(cpu, device, pair.device, repeats)


def _sound(encoder: Encoder, seed: int, samples: int) -> _Sound:
    """Harmonics that change pitch and loudness like syllables, and noise: no moment changes the
    floor of the features, so that live codes are final."""
    time = torch.arange(samples, dtype=torch.float64) / HEARING_HZ
    phase = (2 * torch.pi / HEARING_HZ * (120 + 20 * seed + 40 * torch.sin(4 * time))).cumsum(0)
    tone = torch.stack([torch.sin(n * phase) / n for n in range(1, 9)]).sum(0)
    loud = 0.1 + torch.sin(14 * time + seed).clamp(min=0)
    wave = (0.1 * loud * tone).float() + 0.01 * normal(seed, samples)
    log10 = segment_log10_mel(wave, encoder.dims.mel_bands)
    return _Sound(wave, encoder(floor_and_scale(log10, log10.amax())[None])[0])


def _use_as_codes(sounds: list[_Sound], *encoders: Encoder) -> None:
    """Makes states of the sounds the first codes: a random codebook has one code for nearly
    everything, which would hide errors."""
    states = torch.cat([sound.states for sound in sounds])
    states = states[:: -(-len(states) // encoders[0].dims.codes)]
    for encoder in encoders:
        encoder.codebook.weight[: len(states)] = states.to(encoder.codebook.weight.device)
        encoder.measure_codebook()


class _Turns:
    """Turns of one batch that speak side by side; they take the sounds in turn."""

    def __init__(self, batch: EncoderBatch, sounds: list[_Sound], streams: int) -> None:
        self._batch, self._sounds, self._blocks = batch, sounds, 0
        self.turns = [batch.add() for _ in range(streams)]
        self.codes: list[list[int]] = [[] for _ in range(streams)]

    def hear(self, blocks: int = 1) -> None:
        first, self._blocks = self._blocks, self._blocks + blocks
        for turn, sound in zip(self.turns, cycle(self._sounds), strict=False):
            self._batch.push(turn, sound.wave[BLOCK_SAMPLES * first : BLOCK_SAMPLES * self._blocks])
        while ready := self._batch.ready:
            heard = self._batch.start(ready).result()
            for turn, codes in zip(self.turns, self.codes, strict=True):
                new = heard[turn]
                assert isinstance(new, list)
                codes += new

    def hear_until(self, blocks: int) -> None:
        self.hear(blocks - self._blocks)


class _Run:
    def __init__(
        self, cpu: Encoder, device: Encoder, place: str, precision: Precision, repeats: int
    ) -> None:
        self._cpu, self._device, self._place = cpu, device, place
        self._precision, self._repeats = precision, repeats

    def fitting(self) -> tuple[int, ...]:
        """The numbers of turns whose whole segments fit into memory."""
        if self._place == "cpu":
            return CPU_STREAMS
        free_memory(self._place)
        each = pages_for(self._device, 1.0) * page_bytes(self._device)
        free, _ = torch.cuda.mem_get_info()
        return tuple(streams for streams in STREAMS if streams * each < _MEMORY_SHARE * free)

    def step_rows(self, sounds: list[_Sound], streams: int) -> Iterator[Row]:
        turns = _Turns(self._batch(streams), sounds, streams)
        ends = *map(_blocks, CONTEXTS_S[1:]), self._cpu.dims.segment_codes
        for seconds, end in zip(CONTEXTS_S, ends, strict=True):
            done = _blocks(seconds)
            turns.hear_until(done)
            turns.hear()  # like the timed calls
            what = f"80 ms step, {seconds} s of context"
            row = self._verified(what, sounds, turns.codes, _CODE_MS)
            if streams == 1:
                row = replace(row, goal_ms=GOAL_STEP_MS)
            # One call more warms up, and the last block would end the segment.
            most = min(self._repeats, end - done - 3)
            yield timed(row, turns.hear, "cpu", most)  # wall clock

    def end_row(self) -> Row:
        """The end of a turn that stops within a block: nothing is revised, one code is missing."""
        seconds, batch = CONTEXTS_S[0], self._batch(1)
        blocks = _blocks(seconds)
        sound = _sound(self._cpu, 0, BLOCK_SAMPLES * blocks + BLOCK_SAMPLES // 2)
        open_turns: list[Turn] = []

        def hear() -> None:
            turns = _Turns(batch, [sound], 1)
            turns.hear_until(blocks + 1)  # of the last block there is only half
            open_turns.extend(turns.turns)

        def finish() -> HeardTurn:
            turn = open_turns.pop()
            heard = batch.finish([turn]).result()[turn]
            assert isinstance(heard, HeardTurn)
            return heard

        hear()
        heard, what = finish(), f"end of a turn of {seconds} s"
        if heard.first_revised is not None or len(heard.rest) != 1:
            raise NotVerified(f"encoder, {what}: codes were revised, or not one was missing")
        row = self._verified(what, [sound], [heard.codes], _CODE_MS / 2)
        return timed(row, finish, "cpu", self._repeats, hear)  # wall clock

    def _batch(self, streams: int) -> EncoderBatch:
        """A batch with pages for whole segments of so many turns."""
        free_memory(self._place)
        pages = streams * pages_for(self._device, 1.0)
        return EncoderBatch(self._device, pages * PAGE_CODES * _CODE_MS / 1e3)

    def _verified(
        self, what: str, sounds: list[_Sound], codes: list[list[int]], sound_ms: float
    ) -> Row:
        """Compares how near the codes are to the CPU's states with how near the nearest are."""
        book, nearness = self._cpu.codebook.weight.T, list[Tensor]()
        all_scores = [sound.states @ book - self._cpu.half_norms for sound in sounds]
        for own, scores in zip(codes, cycle(all_scores), strict=False):
            ours = scores[range(len(own)), own]
            nearness.append(torch.stack((ours, scores[: len(own)].amax(1))))
        ours, best = torch.cat(nearness, 1)
        close = compare(f"encoder, {what}, {self._precision}", ours, best)
        same = float((ours == best).double().mean())
        form: Form = "graph" if self._place == "cuda" else "eager"
        measured = (self._precision, form, close.error, close.cosine, sound_ms)
        return Row("encoder", what, len(codes), *measured, same_codes=same)


def _blocks(seconds: int) -> int:
    return int(1e3 * seconds / _CODE_MS)


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
