"""The outgoing audio track: frames of 20 ms in real time, silence while no reply has sound.

Replies wait in a queue and are played one after the other, each as its sound comes. `played` counts
the samples that the track has sent. Runs on the event loop; aiortc calls `recv` for each frame.
Knows samples and ids of replies, not events. Invariants: each sample is sent once or dropped by
`clear` or `drop`; at most `most_s` of sound waits.
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
_LATE_S = 0.1  # if a frame is later than this, the clock restarts and no frame is sent early


@dataclass(eq=False)
class Utterance:
    """The sound of one reply."""

    response_id: str
    item_id: str
    turn: int | None = None  # of a reply that `Talk` sends in real time
    played: int = 0  # samples sent
    whole: bool = False  # all of its sound is here
    muted: bool = False  # sound that still comes is dropped
    missing: int = 0  # samples of silence sent since its last sound, while it is not whole
    gaps: int = 0
    silence_s: float = 0.0  # of all gaps together
    waiting: deque[Pcm16] = field(default_factory=deque)

    @property
    def waits(self) -> int:
        return sum(map(len, self.waiting))

    def take(self, samples: int) -> Pcm16:
        """Returns the next samples, at most `samples`, and counts them as played."""
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
        self._queue: deque[Utterance] = deque()
        self._sent = 0  # samples, silence included
        self._began: float | None = None
        self._quiet = asyncio.Event()
        self._quiet.set()
        # Called when the first sample of a reply is sent, after each frame, and after the last.
        self.on_started: Callable[[Utterance], None] = _nothing
        self.on_played: Callable[[Utterance], None] = _nothing
        self.on_stopped: Callable[[Utterance], None] = _nothing
        self.on_over: Callable[[Utterance], None] = _nothing  # played to its end, or dropped
        self.on_gap: Callable[[float], None] = _nothing  # seconds, at the end of each gap

    def play(self, utterance: Utterance, pcm: Pcm16) -> bool:
        """Queues more sound of a reply. False: the queue is full, and this is not played."""
        if utterance.muted or not len(pcm):
            return True
        if sum(one.waits for one in self._queue) + len(pcm) > self._most:
            return False
        if utterance not in self._queue:
            self._queue.append(utterance)
            self._quiet.clear()
        utterance.waiting.append(pcm)
        return True

    def clear(self) -> list[Utterance]:
        """Drops all sound that waits. Returns the replies that it interrupts."""
        dropped = list(self._queue)
        for one in dropped:
            self._drop(one)
        return dropped

    def drop(self, response_id: str) -> list[Utterance]:
        """`clear` for one reply."""
        dropped = [one for one in self._queue if one.response_id == response_id]
        for one in dropped:
            self._drop(one)
        return dropped

    async def quiet(self) -> None:
        """Waits until no reply is queued."""
        await self._quiet.wait()

    async def recv(self) -> AudioFrame:
        if self.readyState != "live":
            raise MediaStreamError
        await self._until_due()
        size = round(FRAME_S * self.rate_hz)
        wave = np.zeros(size, np.int16)
        filled = 0
        while filled < size and self._queue:
            first = self._queue[0]
            begins = not first.played
            piece = first.take(size - filled)
            wave[filled : filled + len(piece)] = piece
            filled += len(piece)
            if len(piece):
                if first.missing:
                    first.gaps += 1
                    first.silence_s += first.missing / self.rate_hz
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
                break  # more of it comes; later replies wait
            self._remove(first)
            self.on_stopped(first)
            self.on_over(first)
        frame = AudioFrame.from_ndarray(wave[None], "s16", "mono")
        frame.sample_rate = self.rate_hz
        frame.pts, frame.time_base = self._sent, Fraction(1, self.rate_hz)
        self._sent += size
        return frame

    async def _until_due(self) -> None:
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
        self._remove(utterance)
        self.on_over(utterance)

    def _remove(self, utterance: Utterance) -> None:
        self._queue.remove(utterance)
        if not self._queue:
            self._quiet.set()


def _nothing(what: object) -> None:
    pass
