"""From the conversation's events to the protocol's: speech, turns, replies, faults.

They are told in order, each once: by one task per session, and by handlers, which tell all that
wait before they look at the session.
"""

import asyncio
from dataclasses import dataclass, field

from mosslive.errors import MossliveError
from mosslive.server.api_errors import ApiError, as_api_error
from mosslive.server.one_shot import transcribe_turn
from mosslive.server.realtime.buffer_events import commit_silence, told
from mosslive.server.realtime.items import Item
from mosslive.server.realtime.response_events import respond
from mosslive.server.realtime.response_output import ResponseEvents
from mosslive.server.realtime.session import RealtimeSession
from mosslive.server.realtime.usage import usage_of
from mosslive.talk.dialogue import HistoryTurn
from mosslive.talk.events import (
    AudioChunk,
    ContextTrimmed,
    Event,
    ReplyDone,
    ReplyInterrupted,
    ReplyStarted,
    SpeechStarted,
    SpeechStopped,
    TalkFault,
    TextDelta,
    TimingReady,
    TurnDetected,
)

# Our own event, for clients that ask for it: `include` of the session names it.
TIMING = "mosslive.timing"


@dataclass
class _Spoken:
    """A turn of the user, from its first sound to its commit."""

    item: Item
    start_s: float
    end_s: float = 0.0


@dataclass
class TalkEventForwarder:
    session: RealtimeSession
    _spoken: dict[int, _Spoken] = field(default_factory=dict)  # by turn; one at a time

    def __post_init__(self) -> None:
        self.session.on_event = self._tell
        self.session.idle.on_idle = self._silence

    async def run(self) -> None:
        """Until the conversation is closed."""
        session = self.session
        async for event in session.talk.events():
            self._tell(event)
            session.run_edits()
            await asyncio.sleep(0)  # many may wait: other sessions go on between two of them

    def _tell(self, event: Event) -> None:
        self._on(event)
        self.session.progressed()

    def _on(self, event: Event) -> None:
        session = self.session
        match event:
            case SpeechStarted(turn, position_s):
                self._speech_started(turn, position_s)
            case SpeechStopped(turn, position_s):
                self._speech_stopped(turn, position_s)
            case TurnDetected(turn):
                self._turn_over(turn)
            case ReplyStarted(turn):
                self._reply_started(turn)
            case TextDelta(turn, text):
                if response := self._response_of(turn):
                    response.text(text)
            case AudioChunk(turn=turn, pcm=pcm):
                if response := self._response_of(turn):
                    session.spoke = True
                    response.audio(pcm)
            case ReplyDone(turn=turn):
                if response := self._response_of(turn):
                    self._reply_done(response, event)
            case ReplyInterrupted(turn):
                reason = "client_cancelled" if session.cancelled_by_client else "turn_detected"
                session.cancelled_by_client = False
                if response := self._response_of(turn):
                    response.finish("cancelled", reason)
                    self._over(response)
            case TimingReady(timing):
                session.metrics.turn(timing)
                session.log.info("turn", extra={"timing": timing.document()})
                if TIMING in session.config.included:
                    session.send({"type": TIMING, "timing": timing.document()})
            case ContextTrimmed(turns=turns):
                session.log.info("context trimmed", extra={"turns": turns})
            case TalkFault():
                self._fault(event)

    # The user.

    def _speech_started(self, turn: int, position_s: float) -> None:
        session = self.session
        item = Item(content=[{"type": "input_audio", "transcript": None}])
        self._spoken = {turn: _Spoken(item, position_s)}
        if session.config.turn_detection is None:
            return
        start = {"audio_start_ms": round(1000 * position_s), "item_id": item.id}
        session.send({"type": "input_audio_buffer.speech_started", **start})
        response = session.active
        if response and response.id in session.out_of_band and session.config.interrupts:
            response.finish("cancelled", "turn_detected")
            session.out_of_band[response.id].cancel()

    def _speech_stopped(self, turn: int, position_s: float) -> None:
        session, spoken = self.session, self._spoken.get(turn)
        if spoken is None:
            return
        detection = session.config.turn_detection
        waited_s = (detection or {}).get("silence_duration_ms", 0) / 1000
        spoken.end_s = min(position_s + waited_s, session.buffer.came_s)
        if detection is not None:
            end = {"audio_end_ms": round(1000 * spoken.end_s), "item_id": spoken.item.id}
            session.send({"type": "input_audio_buffer.speech_stopped", **end})

    def _turn_over(self, turn: int) -> None:
        session, spoken = self.session, self._spoken.pop(turn, None)
        if spoken is None:
            return
        item, buffer = spoken.item, session.buffer
        item.rate_hz, item.turns = buffer.rate_hz, [turn]
        if session.config.turn_detection is None:
            item.hear(buffer.take())
        else:
            item.hear(buffer.between(spoken.start_s, spoken.end_s))
        session.expected_turn = turn
        told(session, item)

    def _silence(self, idle_s: float) -> None:
        session = self.session
        session.catch_up()
        if session.active or session.talk.replying or session.talk.listening:
            session.idle.count_anew()
            return
        try:
            commit_silence(session, idle_s)
            respond(session, session.config)
        except MossliveError as error:
            session.send_error(as_api_error(error))

    # The reply.

    def _response_of(self, turn: int) -> ResponseEvents | None:
        """The response that tells this reply; replies nobody follows any more have none."""
        session = self.session
        return session.active if session.active_turn == turn else None

    def _reply_started(self, turn: int) -> None:
        session = self.session
        response = session.active
        if response and session.active_turn != turn:  # the user's turn goes first
            response.finish("cancelled", "turn_detected")
            if task := session.out_of_band.get(response.id):
                task.cancel()
            response = None
        response = response or session.begin_response(turn, session.config)
        response.open_item()
        if response.item:
            response.item.turns = [turn]

    def _reply_done(self, response: ResponseEvents, done: ReplyDone) -> None:
        session = self.session
        turns = session.talk.turns
        said = _find(turns, done.turn, "assistant")
        before = turns[: turns.index(said)] if said in turns else turns
        usage = usage_of(before, done, len(said.rows) if said else None)
        if session.log.isEnabledFor(10) and session.backend.settings.log_content:
            session.log.debug("reply", extra={"text": done.text})
        spoken = response.config.modality == "audio" and not done.text
        if said and spoken and session.backend.transcripts:
            session.start(self._with_transcript(response, said, done, usage))
            return
        response.end(done.stop, usage)
        self._over(response)

    async def _with_transcript(
        self, response: ResponseEvents, said: HistoryTurn, done: ReplyDone, usage: dict[str, object]
    ) -> None:
        try:
            response.text(await transcribe_turn(self.session.backend, said))
        except MossliveError as error:
            self.session.log.warning("no transcript: %s", error)
        finally:
            response.end(done.stop, usage)
            self._over(response)

    def _over(self, response: ResponseEvents) -> None:
        if self.session.active is response:
            self.session.active = None
        self.session.items.forget_sound()
        self.session.progressed()

    def _fault(self, fault: TalkFault) -> None:
        session = self.session
        session.log.error("the conversation failed: %s", fault.message)
        api_error = ApiError(fault.message, _code(fault), kind="server_error")
        response = self._response_of(fault.turn)
        awaited = session.config.creates and fault.turn == session.expected_turn
        if session.active is None and awaited and fault.stage != "memory":
            # Refused before it began: the client waits for a response all the same.
            response = session.begin_response(fault.turn, session.config)
        if response and response.id not in session.out_of_band:
            response.fail(api_error)
            self._over(response)
        else:
            session.send_error(api_error)
        if fault.fatal:
            session.over.set()


def _code(fault: TalkFault) -> str:
    """What the server has no room for now has its own code: the client may try again."""
    known = as_api_error(fault.error) if isinstance(fault.error, MossliveError) else None
    if known and known.code and known.status == 503:
        return known.code
    return f"{fault.stage}_failed"


def _find(turns: list[HistoryTurn], turn: int, role: str) -> HistoryTurn | None:
    return next((said for said in turns if said.turn == turn and said.role == role), None)
