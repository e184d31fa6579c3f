"""Codes of a reply → sound, handed out no faster than it may be.

Rendering follows the codes as fast as the codec allows; codes are taken while they are not far
ahead of the ear (`keep_pace`), so that the device is there for others, and an interruption drops
little. Handing out waits for the playback clock and for the reader. Dropping everything is one
call. Knows codes and samples, not rows and not the dialogue. Invariant: what is kept of a reply's
sound does not grow with it, unless the whole is asked for (`keep_sound`).
"""

import asyncio
import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from mosslive.config import SECONDS_PER_CODE
from mosslive.talk.clock import Clock
from mosslive.talk.codec_streams import DecodeStream
from mosslive.talk.playback import PIECE_S, Playback
from mosslive.talk.production import Production, Progress
from mosslive.talk.speech_codec import Samples
from mosslive.talk.timing import Stopwatch

_AHEAD_S = 30.0  # while so much is made and not handed out, rendering rests
_CODES_AT_ONCE = 125  # 10 s; more than any chunk needs to begin


class Outlet(Protocol):
    """Where sound goes."""

    @property
    def full(self) -> bool: ...

    def hand_out(self, first_sample: int, pcm: Samples) -> None: ...

    async def room(self) -> None:
        """Until more may be handed out."""
        ...


class ReplyAudio:
    def __init__(
        self,
        speaking: DecodeStream,
        playback: Playback,
        clock: Clock,
        stopwatch: Stopwatch,
        outlet: Outlet,
        production: Production,
        *,
        heard_from: float = -math.inf,
        keep_sound: bool = False,
        ahead_s: float = math.inf,
    ) -> None:
        """`heard_from`: on trial, nobody hears it before this moment. `ahead_s`: how far ahead of
        the ear codes are taken, where sound is played in real time."""
        self.playback = playback
        self.kept: list[Samples] | None = [] if keep_sound else None
        self._speaking, self._clock, self._stopwatch = speaking, clock, stopwatch
        self._outlet, self._heard_from, self._ahead_s = outlet, heard_from, ahead_s
        self._production = production
        self._progress: Progress | None = None  # while it is rendered
        self._codes: list[int] = []  # not rendered yet
        self._taken = 0  # codes in all
        self._no_more_codes = False
        self._news = asyncio.Event()  # for rendering
        self._queue: deque[Samples] = deque()  # not handed out yet
        self._queued = 0  # samples in it
        self._all_rendered = False
        self._sound_news = asyncio.Event()  # for handing out
        self._given = asyncio.Event()  # for rendering that rests
        self._released = asyncio.Event()
        self._rests = self._works = 0  # how many of the two tasks do so now ...
        self._accounted = 0.0  # ... and since when

    def push(self, code: int) -> None:
        self._codes.append(code)
        self._taken += 1
        if self._speaking.ready(len(self._codes)):
            self._stopwatch.mark("first_chunk", self._clock.now())
            self._news.set()
        elif self._speaking.leads_in(len(self._codes)):
            self._news.set()

    async def keep_pace(self) -> None:
        """Until another code may be taken: while the reply is far ahead of the ear, none is."""
        if self.playback.lead_s in (None, math.inf):
            return
        while (surplus_s := self._surplus_s()) >= 0:
            with self._resting():
                if self.playback.handed:
                    moment = self._clock.now() + surplus_s + SECONDS_PER_CODE
                    await self._clock.sleep_until(moment)
                else:  # nobody has begun to listen
                    self._given.clear()
                    await self._given.wait()

    def end(self) -> None:
        """No more codes come."""
        self._no_more_codes = True
        self._stopwatch.mark("first_chunk", self._clock.now())
        self._news.set()

    def release(self) -> None:
        """From now on sound may be handed out."""
        self._released.set()

    def drop(self) -> None:
        """Nothing more is rendered or handed out; memory is freed."""
        self._queue.clear()
        self._queued = 0
        self._codes.clear()
        self._speaking.close()

    @property
    def samples_per_code(self) -> int:
        return round(SECONDS_PER_CODE * self.playback.rate_hz)

    def heard_codes(self, now: float) -> int:
        """Codes whose sound was heard, to the nearest one."""
        return int(self.playback.heard(now) / self.samples_per_code + 0.5)

    @property
    def handed_codes(self) -> int:
        return int(self.playback.handed / self.samples_per_code + 0.5)

    async def render(self) -> None:
        self._progress = self._production.begin()
        try:
            await self._render(self._progress)
        finally:
            self._progress.end()
            self._progress = None

    async def _render(self, progress: Progress) -> None:
        await self._speaking.open(self._runs_dry_at())
        while not self._all_rendered:
            await self._news.wait()
            self._news.clear()
            await self._rest()
            codes = self._codes[:_CODES_AT_ONCE]
            ending = self._no_more_codes and len(codes) == len(self._codes)
            count = len(codes)
            if not (ending or self._speaking.ready(count) or self._speaking.leads_in(count)):
                continue
            del self._codes[:count]
            render = self._speaking.finish if ending else self._speaking.push
            with self._working():
                done = await render(codes, self._runs_dry_at(), not self._released.is_set())
            if ending or len(done.value):
                self._stopwatch.mark("first_pcm", self._clock.now())
                if not self._stopwatch.has("first_render_s"):
                    self._stopwatch.set(first_render_s=done.cost_s)
            self._stopwatch.add(render_s=done.cost_s, audio_s=len(done.value) / self._rate_hz)
            progress.made(len(done.value) / self._rate_hz, self._clock.now())
            self._take(done.value)
            self._all_rendered = ending
            if self._codes or self._no_more_codes:
                self._news.set()
        self._stopwatch.mark("last_pcm", self._clock.now())
        self._sound_news.set()

    async def play(self) -> None:
        """Until everything was handed out."""
        await self._released.wait()
        least = round(PIECE_S * self._rate_hz)
        while self._queue or not self._all_rendered:
            if not self._queue:
                await self._sound_news.wait()
                self._sound_news.clear()
                continue
            if self._outlet.full:
                await self._outlet.room()
                continue
            now, piece = self._clock.now(), self._queue[0]
            room = self.playback.room(now)
            if room < min(least, len(piece)):
                moment = self.playback.room_at(min(least, len(piece)), now)
                await self._clock.sleep_until(moment)
                continue
            self._give(self._queue.popleft(), room, now)

    async def played(self) -> None:
        """Until everything handed out was heard."""
        while self.playback.lead_s is not None and self._clock.now() < self.playback.ends_at:
            await self._clock.sleep_until(self.playback.ends_at)

    @property
    def _rate_hz(self) -> int:
        return self.playback.rate_hz

    def _runs_dry_at(self) -> float:
        """When the listener will have heard all there is; before the first sound, now; on trial,
        as if it were heard from the earliest moment on."""
        waiting_s = self._queued / self._rate_hz
        return max(self._clock.now(), self.playback.ends_at, self._heard_from) + waiting_s

    async def _rest(self) -> None:
        """While plenty is made, the codec is there for others."""
        while self._queued >= _AHEAD_S * self._rate_hz:
            self._given.clear()
            with self._resting():
                await self._given.wait()

    def _surplus_s(self) -> float:
        """How much more of the reply is here than is wanted now; negative: more is."""
        heard_s = self.playback.heard(self._clock.now()) / self._rate_hz
        wanted_s = self._ahead_s + SECONDS_PER_CODE * self._speaking.needs
        return SECONDS_PER_CODE * self._taken - heard_s - wanted_s

    @contextmanager
    def _resting(self) -> Iterator[None]:
        """Inside, the reply waits for its listener, unless sound is being made."""
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
        """Time in which it rests and does not work is no cost of the reply."""
        now = self._clock.now()
        if self._rests and not self._works:
            self._stopwatch.add(rest_s=now - self._accounted)
            if self._progress:
                self._progress.rested(now - self._accounted)
        self._accounted = now
        self._rests, self._works = self._rests + resting, self._works + working
        if self._progress:
            self._progress.rest(bool(self._rests) and not self._works)

    def _take(self, sound: Samples) -> None:
        if not len(sound):
            return
        self._queue.append(sound)
        self._queued += len(sound)
        if self.kept is not None:
            self.kept.append(sound)
        self._sound_news.set()

    def _give(self, piece: Samples, room: int, now: float) -> None:
        if room < len(piece):
            self._queue.appendleft(piece[room:])
        now_out = np.ascontiguousarray(piece[:room])
        self._queued -= len(now_out)
        self._stopwatch.mark("first_out", now)
        first = self.playback.handed
        self.playback.hand_out(len(now_out), now)
        self._outlet.hand_out(first, now_out)
        self._given.set()
