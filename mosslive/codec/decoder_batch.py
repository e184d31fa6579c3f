"""Many live replies in one batch, each while its codes arrive: codes → mel → samples.

`add` a reply, `push` codes to any, `end` it when no more come. `start` launches the next piece of
any ready replies, first, further and last ones together, and returns a `Rendering` without waiting
for the device; `step` and `finish` are the same with waiting. `cancel` a reply at any time. Stores
only the waiting codes: the state of a reply is in its mel source and in the vocoder's stream. Knows
neither sockets nor clocks; the caller decides when to step. Invariants: a reply sounds as it would
alone; a reply that is done has returned exactly 1920 samples per code at the published sizes. One
thread calls it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from mosslive.codec.conformer import FRAMES_PER_TOKEN, LOOK_AHEAD
from mosslive.codec.flow_hops import HopCounter
from mosslive.codec.hift.arena import HiftArena
from mosslive.codec.mel_source import CachedMel, MelSource, Piece, fitting, next_piece
from mosslive.codec.rendering import (
    Flight,
    Job,
    Rendering,
    Samples,
    launch_plain,
    launch_recorded,
    recordings,
)
from mosslive.codec.vocoder import Vocoder
from mosslive.codec.voice import Voice
from mosslive.errors import MossliveError
from mosslive.kernels.arithmetic import arithmetic

# A voice and a seed → a new mel source, its prompt's length in codes, and the vocoder's noise.
Begin = Callable[[Voice, int], tuple[MelSource, int, torch.Generator]]
Stage = Literal["first", "steady", "last"]


@dataclass(eq=False)
class Reply:
    """One reply in progress; created by `DecoderBatch.add`."""

    source: MelSource
    vocoder: Any  # the vocoder's state of this stream, or the arena's
    arena: HiftArena | None
    count: HopCounter
    waiting: list[int] = field(default_factory=list)  # codes not rendered yet
    led_in: bool = False  # the end of the prompt is computed
    made: list[Samples] = field(default_factory=list)  # rendered, but not returned yet
    ended: bool = False  # no more codes come
    done: bool = False  # the last piece is rendered, or on its way
    cancelled: bool = False
    flight: Flight | None = None  # the latest step with this reply

    @property
    def overlaps(self) -> bool:
        """Whether its urgent steps may run beside other steps: they have graphs of their own."""
        return self.arena is not None

    @property
    def open(self) -> bool:
        return not (self.done or self.cancelled)

    @property
    def hop(self) -> int | None:
        """Codes that can be rendered now. 0: none, but the end of the prompt can be computed, so
        that the first sound need not wait for it. None: more codes must come first."""
        hop = self.count.next_hop()
        if hop is not None or self.ended or self.led_in or not self.source.leads_in:
            return hop
        return 0 if self.count.leads_in() else None

    @property
    def stage(self) -> Stage:
        """What the next step renders: sound that a listener waits for, a further chunk, or the
        rest of a reply that has ended."""
        if not self.count.rendered:
            return "first"
        return "last" if self.ended and self.hop is None else "steady"

    @property
    def ready(self) -> bool:
        return self.open and (self.ended or self.hop is not None)


class DecoderBatch:
    def __init__(
        self,
        vocoder: Vocoder,
        chunk: int,
        begin: Begin | None = None,
        prepared: Callable[[Voice], bool] = lambda voice: True,
    ) -> None:
        """`begin`: None: replies are given to `join`. `prepared`: whether `add` of a voice needs no
        step of the device."""
        self._vocoder, self._chunk, self._begin = vocoder, chunk, begin
        self.prepared = prepared
        self._replies: list[Reply] = []
        self._in_flight: list[Flight] = []

    def add(self, voice: Voice, seed: int = 0) -> Reply:
        """A new reply in this voice. `seed`: of the vocoder's noise."""
        assert self._begin is not None, "this batch was created without voices"
        with arithmetic("fp32"):
            return self.join(*self._begin(voice, seed))

    def join(
        self, source: MelSource, prompt_codes: int, generator: torch.Generator | None
    ) -> Reply:
        frames, arena = FRAMES_PER_TOKEN * self._chunk, None
        if isinstance(source, CachedMel) and source.stream.recorded:
            arena = self._vocoder.arena(frames)
        opened = arena.open(generator) if arena else self._vocoder.open(generator, frames)
        reply = Reply(source, opened, arena, HopCounter(prompt_codes, self._chunk))
        self._replies.append(reply)
        return reply

    def push(self, reply: Reply, codes: Sequence[int]) -> None:
        """Adds codes to a reply; the next steps render them. Raises `MossliveError` for a number
        that is not a code and for a reply that gets too long; other replies are not affected."""
        _require_open(reply)
        if codes and reply.ended:
            raise MossliveError("this reply has ended; it takes no more codes")
        received = reply.count.received + len(codes)
        reply.source.check(codes, reply.count.prompt + received)
        reply.waiting += [int(code) for code in codes]
        reply.count.received = received

    def end(self, reply: Reply) -> None:
        """No more codes come: what is left becomes the last piece. Idempotent."""
        _require_open(reply)
        reply.ended = True
        if not reply.count.received:
            self._close(reply)

    @property
    def warm_chunks(self) -> int:
        """Chunks of a reply after which its steps have no shape that is new."""
        return self._vocoder.warm_chunks(FRAMES_PER_TOKEN * self._chunk)

    def recordings(self, voice: Voice, replies: int) -> list[Callable[[], None]]:
        """Short pieces of work that record all graphs of up to so many replies ahead of time. None
        where nothing is recorded, or only by rendering replies."""
        reply = self.add(voice)
        try:
            if reply.arena is None or not isinstance(reply.source, CachedMel):
                return []
            return recordings(reply.source.stream, reply.arena, replies)
        finally:
            self.cancel(reply)

    @property
    def ready(self) -> list[Reply]:
        """The replies that a step can render, oldest first."""
        return [reply for reply in self._replies if reply.ready]

    def start(self, replies: Sequence[Reply], urgent: bool = False) -> Rendering:
        """Launches the next piece of each of these replies, without waiting for the device. Replies
        that are not ready are left out. If pages are short, the last ones wait. Raises `PoolFull`
        if the first cannot continue. `urgent`: by graphs of a high priority, for a few replies that
        should not wait for a step in flight."""
        self._in_flight = [one for one in self._in_flight if not one.over()]
        some = [reply for reply in replies if reply.ready]
        with arithmetic("fp32"):
            pieces = [_next_piece(reply) for reply in some]
            jobs = [
                Job(reply, piece, reply.vocoder)
                for reply, piece in zip(some[: fitting(pieces)], pieces, strict=False)
            ]
            rendering = self._launch(jobs, urgent)
        self._in_flight.append(rendering.flight)
        for reply, piece, _ in jobs:
            reply.flight = rendering.flight
            hop = len(piece.codes) - (0 if piece.last else LOOK_AHEAD)
            reply.waiting = reply.waiting[hop:]
            reply.count.rendered += hop
            reply.led_in = True
            if piece.last:
                self._close(reply)
        return rendering

    def step(self) -> dict[Reply, Samples]:
        """Renders one piece of every ready reply → the samples it settles, possibly none (see
        `Reply.hop`). If pages are short, the youngest replies wait. Raises `PoolFull` if no reply
        can continue."""
        return self.start(self.ready).result()

    def finish(self, reply: Reply) -> Samples:
        """Returns the rest of a reply and closes it. After `PoolFull` the reply is still open and
        nothing is lost; call `finish` again when pages are free."""
        self.end(reply)
        while not reply.done:
            reply.made.append(self.start([reply]).result()[reply])
        return take_made(reply)

    def drain(self, reply: Reply) -> None:
        """Renders every whole chunk of one reply and appends the samples to `made`."""
        _require_open(reply)
        while reply.hop is not None:
            reply.made.append(self.start([reply]).result()[reply])

    def cancel(self, reply: Reply) -> None:
        """Frees all memory of a reply: at once, or when its step in flight is done, which then
        gives no sound of it. Idempotent."""
        if not reply.cancelled:
            was_open, reply.cancelled = reply.open, not reply.done
            reply.waiting, reply.made = [], []
            if was_open:
                self._release(reply)

    def _close(self, reply: Reply) -> None:
        reply.done = True
        self._release(reply)

    def _release(self, reply: Reply) -> None:
        self._replies.remove(reply)
        if reply.flight is None:
            _free(reply)
        else:
            reply.flight.afterwards(partial(_free, reply))

    def _launch(self, jobs: list[Job], urgent: bool) -> Rendering:
        """All jobs by graphs, or all without: replies of one batch have the same kind of source."""
        if not jobs:
            return Rendering({}, Flight(None, urgent))
        arena = jobs[0].reply.arena
        assert all(job.reply.arena is arena for job in jobs), "replies of one kind"
        if arena is None:
            return launch_plain(jobs, self._vocoder, urgent)
        before = {job.reply.flight for job in jobs} - {None}
        other = [one for one in before if one.urgent != urgent and not one.over()]
        return launch_recorded(jobs, arena, urgent, other)


def take_made(reply: Reply) -> Samples:
    made, reply.made = reply.made, []
    return np.concatenate(made) if made else np.zeros(0, dtype=np.float32)


def _next_piece(reply: Reply) -> Piece:
    hop = reply.hop
    codes = reply.waiting if hop is None else reply.waiting[: hop + LOOK_AHEAD]
    return next_piece(reply.source, codes, last=hop is None)


def _free(reply: Reply) -> None:
    reply.source.close()
    if reply.arena is not None:
        reply.arena.close(reply.vocoder)
    reply.vocoder = None


def _require_open(reply: Reply) -> None:
    if not reply.open:
        raise MossliveError("this reply was finished or closed; open another stream")
