"""From the events of a conversation (`Talk`) to server events: speech, turns, replies, faults.

Each event is forwarded once, in order: by one task per session (`run`), and by client event
handlers, which forward all waiting events before they look at the session
(`RealtimeSession.catch_up`). Everything runs on the event loop of the session. Does not know how
turns are detected or replies are made.
"""

import asyncio
from dataclasses import dataclass, replace

from mosslive.errors import MossliveError
from mosslive.server.api_errors import ApiError, as_api_error
from mosslive.server.gaps import HeardGaps
from mosslive.server.realtime.client_events.input_audio_buffer import commit_item, commit_silence
from mosslive.server.realtime.client_events.response import respond
from mosslive.server.realtime.live_transcript import LiveTranscript
from mosslive.server.realtime.response_output import ResponseEvents
from mosslive.server.realtime.response_state import Phase
from mosslive.server.realtime.server_events import input_audio_buffer as input_events
from mosslive.server.realtime.server_events.timing import TIMING, timing_ready
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
from mosslive.talk.timing import TurnTiming
from mosslive.talk.transcript import codes_of


@dataclass
class TalkEventForwarder:
    session: RealtimeSession

    def __post_init__(self) -> None:
        self._reply = (0, "")  # turn and response id of the latest reply
        self._live = LiveTranscript(self.session)
        self.session.on_event = self._forward
        self.session.idle.on_idle = self._idle

    async def run(self) -> None:
        """Forwards events until the conversation is closed."""
        session = self.session
        async for event in session.talk.events():
            self._forward(event)
            session.apply_edits()
            await asyncio.sleep(0)  # other sessions run between two of many waiting events

    def _forward(self, event: Event) -> None:
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
                self._turn_detected(turn)
            case ReplyStarted(turn):
                self._reply_started(turn)
            case TextDelta(turn, text):
                if response := session.responses.of_turn(turn):
                    response.text(text)
            case AudioChunk(turn=turn, pcm=pcm):
                if response := session.responses.of_turn(turn):
                    session.responses.use_voice()
                    response.audio(pcm)
                    if response.item:
                        self._live.grow(turn, response.item.id)
            case ReplyDone(turn=turn):
                if response := session.responses.of_turn(turn):
                    self._reply_done(response, event)
            case ReplyInterrupted(turn):
                reason = session.responses.take_cancel_reason()
                self._live.interrupt(turn)
                if response := session.responses.of_turn(turn):
                    response.finish("cancelled", reason)
                    self._end(response)
            case TimingReady(timing):
                session.metrics.turn(timing)
                self._timing_ready(timing)
            case ContextTrimmed(turns=turns):
                session.log.info("context trimmed", extra={"turns": turns})
            case TalkFault():
                self._fault(event)

    # The user.

    def _speech_started(self, turn: int, position_s: float) -> None:
        session = self.session
        heard = session.input.start_turn(turn, position_s)
        if session.config.turn_detection is None:
            return
        session.send(input_events.speech_started(heard.item.id, round(1000 * position_s)))
        response = session.responses.active
        one_shot = session.responses.phase is Phase.ONE_SHOT
        if response and one_shot and session.config.interrupts:
            response.finish("cancelled", "turn_detected")
            session.responses.cancel_task(response.id)

    def _speech_stopped(self, turn: int, position_s: float) -> None:
        session = self.session
        detection = session.config.turn_detection
        waited_s = (detection or {}).get("silence_duration_ms", 0) / 1000
        end_s = min(position_s + waited_s, session.input.buffer.came_s)
        heard = session.input.stop_turn(turn, end_s)
        if heard and detection is not None:
            session.send(input_events.speech_stopped(heard.item.id, round(1000 * end_s)))

    def _turn_detected(self, turn: int) -> None:
        session = self.session
        heard = session.input.end_turn(turn)
        if heard is None:
            return
        item, buffer = heard.item, session.input.buffer
        item.rate_hz, item.turns = buffer.rate_hz, [turn]
        if session.config.turn_detection is None:
            item.add_sound(buffer.take())
        else:
            item.add_sound(buffer.between(heard.start_s, heard.end_s))
        if session.config.creates:
            session.expect_response(turn)
        commit_item(session, item)

    def _idle(self, idle_s: float) -> None:
        """Answers silence after the idle timeout of turn detection."""
        session = self.session
        session.catch_up()
        if session.responses.phase is not Phase.NONE or session.talk.listening:
            session.idle.restart()
            return
        try:
            commit_silence(session, idle_s)
            respond(session, session.config)
        except MossliveError as error:
            session.send_error(as_api_error(error))

    # The reply.

    def _reply_started(self, turn: int) -> None:
        session, responses = self.session, self.session.responses
        response = responses.of_turn(turn)
        if response is None and (other := responses.active):  # the user's turn goes first
            other.finish("cancelled", "turn_detected")
            responses.end(other)
            responses.cancel_task(other.id)
        response = response or session.begin_expected(turn)
        self._reply = (turn, response.id)
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
            session.start(self._end_with_transcript(response, said, done, usage))
            return
        response.end(done.stop, usage)
        self._end(response)

    async def _end_with_transcript(
        self, response: ResponseEvents, said: HistoryTurn, done: ReplyDone, usage: dict[str, object]
    ) -> None:
        try:
            codes = codes_of(self.session.backend.engine, said)
            item_id = response.item.id if response.item else ""
            response.text(await self._live.of_reply(item_id, codes))
        except Exception as error:
            self.session.log.warning("no transcript: %s", error)
        finally:
            response.end(done.stop, usage)
            self._end(response)

    def _timing_ready(self, timing: TurnTiming) -> None:
        """Logs and sends the record of a reply, with the gaps that were heard. They are known when
        all of its sound was sent, so the record waits until then."""
        session = self.session

        def report(heard: HeardGaps) -> None:
            counted = replace(timing, underruns=heard.gaps, silence_s=heard.silence_s)
            session.log.info("turn", extra={"timing": counted.document()})
            if TIMING in session.config.included:
                session.send(timing_ready(counted.document()))

        turn, response_id = self._reply
        if session.gap_reports and turn == timing.turn:
            session.gap_reports.when_over(response_id, report)
        else:
            report(HeardGaps(timing.underruns, timing.silence_s))

    def _end(self, response: ResponseEvents) -> None:
        self.session.responses.end(response)
        self.session.items.forget_sound()
        self.session.progressed()

    def _fault(self, fault: TalkFault) -> None:
        session, responses = self.session, self.session.responses
        if not session.config.replies and fault.stage == "listening" and not fault.fatal:
            # Its sound is transcribed all the same, and the client hears of that.
            session.log.info("a turn is not part of the context: %s", fault.message)
            return
        session.log.error("the conversation failed: %s", fault.message)
        api_error = ApiError(fault.message, _code(fault), kind="server_error")
        response = responses.of_turn(fault.turn)
        expected = session.config.creates and responses.awaits(fault.turn)
        if responses.active is None and expected and fault.stage != "memory":
            # The reply failed before it began. The client waits for a response all the same.
            response = session.begin_expected(fault.turn)
        if response and responses.phase is Phase.ACTIVE:
            response.fail(api_error)
            self._end(response)
        else:
            session.send_error(api_error)
        if fault.fatal:
            session.over.set()


def _code(fault: TalkFault) -> str:
    """The error's own code if the engine or the codec is full, so that the client can act on it."""
    known = as_api_error(fault.error) if isinstance(fault.error, MossliveError) else None
    full = known is not None and (known.status == 503 or known.code == "engine_full_context")
    return known.code if known and known.code and full else f"{fault.stage}_failed"


def _find(turns: list[HistoryTurn], turn: int, role: str) -> HistoryTurn | None:
    return next((said for said in turns if said.turn == turn and said.role == role), None)
