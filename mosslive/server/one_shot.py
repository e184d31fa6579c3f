"""One reply to given turns, outside a live conversation; and turns made from text or audio.

Used by the HTTP endpoints, transcripts and out-of-band responses. Runs on the event loop; the
engine and the codec compute on their own threads. Does not know protocols.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from mosslive.codec import Sound, Voice
from mosslive.errors import MossliveError
from mosslive.rows import Role, Turn
from mosslive.server.api_errors import ReplyFailed
from mosslive.server.backend import Backend
from mosslive.talk import TalkSettings
from mosslive.talk.dialogue import HistoryTurn
from mosslive.talk.events import Event, ReplyDone, TalkFault, TextDelta, TimingReady
from mosslive.talk.transcript import codes_of, transcription_turns


async def turn_of(backend: Backend, role: Role, content: str | Sound) -> HistoryTurn:
    """Tokenises a text or encodes audio. Raises `MossliveError` for audio without a codec."""
    form = backend.engine.format
    if isinstance(content, str):
        # Tokenising a long text takes time: the worker thread keeps the event loop free.
        return HistoryTurn(
            role, "text", tuple(await asyncio.to_thread(form.turn, Turn(role, text=content)))
        )
    if backend.codec is None:
        raise MossliveError(
            "this server has no codec and cannot process audio; start it with --codec"
        )
    codes = await backend.codec.encode(*content)
    return HistoryTurn(role, "speech", tuple(form.turn(Turn(role, codes=codes))))


async def one_shot_reply(
    backend: Backend,
    turns: Sequence[HistoryTurn],
    settings: TalkSettings,
    voice: Voice | None,
    said: list[HistoryTurn] | None = None,
) -> AsyncGenerator[Event]:
    """Yields the events of the reply; the last is `TimingReady`.

    Appends the turn of the reply to `said` at the end. Closing the iterator cancels the reply and
    frees its resources. Raises the reply's `MossliveError`, or `ReplyFailed` for other faults.
    """
    talk = backend.talk(settings, voice, turns)
    try:
        talk.respond()
        async for event in talk.events():
            if isinstance(event, TalkFault):
                known = isinstance(event.error, MossliveError)
                raise event.error if event.error and known else ReplyFailed(event.message)
            yield event
            if isinstance(event, TimingReady):
                if said is not None:
                    said += [one for one in talk.turns[-1:] if one.role == "assistant"]
                return
    finally:
        await backend.end(talk)


def reply_rows(backend: Backend, said: Sequence[HistoryTurn]) -> int:
    """How many rows the model has produced for these turns: their headers and footers are ours."""
    form = backend.engine.format
    own = len(form.header("assistant")) + len(form.footer())
    return sum(max(0, len(one.rows) - own) for one in said)


async def transcribe_turn(backend: Backend, said: HistoryTurn) -> str:
    """The transcript of a spoken turn, from the model's text mode."""
    return await transcribe_codes(backend, codes_of(backend.engine, said))


async def transcribe_codes(backend: Backend, codes: list[int]) -> str:
    """The transcript of speech that is given as codes."""
    async with aclosing(transcription_events(backend, codes)) as events:
        async for event in events:
            if isinstance(event, ReplyDone):
                return event.text
    return ""


async def transcription_events(
    backend: Backend, codes: list[int], written: list[HistoryTurn] | None = None
) -> AsyncGenerator[TextDelta | ReplyDone]:
    """The transcript of speech as the model writes it; its turn is appended to `written` at the
    end. Yields nothing without codes. Closing the iterator cancels it."""
    turns = transcription_turns(backend.engine, codes)
    if not turns:
        return
    settings = backend.task_settings("text")
    async with aclosing(one_shot_reply(backend, turns, settings, None, written)) as reply:
        async for event in reply:
            if isinstance(event, TextDelta | ReplyDone):
                yield event
