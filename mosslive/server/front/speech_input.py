"""The sound of clients in a front: decoded, resampled, and classified by the VAD in batches.

Frames of 32 ms of all sessions that have one are classified in one call of the network, at most
once in 10 ms. A message with sound waits until its frames are classified, and later messages of the
same client wait for it, so their order stays. The end-of-turn model works on threads meanwhile; its
answers go with the next sound.

The core is spared messages that cannot change anything: sound without a whole frame joins the next
packet. After so much silence that no turn can be in progress, and within steady speech, sound is
sent in larger pieces until a frame differs. Any other message first sends all sound before it.

Runs on the event loop of a front, except the end-of-turn model. Knows no turns.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import torch
from starlette.types import Message

from mosslive.errors import MossliveError
from mosslive.server.realtime.formats import AudioFormat
from mosslive.talk.end_checks import CheckTimes, EndChecks
from mosslive.talk.smart_turn import SmartTurn, is_installed
from mosslive.talk.vad import (
    FRAME_SAMPLES,
    VAD_HZ,
    SileroVad,
    VoiceActivity,
    probabilities,
    vad_threads,
)
from mosslive.talk.vad_frames import FrameStream

_INTERVAL_S = 0.01  # between two batches; a frame has 32 ms
_PIECE_S = 0.16  # of sound in one message, unless a packet is longer
_SPEECH_PIECE_S = 0.08  # within steady speech: the codec encodes blocks of this length
_HELD_S = 0.25  # no message waits longer for more sound, if any comes
_PART_BYTES = 48_000  # a second of PCM; a longer packet would keep other clients waiting
_ROUNDS = 16  # frames of one session in a batch; other tasks run before the next
_log = logging.getLogger("mosslive.fronts")


@dataclass
class _Waiting:
    """A message on its way to the core."""

    message: Message
    since: float  # by the clock of the event loop
    samples: int = 0  # of sound that the VAD has got; 0: another message
    frames: int = 0  # that are not classified yet
    speech: list[float] = field(default_factory=list)


class SpeechInput:
    """The sound of one client."""

    def __init__(self, batch: "SpeechBatch", forward: Callable[[Message], None]) -> None:
        """`forward`: sends a message to the core."""
        self._batch, self._forward = batch, forward
        self._form = AudioFormat()
        self._odd = b""  # an incomplete sample
        self._stream: int | None = None  # None: the VAD is off
        self._frames: FrameStream | None = None
        self.vad: VoiceActivity | None = None
        self._checks: EndChecks | None = None
        self._soft_below, self._soft_frames = 0.0, 0  # probability; the latest frames below it
        self._quiet_frames = 0  # no turn is in progress after so many soft frames
        self._loud_from, self._loud_frames = 1.0, 0  # probability; the latest frames at or above it
        self._steady_frames = 0  # a turn is in progress after so many loud frames
        self._waiting: deque[_Waiting] = deque()

    def use(self, settings: dict[str, Any]) -> None:
        """New settings of the session, from the next sound on."""
        form = AudioFormat(settings["format"])
        if form != self._form:
            self._form, self._odd = form, b""
        if settings["stream"] == self._stream:
            return
        for one in self._waiting:  # none, unless settings come without an update
            one.frames = one.samples = 0
        self._stream, self._frames, self.vad = settings["stream"], None, None
        self._checks = None
        self._soft_below, self._soft_frames = settings["soft_below"], 0
        self._loud_from, self._loud_frames = settings["loud_from"], 0
        self._quiet_frames = math.ceil(settings["quiet_s"] * VAD_HZ / FRAME_SAMPLES)
        self._steady_frames = math.ceil(settings["steady_s"] * VAD_HZ / FRAME_SAMPLES) + 1
        if self._stream is not None:
            try:
                self.vad = _class(settings["vad"])()
                if settings["end_model"]:
                    times = CheckTimes(*settings["end_checks"])
                    model = _class(settings["end_model"])()
                    self._checks = EndChecks(model, times, vad_threads())
                self._frames = FrameStream(form.rate_hz)
            except Exception as error:
                self.fail(error)
        self.flush()

    def parts(self, message: Message) -> Iterator[Message]:
        """Long sound as several messages, if the VAD is on; everything else as it is."""
        event = message.get("event")
        if self._frames is None or event is None or len(event["audio"]) <= _PART_BYTES:
            yield message
            return
        for first in range(0, len(event["audio"]), _PART_BYTES):
            audio = event["audio"][first : first + _PART_BYTES]
            yield {**message, "event": {**event, "audio": audio}}

    def push(self, message: Message) -> bool:
        """The next message of the client; its sound, if any, is in `message["event"]`. True: it has
        joined the message before it."""
        event = message.get("event")
        if self._frames is None or event is None:
            self._waiting.append(_Waiting(message, _now()))
            self.flush()
            return False
        last = self._waiting[-1] if self._waiting else None
        joins = last is not None and 0 < last.samples < _PIECE_S * self._form.rate_hz
        if last is None or not joins:
            last = _Waiting(message, _now())
            self._waiting.append(last)
            event["speech"] = [self._stream, last.speech]
        else:
            last.message["event"]["audio"] += event["audio"]
        samples, frames = self._add(event["audio"])
        last.samples += samples
        last.frames += frames
        if last.frames:
            self._batch.add(self)
        self.flush()
        return joins

    @property
    def has_frame(self) -> bool:
        return self._frames is not None and self._frames.waiting > 0

    def take(self) -> Any:
        """The next frame, [512]."""
        assert self._frames is not None, "only called if it has a frame"
        return self._frames.take()

    def classified(self, frame: Any, probability: float) -> None:
        """The result for the oldest frame that was taken."""
        if self._checks:
            self._checks.push(frame, probability)
        waiting = next(one for one in self._waiting if one.frames)
        waiting.frames -= 1
        waiting.speech.append(probability)
        self._soft_frames = self._soft_frames + 1 if probability < self._soft_below else 0
        self._loud_frames = self._loud_frames + 1 if probability >= self._loud_from else 0

    def fail(self, error: Exception) -> None:
        """The VAD cannot run here: the core does it."""
        _log.error("voice activity detection failed in a front", exc_info=error)
        self._frames, self.vad, self._checks = None, None, None
        for one in self._waiting:
            one.frames = one.samples = 0

    def flush(self) -> None:
        """Forwards messages up to the first that waits for the VAD or for more sound."""
        while self._waiting and not self._waiting[0].frames:
            if len(self._waiting) == 1 and self._holds(self._waiting[0]):
                return
            first = self._waiting.popleft()
            if first.samples and self._checks and (ends := self._checks.take()):
                first.message["event"]["speech"].append(ends)
            self._forward(first.message)

    def _holds(self, last: _Waiting) -> bool:
        """Whether the core does not need this sound before more sound has come."""
        if not last.samples or self._frames is None or _now() - last.since > _HELD_S:
            return False
        least_s = 0.0
        if self._soft_frames >= self._quiet_frames:
            least_s = _PIECE_S
        elif self._loud_frames >= self._steady_frames:
            least_s = _SPEECH_PIECE_S
        return not last.speech or last.samples < least_s * self._form.rate_hz

    def _add(self, data: bytes) -> tuple[int, int]:
        """The samples, and the frames that they complete."""
        assert self._frames is not None, "the VAD is on"
        data = self._odd + data
        whole = len(data) - len(data) % self._form.bytes_per_sample
        self._odd = data[whole:]
        before = self._frames.waiting
        wave = self._form.decode(data[:whole])
        self._frames.push(torch.from_numpy(wave))
        return len(wave), self._frames.waiting - before


class SpeechBatch:
    """The frames of all clients of a front that wait for the VAD."""

    def __init__(self) -> None:
        self._inputs: dict[SpeechInput, None] = {}  # in order, each once
        self._timer: asyncio.TimerHandle | None = None
        self._ran_at = 0.0

    def add(self, waiting: SpeechInput) -> None:
        self._inputs[waiting] = None
        if self._timer is None:
            loop = asyncio.get_running_loop()
            at = max(loop.time(), self._ran_at + _INTERVAL_S)
            self._timer = loop.call_at(at, self._run)

    def _run(self) -> None:
        self._timer = None
        self._ran_at = asyncio.get_running_loop().time()
        for _ in range(_ROUNDS):
            inputs = [one for one in self._inputs if one.has_frame]
            if not inputs:
                break
            _classify(inputs)
        rest = [one for one in self._inputs if one.has_frame]
        for one in self._inputs:
            one.flush()
        self._inputs.clear()
        if rest:
            self._ran_at = 0.0  # without a pause
            for one in rest:
                self.add(one)


def _classify(inputs: list[SpeechInput]) -> None:
    frames = [one.take() for one in inputs]
    try:
        results = probabilities([one.vad for one in inputs if one.vad], frames)
    except Exception as error:
        for one in inputs:
            one.fail(error)
        return
    for one, frame, probability in zip(inputs, frames, results, strict=True):
        one.classified(frame, probability)


def _now() -> float:
    return asyncio.get_running_loop().time()


def warm() -> None:
    """Does what the first sound of a client would wait for."""
    with suppress(MossliveError):  # without the packages of the VAD, sessions cannot use it
        frames = FrameStream(AudioFormat().rate_hz)
        frames.push(torch.zeros(AudioFormat().rate_hz // 10))
        probabilities([SileroVad()], [frames.take()])
    if is_installed():
        SmartTurn().complete(np.zeros(VAD_HZ, np.float32))


@cache
def _class(name: str) -> Callable[[], Any]:
    """`name`: module and class, as the core has them."""
    module, _, kind = name.partition(":")
    made: Callable[[], Any] = getattr(import_module(module), kind)
    return made
