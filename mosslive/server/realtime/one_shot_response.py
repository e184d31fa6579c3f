"""Responses whose reply has a context of its own: one task each makes the reply and sends it.

Two kinds: a one-shot response writes its output to the conversation; an out-of-band response
(`conversation: "none"`) leaves no trace there. Both run on the event loop of the session, parallel
to `Talk`, and end with the session. Does not know when a response may start:
`client_events.response` checks it.
"""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from mosslive.errors import MossliveError
from mosslive.server.api_errors import ApiError, as_api_error
from mosslive.server.one_shot import one_shot_reply, turn_of
from mosslive.server.realtime import fields, talk_config
from mosslive.server.realtime.config import SessionConfig
from mosslive.server.realtime.history_edits import append, with_system
from mosslive.server.realtime.item_input import read_item, role_of
from mosslive.server.realtime.response_output import ResponseEvents
from mosslive.server.realtime.session import RealtimeSession
from mosslive.server.realtime.usage import usage_of
from mosslive.talk.dialogue import HistoryTurn
from mosslive.talk.events import AudioChunk, ReplyDone, ReplyStarted, TextDelta, TimingReady

_MOST_INPUT = 10  # times the longest text of one item

Context = list[Any] | None  # items as the client gives them; None: the conversation


def start_one_shot(
    session: RealtimeSession,
    config: SessionConfig,
    metadata: dict[str, str] | None,
    context: Context,
) -> None:
    """Starts a response that writes to the conversation."""
    _start(session, session.begin_one_shot(config, metadata), context)


def start_out_of_band(
    session: RealtimeSession,
    config: SessionConfig,
    metadata: dict[str, str] | None,
    context: Context,
) -> None:
    """Starts a response outside the conversation. Raises `ApiError` if too many run."""
    most = session.backend.settings.max_out_of_band
    if session.responses.tasks >= most:
        raise ApiError(
            f"{session.responses.tasks} out-of-band responses run; allowed: {most}; wait until one "
            "is done",
            "too_many_responses",
        )
    response = session.new_response(config, metadata, out_of_band=True)
    response.begin()
    _start(session, response, context)


def _start(session: RealtimeSession, response: ResponseEvents, context: Context) -> None:
    def ended(task: object) -> None:
        session.responses.remove_task(response.id)
        response.finish("cancelled", "client_cancelled")  # no effect if it is done
        session.responses.end(response)
        session.progressed()

    task = session.start(_make(session, response, context))
    session.responses.add_task(response.id, task)
    task.add_done_callback(ended)


async def _make(session: RealtimeSession, response: ResponseEvents, context: Context) -> None:
    config, backend = response.config, session.backend
    settings = backend.talk_settings(
        talk_config.reply_kind(config), config.instructions, talk_config.sampling(backend, config)
    )
    try:
        turns = await _turns(session, config, context)
        said: list[HistoryTurn] = []
        done = ReplyDone(0, "", 0, "stop")
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
                        done = event
                    case TimingReady(timing):
                        session.metrics.turn(timing)
    except Exception as error:
        if not isinstance(error, MossliveError):
            session.log.error("a response failed", exc_info=error)
        response.fail(as_api_error(error))
        return
    if response.place.conversation_id and response.item:
        response.item.turns = [session.own_turn()]
        session.edit(append(said, response.item.turns[0]))
    response.end(done.stop, usage_of(turns, done))


async def _turns(
    session: RealtimeSession, config: SessionConfig, context: Context
) -> Sequence[HistoryTurn]:
    """The prompt of the reply: its instructions, and the conversation or the client's `input`."""
    system = await with_system(session.backend.engine, config.instructions)
    now = await session.talk.settled()
    if context is None:
        return system(now)
    turns: list[HistoryTurn] = []
    chars, most = 0, _MOST_INPUT * session.backend.settings.max_text_chars
    for number, raw in enumerate(context):
        if not isinstance(raw, dict):
            raise fields.bad(f"response.input[{number}]", raw, "an item, or a reference to one")
        if raw.get("type") == "item_reference":
            item = session.items.get(fields.text(raw, "id", f"response.input[{number}]."))
            turns += [s for s in now if s.turn in item.turns and s.role == item.role]
            continue
        item, contents = await read_item(session, raw)
        chars += len(item.text)
        if chars > most:
            raise ApiError(
                f"response.input has more than {most} characters; allowed: at most {most}",
                param="response.input",
            )
        for one in contents:
            turns.append(await turn_of(session.backend, role_of(item), one))
    return system(turns)
