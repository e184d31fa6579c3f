"""The outgoing track: 20 ms of sound at a time, silence when there is nothing to say.

Replies wait in line and are played one after the other, each as it comes. What a reply has played
is what this track has sent of it. Knows samples and names of replies, not events. Invariant: a
sample is sent once, or dropped by `clear`, and no more than `most_s` of them wait.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from av import AudioFrame
from numpy.typing import NDArray

Pcm16 = NDArray[np.int16]

FRAME_S = 0.02
_LATE_S = 0.1  # later than this, the beat starts anew instead of hurrying after


@dataclass(eq=False)
class Utterance:
    """The sound of one reply."""

    response_id: str
    item_id: str
    turn: int | None = None  # of a reply that the conversation itself hands out in real time
    played: int = 0  # samples sent
    whole: bool = False  # no more comes
    muted: bool = False  # what still comes is not played
    missing: int = 0  # samples of silence since the last sound, while more of it is to come
    waiting: deque[Pcm16] = field(default_factory=deque)

    @property
    def waits(self) -> int:
        return sum(map(len, self.waiting))

    def take(self, samples: int) -> Pcm16:
        """At most so many samples."""
        taken: list[Pcm16] = []
        while self.waiting and samples:
            piece = self.waiting.popleft()
            if len(piece) > samples:
                self.waiting.appendleft(piece[samples:])
                piece = piece[:samples]
            samples -= len(piece)
            taken.append(piece)
        wave = np.concatenate([*taken, np.zeros(0, np.int16)])
        self.played += len(wave)
        return wave


class OutgoingTrack(MediaStreamTrack):
    kind = "audio"

    def __init__(self, rate_hz: int, most_s: float) -> None:
        super().__init__()
        self.rate_hz = rate_hz
        self._most = round(most_s * rate_hz)
        self._line: deque[Utterance] = deque()
        self._sent = 0  # samples, silence included
        self._began: float | None = None
        self._quiet = asyncio.Event()
        self._quiet.set()
        # Told when a reply's first sample is sent, when more of it was, and when its last was.
        self.on_started: Callable[[Utterance], None] = _nothing
        self.on_played: Callable[[Utterance], None] = _nothing
        self.on_stopped: Callable[[Utterance], None] = _nothing
        self.on_gap: Callable[[float], None] = _nothing  # the seconds of each, when it is over

    def say(self, utterance: Utterance, pcm: Pcm16) -> bool:
        """More of a reply. False: too much is waiting, and this is not played."""
        if utterance.muted or not len(pcm):
            return True
        if sum(one.waits for one in self._line) + len(pcm) > self._most:
            return False
        if utterance not in self._line:
            self._line.append(utterance)
            self._quiet.clear()
        utterance.waiting.append(pcm)
        return True

    def clear(self) -> list[Utterance]:
        """Silence from the next frame on. Returns what was cut short."""
        cut = list(self._line)
        for one in cut:
            self._drop(one)
        return cut

    def drop(self, response_id: str) -> list[Utterance]:
        """`clear` for one reply."""
        cut = [one for one in self._line if one.response_id == response_id]
        for one in cut:
            self._drop(one)
        return cut

    async def quiet(self) -> None:
        """Until nothing is left to say."""
        await self._quiet.wait()

    async def recv(self) -> AudioFrame:
        if self.readyState != "live":
            raise MediaStreamError
        await self._beat()
        size = round(FRAME_S * self.rate_hz)
        wave = np.zeros(size, np.int16)
        filled = 0
        while filled < size and self._line:
            first = self._line[0]
            begins = not first.played
            piece = first.take(size - filled)
            wave[filled : filled + len(piece)] = piece
            filled += len(piece)
            if len(piece):
                if first.missing:
                    self.on_gap(first.missing / self.rate_hz)
                    first.missing = 0
                if begins:
                    self.on_started(first)
                self.on_played(first)
            if first.waiting:
                continue
            if not first.whole:
                if first.played:
                    first.missing += size - filled
                break  # more of it comes; others wait for their turn
            self._leave(first)
            self.on_stopped(first)
        frame = AudioFrame.from_ndarray(wave[None], "s16", "mono")
        frame.sample_rate = self.rate_hz
        frame.pts, frame.time_base = self._sent, Fraction(1, self.rate_hz)
        self._sent += size
        return frame

    async def _beat(self) -> None:
        now = time.monotonic()
        if self._began is None:
            self._began = now
        due = self._began + self._sent / self.rate_hz
        if now - due > _LATE_S:
            self._began += now - due
        elif due > now:
            await asyncio.sleep(due - now)

    def _drop(self, utterance: Utterance) -> None:
        utterance.waiting.clear()
        utterance.muted = True
        self._leave(utterance)

    def _leave(self, utterance: Utterance) -> None:
        self._line.remove(utterance)
        if not self._line:
            self._quiet.set()


def _nothing(what: object) -> None:
    pass
