"""Codes of a reply → sound, sent no faster than the listener plays it and the reader reads it.

Rendering follows the codes as fast as the codec allows. Codes are taken only while the reply is not
far ahead of the listener (`keep_pace`), so that the device is free for others and an interruption
drops little. Sending waits for the playback clock and for the event queue. `drop` ends everything.
Runs on the event loop; rendering itself runs on the codec's thread. Knows codes and samples,
neither rows nor the dialogue. Invariant: the memory of a reply's sound does not grow with its
length, unless the whole sound is kept (`keep_sound`).
"""

import asyncio
import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from mosslive.config import SECONDS_PER_CODE
from mosslive.talk.clock import Clock
from mosslive.talk.codec_streams import DecodeStream
from mosslive.talk.events import AudioChunk, EventQueue
from mosslive.talk.playback import PIECE_S, Playback
from mosslive.talk.production import Production, Progress
from mosslive.talk.speech_codec import Samples
from mosslive.talk.timing import Stopwatch

_PIECE_S = 0.1  # sound is sent in pieces of this length, if the lead is long enough
_PACE_CODES = 5  # that a reply far ahead takes at once, so that it wakes up less often
_AHEAD_S = 30.0  # rendering rests while so much sound is rendered and not sent
# Of a speculative reply, beyond the codes of its first sound: enough until others follow.
_EARLY_CODES = 10


class ReplyAudio:
    def __init__(
        self,
        turn: int,
        decoder: DecodeStream,
        playback: Playback,
        clock: Clock,
        stopwatch: Stopwatch,
        events_out: EventQueue,
        production: Production,
        *,
        heard_from: float = -math.inf,
        keep_sound: bool = False,
        ahead_s: float = math.inf,
    ) -> None:
        """`heard_from`: a speculative reply is not heard before this moment. `ahead_s`: how far
        ahead of the listener codes are taken, if sound is played in real time."""
        self.playback = playback
        self.kept: list[Samples] | None = [] if keep_sound else None
        self._turn, self._decoder = turn, decoder
        self._clock, self._stopwatch, self._events = clock, stopwatch, events_out
        self._heard_from, self._ahead_s = heard_from, ahead_s
        self._production = production
        self._renders = False  # `render` runs
        self._progress: Progress | None = None  # meanwhile, once the reply is released
        self._codes: list[int] = []  # not rendered yet
        self._taken = 0  # codes in all
        self._most_early = decoder.needs + _EARLY_CODES  # before it is released
        self._no_more_codes = False
        self._codes_ready = asyncio.Event()  # wakes `render`
        self._queue: deque[Samples] = deque()  # rendered, not sent yet
        self._queued = 0  # samples in it
        self._all_rendered = False
        self._sound_ready = asyncio.Event()  # wakes `play`
        self._sound_sent = asyncio.Event()  # wakes tasks that rest
        self._released = asyncio.Event()
        self._rests = self._works = 0  # how many of the two tasks rest and work now ...
        self._accounted = 0.0  # ... since this moment

    def push(self, code: int) -> None:
        self._codes.append(code)
        self._taken += 1
        if self._decoder.ready(len(self._codes)):
            self._stopwatch.mark("first_chunk", self._clock.now())
            self._codes_ready.set()
        elif self._decoder.leads_in(len(self._codes)):
            self._codes_ready.set()

    async def keep_pace(self) -> None:
        """Waits until another code may be taken: not while the reply is far ahead, and not while
        it is speculative and has a beginning."""
        if not self._released.is_set() and self._taken >= self._most_early:
            with self._resting():
                await self._released.wait()
        if self.playback.lead_s in (None, math.inf):
            return
        while (surplus_s := self._surplus_s()) >= 0:
            with self._resting():
                if self.playback.sent:
                    moment = self._clock.now() + surplus_s + _PACE_CODES * SECONDS_PER_CODE
                    await self._clock.sleep_until(moment)
                else:  # playback has not begun
                    self._sound_sent.clear()
                    await self._sound_sent.wait()

    def end(self) -> None:
        """No more codes come."""
        self._no_more_codes = True
        self._stopwatch.mark("first_chunk", self._clock.now())
        self._codes_ready.set()

    def release(self) -> None:
        """Allows `play` to send sound. The codec's requests are like any other's from now on."""
        self._released.set()
        self._decoder.adopt()
        if self._renders:
            self._begin_progress()

    def drop(self) -> None:
        """Drops all waiting codes and sound and frees the codec's memory. Idempotent."""
        self._queue.clear()
        self._queued = 0
        self._codes.clear()
        self._decoder.close()

    @property
    def samples_per_code(self) -> int:
        return round(SECONDS_PER_CODE * self.playback.rate_hz)

    def heard_codes(self, now: float) -> int:
        """Codes whose sound was heard, rounded to the nearest code."""
        return int(self.playback.heard(now) / self.samples_per_code + 0.5)

    @property
    def sent_codes(self) -> int:
        return int(self.playback.sent / self.samples_per_code + 0.5)

    async def render(self) -> None:
        self._renders = True
        if self._released.is_set():
            self._begin_progress()
        try:
            await self._render()
        finally:
            self._renders = False
            if self._progress:
                self._progress.end()
                self._progress = None

    def _begin_progress(self) -> None:
        """Measures production from now on: that of a speculative reply, which gives way to others,
        says nothing about the speed of the server."""
        self._progress = self._production.begin()
        self._progress.rest(bool(self._rests) and not self._works)

    async def _render(self) -> None:
        await self._decoder.open(self._runs_dry_at(), not self._released.is_set())
        while not self._all_rendered:
            await self._codes_ready.wait()
            self._codes_ready.clear()
            await self._rest()
            # One chunk at a time, so that its sound does not wait for that of later chunks.
            count = min(len(self._codes), self._decoder.wanted)
            codes = self._codes[:count]
            whole = self._decoder.ready(count)
            ending = self._no_more_codes and not whole
            if not (ending or whole or self._decoder.leads_in(count)):
                continue
            del self._codes[:count]
            render = self._decoder.finish if ending else self._decoder.push
            with self._working():
                done = await render(codes, self._runs_dry_at(), not self._released.is_set())
            if ending or len(done.value):
                self._stopwatch.mark("first_pcm", self._clock.now())
                if not self._stopwatch.has("first_render_s"):
                    self._stopwatch.set(first_render_s=done.cost_s)
            self._stopwatch.add(render_s=done.cost_s, audio_s=len(done.value) / self._rate_hz)
            if self._progress:
                self._progress.made(len(done.value) / self._rate_hz, self._clock.now())
            self._enqueue(done.value)
            self._all_rendered = ending
            if self._codes or self._no_more_codes:
                self._codes_ready.set()
        self._stopwatch.mark("last_pcm", self._clock.now())
        self._sound_ready.set()

    async def play(self) -> None:
        """Sends the sound; returns when all of it is sent."""
        await self._released.wait()
        lead_s = self.playback.lead_s
        piece_s = PIECE_S if lead_s is None else min(max(PIECE_S, lead_s / 5), _PIECE_S)
        least = round(piece_s * self._rate_hz)
        while self._queue or not self._all_rendered:
            if not self._queue:
                await self._sound_ready.wait()
                self._sound_ready.clear()
                continue
            if self._events.full_of_sound:
                await self._events.room_for_sound()
                continue
            now, piece = self._clock.now(), self._queue[0]
            room = self.playback.room(now)
            if room < min(least, len(piece)):
                moment = self.playback.room_at(min(least, len(piece)), now)
                await self._clock.sleep_until(moment)
                continue
            self._send(self._queue.popleft(), room, now)

    async def played(self) -> None:
        """Waits until all sound that was sent was heard."""
        while self.playback.lead_s is not None and self._clock.now() < self.playback.ends_at:
            await self._clock.sleep_until(self.playback.ends_at)

    @property
    def _rate_hz(self) -> int:
        return self.playback.rate_hz

    def _runs_dry_at(self) -> float:
        """When the listener will have heard all rendered sound; before the first sound, now. A
        speculative reply counts as heard from its earliest moment."""
        waiting_s = self._queued / self._rate_hz
        return max(self._clock.now(), self.playback.ends_at, self._heard_from) + waiting_s

    async def _rest(self) -> None:
        """Leaves the codec to others while much rendered sound waits."""
        while self._queued >= _AHEAD_S * self._rate_hz:
            self._sound_sent.clear()
            with self._resting():
                await self._sound_sent.wait()

    def _surplus_s(self) -> float:
        """How much more of the reply was taken than is needed now; negative: take more."""
        heard_s = self.playback.heard(self._clock.now()) / self._rate_hz
        needed_s = self._ahead_s + SECONDS_PER_CODE * self._decoder.needs
        return SECONDS_PER_CODE * self._taken - heard_s - needed_s

    @contextmanager
    def _resting(self) -> Iterator[None]:
        """Inside, the reply waits for its listener, unless the other task works."""
        self._account(resting=1)
        try:
            yield
        finally:
            self._account(resting=-1)

    @contextmanager
    def _working(self) -> Iterator[None]:
        self._account(working=1)
        try:
            yield
        finally:
            self._account(working=-1)

    def _account(self, resting: int = 0, working: int = 0) -> None:
        """Time in which the reply rests and does not work is not part of its cost."""
        now = self._clock.now()
        if self._rests and not self._works:
            self._stopwatch.add(rest_s=now - self._accounted)
            if self._progress:
                self._progress.rested(now - self._accounted)
        self._accounted = now
        self._rests, self._works = self._rests + resting, self._works + working
        if self._progress:
            self._progress.rest(bool(self._rests) and not self._works)

    def _enqueue(self, sound: Samples) -> None:
        if not len(sound):
            return
        self._queue.append(sound)
        self._queued += len(sound)
        if self.kept is not None:
            self.kept.append(sound)
        self._sound_ready.set()

    def _send(self, piece: Samples, room: int, now: float) -> None:
        if room < len(piece):
            self._queue.appendleft(piece[room:])
        pcm = np.ascontiguousarray(piece[:room])
        self._queued -= len(pcm)
        self._stopwatch.mark("first_out", now)
        first = self.playback.sent
        self.playback.send(len(pcm), now)
        self._events.put(AudioChunk(self._turn, first, pcm))
        self._sound_sent.set()
