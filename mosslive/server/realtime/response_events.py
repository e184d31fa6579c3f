"""`response.*`: replies a client asks for, in the conversation or aside, and their cancellation."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from mosslive.errors import MossliveError
from mosslive.server.api_errors import ApiError, Event, as_api_error
from mosslive.server.one_shot import one_shot_reply, turn_of
from mosslive.server.realtime import fields, talk_config
from mosslive.server.realtime.buffer_events import detach
from mosslive.server.realtime.config import SessionConfig, output_changes
from mosslive.server.realtime.conversation_events import read_item, role_of
from mosslive.server.realtime.history_edits import append, with_system
from mosslive.server.realtime.response_output import Place, ResponseEvents
from mosslive.server.realtime.session import Handler, RealtimeSession
from mosslive.server.realtime.usage import usage_of
from mosslive.talk.dialogue import HistoryTurn
from mosslive.talk.events import AudioChunk, ReplyDone, ReplyStarted, TextDelta, TimingReady

_MOST_METADATA = 16
_MOST_INPUT = 10  # times the longest text of one item


async def create(session: RealtimeSession, event: Event) -> None:
    raw = fields.record(event, "response", default={})
    where = "response."
    config = replace(session.config, **output_changes(session.config, raw, session.offer, where))
    metadata = _metadata(raw)
    aloof = raw.get("conversation") == "none"
    if raw.get("conversation") not in (None, "auto", "none"):
        raise fields.bad("response.conversation", raw["conversation"], "auto or none")
    given = fields.many(raw, "input", where, None)
    if aloof:
        _start_out_of_band(session, config, metadata, given, None)
        return
    if session.ending:
        await session.until(lambda: not session.ending)
        session.catch_up()
    if session.active or session.talk.replying:
        raise ApiError(
            "the conversation has an active response; wait for its end, or cancel it",
            "conversation_already_has_active_response",
        )
    if given is not None or config.instructions != session.config.instructions:
        # What only this response is to know stays out of the conversation; the answer does not.
        response = session.begin_response(0, config, metadata)
        _start_out_of_band(session, config, metadata, given, response)
        return
    if session.talk.listening:
        if session.config.turn_detection is not None:
            raise ApiError(
                "the user is speaking; the response comes when the turn is over",
                "conversation_already_has_active_response",
            )
        detach(session)
    respond(session, config, metadata)


def respond(
    session: RealtimeSession, config: SessionConfig, metadata: dict[str, str] | None = None
) -> None:
    """A reply of the conversation to all that was said."""
    session.run_edits()
    session.retune(config)
    try:
        turn = session.talk.respond()
    finally:
        session.retune(session.config)
    session.begin_response(turn, config, metadata)


async def cancel(session: RealtimeSession, event: Event) -> None:
    response_id = fields.text(event, "response_id", default=None)
    if response_id is not None and (task := session.out_of_band.get(response_id)):
        task.cancel()
        return
    response = session.active
    known = response is not None and response_id in (None, response.id)
    on_its_way = response is None and session.talk.replying and not session.ending
    if on_its_way and response_id is None:  # it was not told yet
        response, known = session.begin_response(session.expected_turn, session.config), True
    if response is None or not known:
        raise ApiError(
            "Cancellation failed: no active response found", "response_cancel_not_active"
        )
    if response.id in session.out_of_band:
        response.finish("cancelled", "client_cancelled")
        session.active = None
        session.out_of_band[response.id].cancel()
    elif session.talk.cancel():
        session.cancelled_by_client = True
        session.take_events()


def _start_out_of_band(
    session: RealtimeSession,
    config: SessionConfig,
    metadata: dict[str, str] | None,
    given: list[Any] | None,
    response: ResponseEvents | None,
) -> None:
    """`response`: of a response that joins the conversation; None: it stays outside."""
    if response is None:
        if len(session.out_of_band) >= session.backend.settings.max_out_of_band:
            raise ApiError("too many out-of-band responses at once", "too_many_responses")
        place = Place(None, lambda item: None)
        response = ResponseEvents(session.send, config, session.backend.rate_hz, place, metadata)
        response.begin()
    made = response

    def gone(task: object) -> None:
        session.out_of_band.pop(made.id, None)
        made.finish("cancelled", "client_cancelled")
        if session.active is made:
            session.active = None
        session.progressed()

    task = session.start(_out_of_band(session, made, given))
    session.out_of_band[made.id] = task
    task.add_done_callback(gone)


async def _out_of_band(
    session: RealtimeSession, response: ResponseEvents, given: list[Any] | None
) -> None:
    config, backend = response.config, session.backend
    settings = backend.talk_settings(
        talk_config.reply_kind(config), config.instructions, talk_config.sampling(backend, config)
    )
    try:
        turns = await _context(session, config, given)
        said: list[HistoryTurn] = []
        stop = ReplyDone(0, "", 0, "stop")
        voice = session.voice(config)
        async with aclosing(one_shot_reply(backend, turns, settings, voice, said)) as reply:
            async for event in reply:
                match event:
                    case ReplyStarted():
                        response.open_item()
                    case TextDelta(_, text):
                        response.text(text)
                    case AudioChunk(pcm=pcm):
                        response.audio(pcm)
                    case ReplyDone():
                        stop = event
                    case TimingReady(timing):
                        session.metrics.turn(timing)
    except MossliveError as error:
        response.fail(as_api_error(error))
        return
    if response.place.conversation_id and response.item:
        response.item.turns = [session.own_number()]
        session.edit(append(said, response.item.turns[0]))
    response.end(stop.stop, usage_of(turns, stop))


async def _context(
    session: RealtimeSession, config: SessionConfig, given: list[Any] | None
) -> Sequence[HistoryTurn]:
    """What the model knows when it answers: the conversation, or what the client gave instead."""
    system = await with_system(session.backend.engine, config.instructions)
    now = await session.talk.settled()
    if given is None:
        return system(now)
    turns: list[HistoryTurn] = []
    chars, most = 0, _MOST_INPUT * session.backend.settings.max_text_chars
    for number, raw in enumerate(given):
        if not isinstance(raw, dict):
            raise fields.bad(f"response.input[{number}]", raw, "an item, or a reference to one")
        if raw.get("type") == "item_reference":
            item = session.items.get(fields.text(raw, "id", f"response.input[{number}]."))
            turns += [s for s in now if s.turn in item.turns and s.role == item.role]
            continue
        item, words = await read_item(session, raw)
        chars += len(item.text)
        if chars > most:
            raise ApiError(f"response.input: {most} characters at most", param="response.input")
        for one in words:
            turns.append(await turn_of(session.backend, role_of(item), one))
    return system(turns)


def _metadata(raw: dict[str, Any]) -> dict[str, str] | None:
    given = fields.record(raw, "metadata", "response.", None)
    if given is None:
        return None
    pairs = all(isinstance(v, str) and len(k) <= 64 and len(v) <= 512 for k, v in given.items())
    if len(given) > _MOST_METADATA or not pairs:
        raise fields.bad("response.metadata", given, f"{_MOST_METADATA} pairs of short strings")
    return dict(given)


HANDLERS: dict[str, Handler] = {"response.create": create, "response.cancel": cancel}
