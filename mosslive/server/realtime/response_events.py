"""`response.*`: replies a client asks for, in the conversation or aside, and their cancellation."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from mosslive.errors import MossliveError
from mosslive.server.once import reply_once, turn_of
from mosslive.server.realtime import fields, rules
from mosslive.server.realtime.buffer_events import detach
from mosslive.server.realtime.config import SessionConfig, output_changes
from mosslive.server.realtime.conversation_events import read_item, role_of
from mosslive.server.realtime.history import append, with_system
from mosslive.server.realtime.ladder import Ladder, Place
from mosslive.server.realtime.session import Handler, RealtimeSession
from mosslive.server.realtime.usage import usage_of
from mosslive.server.wire import Event, Refusal, as_refusal
from mosslive.talk.dialogue import Said
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
        _start_aside(session, config, metadata, given, None)
        return
    if session.ending:
        await session.until(lambda: not session.ending)
        session.catch_up()
    if session.active or session.talk.replying:
        raise Refusal(
            "the conversation has an active response; wait for its end, or cancel it",
            "conversation_already_has_active_response",
        )
    if given is not None or config.instructions != session.config.instructions:
        # What only this response is to know stays out of the conversation; the answer does not.
        ladder = session.begin_response(0, config, metadata)
        _start_aside(session, config, metadata, given, ladder)
        return
    if session.talk.listening:
        if session.config.turn_detection is not None:
            raise Refusal(
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
    if response_id is not None and (task := session.aside.get(response_id)):
        task.cancel()
        return
    ladder = session.active
    known = ladder is not None and response_id in (None, ladder.id)
    on_its_way = ladder is None and session.talk.replying and not session.ending
    if on_its_way and response_id is None:  # it was not told yet
        ladder, known = session.begin_response(session.expected_turn, session.config), True
    if ladder is None or not known:
        raise Refusal("Cancellation failed: no active response found", "response_cancel_not_active")
    if ladder.id in session.aside:
        ladder.finish("cancelled", "client_cancelled")
        session.active = None
        session.aside[ladder.id].cancel()
    elif session.talk.cancel():
        session.cancelled_by_client = True
        session.take_events()


def _start_aside(
    session: RealtimeSession,
    config: SessionConfig,
    metadata: dict[str, str] | None,
    given: list[Any] | None,
    ladder: Ladder | None,
) -> None:
    """`ladder`: of a response that joins the conversation; None: it stays outside."""
    if ladder is None:
        if len(session.aside) >= session.backend.settings.max_out_of_band:
            raise Refusal("too many out-of-band responses at once", "too_many_responses")
        place = Place(None, lambda item: None)
        ladder = Ladder(session.send, config, session.backend.rate_hz, place, metadata)
        ladder.begin()
    made = ladder

    def gone(task: object) -> None:
        session.aside.pop(made.id, None)
        made.finish("cancelled", "client_cancelled")
        if session.active is made:
            session.active = None
        session.progressed()

    task = session.start(_aside(session, made, given))
    session.aside[made.id] = task
    task.add_done_callback(gone)


async def _aside(session: RealtimeSession, ladder: Ladder, given: list[Any] | None) -> None:
    config, backend = ladder.config, session.backend
    settings = backend.talk_settings(
        rules.reply_kind(config), config.instructions, rules.sampling(backend, config)
    )
    try:
        turns = await _context(session, config, given)
        said: list[Said] = []
        stop = ReplyDone(0, "", 0, "stop")
        voice = session.voice(config)
        async with aclosing(reply_once(backend, turns, settings, voice, said)) as reply:
            async for event in reply:
                match event:
                    case ReplyStarted():
                        ladder.open_item()
                    case TextDelta(_, text):
                        ladder.text(text)
                    case AudioChunk(pcm=pcm):
                        ladder.audio(pcm)
                    case ReplyDone():
                        stop = event
                    case TimingReady(timing):
                        session.metrics.turn(timing)
    except MossliveError as error:
        ladder.fail(as_refusal(error))
        return
    if ladder.place.conversation_id and ladder.item:
        ladder.item.turns = [session.own_number()]
        session.edit(append(said, ladder.item.turns[0]))
    ladder.end(stop.stop, usage_of(turns, stop))


async def _context(
    session: RealtimeSession, config: SessionConfig, given: list[Any] | None
) -> Sequence[Said]:
    """What the model knows when it answers: the conversation, or what the client gave instead."""
    system = await with_system(session.backend.engine, config.instructions)
    now = await session.talk.settled()
    if given is None:
        return system(now)
    turns: list[Said] = []
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
            raise Refusal(f"response.input: {most} characters at most", param="response.input")
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
