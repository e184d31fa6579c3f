"""The `openai` package, unmodified, against a real server."""

import asyncio
import base64
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.server.rig import CODES, MANUAL, RATE, WAIT_S, Parts, pcm, run, serving, spoken, turn

pytestmark = pytest.mark.alone


async def _until(connection: Any, kind: str, seen: list[Any]) -> Any:
    async with asyncio.timeout(WAIT_S):
        async for event in connection:
            seen.append(event)
            assert event.type != "error", event
            if event.type == kind:
                return event
    raise AssertionError(f"no {kind}")


async def _say(connection: Any, wave: Any) -> None:
    for first in range(0, len(wave), RATE // 20):
        await connection.input_audio_buffer.append(audio=pcm(wave[first : first + RATE // 20]))


def test_two_turns_and_an_interruption(parts: Parts) -> None:
    """In a spoken conversation with server VAD the second turn interrupts and truncates the first
    reply, and gets a complete answer."""

    async def test() -> None:
        async with serving(parts, max_reply_s=8.0, min_reply_s=16.0) as served:
            client = AsyncOpenAI(api_key="unused", base_url=f"{served.http}/v1")
            async with client.realtime.connect(model="moss") as connection:
                seen: list[Any] = []
                await _until(connection, "session.created", seen)
                await connection.session.update(
                    session={"type": "realtime", "instructions": "Be short."}
                )
                updated = await _until(connection, "session.updated", seen)
                assert updated.session.instructions == "Be short."
                await _say(connection, turn())
                first = await _until(connection, "response.output_audio.delta", seen)
                await _say(connection, spoken(0.5, seed=1))
                started = await _until(connection, "input_audio_buffer.speech_started", seen)
                assert started.audio_start_ms > 0
                done = await _until(connection, "response.done", seen)
                assert done.response.status == "cancelled"
                assert done.response.status_details.reason == "turn_detected"
                await connection.conversation.item.truncate(
                    item_id=first.item_id, content_index=0, audio_end_ms=80
                )
                await _until(connection, "conversation.item.truncated", seen)
                await connection.session.update(
                    session={"type": "realtime", "max_output_tokens": CODES}
                )
                await _say(connection, turn(0.2, seed=2))
                done = await _until(connection, "response.done", seen)
                assert done.response.status == "incomplete"  # random weights never end a reply
                (item,) = done.response.output
                sound = b"".join(
                    base64.b64decode(event.delta)
                    for event in seen
                    if event.type == "response.output_audio.delta" and event.item_id == item.id
                )
                assert len(sound) == CODES * 1920 * 2
                await connection.conversation.item.retrieve(item_id=item.id)
                got = await _until(connection, "conversation.item.retrieved", seen)
                assert base64.b64decode(got.item.content[0].audio) == sound

    run(test())


def test_beta(parts: Parts) -> None:
    """The SDK's beta client gets beta event names and flat session objects."""

    async def test() -> None:
        async with serving(parts) as served:
            client = AsyncOpenAI(
                api_key="unused",
                base_url=f"{served.http}/v1",
                websocket_base_url=f"ws://127.0.0.1:{served.port}/v1",
            )
            async with client.beta.realtime.connect(model="moss") as connection:
                seen: list[Any] = []
                created = await _until(connection, "session.created", seen)
                assert created.session.input_audio_format == "pcm16"
                session: Any = {"turn_detection": None, "modalities": ["text", "audio"]}
                await connection.session.update(session=session)
                await _until(connection, "session.updated", seen)
                await _say(connection, spoken(0.4))
                await connection.input_audio_buffer.commit()
                await connection.response.create()
                await _until(connection, "conversation.item.created", seen)
                await _until(connection, "response.audio.delta", seen)
                await connection.response.cancel()
                done = await _until(connection, "response.done", seen)
                assert done.response.status in ("cancelled", "incomplete")
                await _say(connection, spoken(0.3))
                await connection.input_audio_buffer.commit()
                await connection.response.create()
                done = await _until(connection, "response.done", seen)
                assert done.response.output[0].content[0].type == "audio"
                names = {event.type for event in seen}
                assert not {name for name in names if "output_audio." in name}

    run(test())


def test_manual_turns(parts: Parts) -> None:
    """Without turn detection nothing happens until the client commits and creates a response."""

    async def test() -> None:
        async with serving(parts) as served:
            client = AsyncOpenAI(api_key="unused", base_url=f"{served.http}/v1")
            async with client.realtime.connect(model="moss") as connection:
                seen: list[Any] = []
                session: Any = MANUAL
                await connection.session.update(session=session)
                await _until(connection, "session.updated", seen)
                await _say(connection, spoken(0.4))
                await connection.input_audio_buffer.commit()
                await _until(connection, "conversation.item.done", seen)
                await connection.response.create()
                await _until(connection, "response.done", seen)
                assert not [e for e in seen if "speech_" in e.type]

    run(test())


def test_transcription_sessions(parts: Parts) -> None:
    """A session of type transcription writes down each turn: in GA after an update, with server
    VAD; in beta by the query, with manual commits; and nobody replies."""
    family = "conversation.item.input_audio_transcription"

    def check(seen: list[Any], done: Any) -> None:
        deltas = [event.delta for event in seen if event.type == f"{family}.delta"]
        assert "".join(deltas) == done.transcript != ""
        assert not [event for event in seen if event.type.startswith("response")]

    async def test() -> None:
        async with serving(parts) as served:
            client = AsyncOpenAI(
                api_key="unused",
                base_url=f"{served.http}/v1",
                websocket_base_url=f"ws://127.0.0.1:{served.port}/v1",
            )
            async with client.realtime.connect(model="moss") as connection:
                seen: list[Any] = []
                transcription: Any = {"input": {"transcription": {"model": "moss"}}}
                await connection.session.update(
                    session={"type": "transcription", "audio": transcription}
                )
                updated = await _until(connection, "session.updated", seen)
                assert updated.session.type == "transcription"
                await _say(connection, turn())
                check(seen, await _until(connection, f"{family}.completed", seen))
                assert "input_audio_buffer.speech_stopped" in {event.type for event in seen}
            intent = {"intent": "transcription"}
            async with client.beta.realtime.connect(model="moss", extra_query=intent) as beta:
                seen = []
                await beta.transcription_session.update(session={"turn_detection": None})  # type: ignore
                updated = await _until(beta, "transcription_session.updated", seen)
                assert updated.session.turn_detection is None
                await _say(beta, spoken(0.4))
                await beta.input_audio_buffer.commit()
                check(seen, await _until(beta, f"{family}.completed", seen))

    run(test())
