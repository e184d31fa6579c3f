"""What a session does with each client event, and what the model is told of it."""

import asyncio
import base64
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from mosslive import EngineFull
from mosslive.rows import Turn
from mosslive.server.backend import Backend
from mosslive.server.realtime.session import Client
from tests.server import bench as benches
from tests.server.bench import Bench, bench
from tests.server.grammar import check, check_types
from tests.server.rig import CODES, MANUAL, RATE, Parts, pcm, run, spoken, turn


@pytest.fixture(scope="module")
def served(parts: Parts) -> Iterator[Backend]:
    with benches.backend(parts) as made:
        yield made


def message(text: str, role: str = "user") -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


async def ask(on: Bench, seconds: float = 0.4, **response: Any) -> dict[str, Any]:
    """One spoken turn without turn detection, and the response."""
    await on.send("session.update", session=MANUAL)
    await on.send("input_audio_buffer.append", audio=pcm(spoken(seconds)))
    await on.send("input_audio_buffer.commit")
    await on.send("response.create", response=response)
    done: dict[str, Any] = (await on.until("response.done"))["response"]
    return done


def said(on: Bench) -> list[tuple[str, str]]:
    return [(one.role, one.kind) for one in on.session.talk.turns]


@pytest.mark.parametrize(
    ("end_ms", "codes"), [(0, 0), (39, 0), (40, 1), (560, 7), (1600, 20), (2600, 20)]
)
def test_truncate(served: Backend, end_ms: int, codes: int) -> None:
    """Spec 5: the model remembers what was heard, as whole codes in the prompt's own format; 0 ms
    and up to a second too long are accepted."""

    async def test() -> None:
        async with bench(served) as on:
            done = await ask(on)
            item = done["output"][0]["id"]
            whole = on.session.talk.turns[-1]
            ids = served.engine.ids
            made = [row[1] for row in whole.rows if ids.is_speech(row) and row[1] < ids.eosp]
            assert len(made) == CODES
            cut = {"item_id": item, "content_index": 0, "audio_end_ms": end_ms}
            await on.send("conversation.item.truncate", **cut)
            told = (await on.until("conversation.item.truncated"))["audio_end_ms"]
            assert told == end_ms
            turns = await on.session.talk.settled()
            if codes == 0:
                assert [one.role for one in turns] == ["system", "user"]
            elif codes < CODES:
                rows = served.engine.format.turn(Turn("assistant", codes=made[:codes]))
                assert list(turns[-1].rows) == rows
            else:
                assert turns[-1].rows == whole.rows
            await on.send("conversation.item.retrieve", item_id=item)
            shown = (await on.until("conversation.item.retrieved"))["item"]
            sound = base64.b64decode(shown["content"][0].get("audio", ""))
            assert len(sound) == min(end_ms * 48, CODES * 1920 * 2)
            # And the conversation goes on from there.
            assert (await ask(on))["status"] == "incomplete"

    run(test())


def test_truncate_beyond_the_end(served: Backend) -> None:
    """Spec 6: refused, in the public service's words, with no code."""

    async def test() -> None:
        async with bench(served) as on:
            item = (await ask(on))["output"][0]["id"]
            cut = {"item_id": item, "content_index": 0, "audio_end_ms": 2601}
            await on.send("conversation.item.truncate", **cut, event_id="mine")
            error = (await on.until("error"))["error"]
            assert error["message"] == "Audio content of 1600ms is already shorter than 2601ms"
            assert error["event_id"] == "mine"
            assert error["code"] is None

    run(test())


def test_truncate_while_the_user_speaks(served: Backend) -> None:
    """Spec 5, barge-in: the cut arrives while the next turn is being heard, and both are right."""

    async def test() -> None:
        async with bench(served) as on:
            await on.send("input_audio_buffer.append", audio=pcm(turn()))
            delta = await on.until("response.output_audio.delta")
            await on.send("input_audio_buffer.append", audio=pcm(spoken(0.4, 1)))
            await on.until("response.done")
            cut = {"item_id": delta["item_id"], "content_index": 0, "audio_end_ms": 80}
            await on.send("conversation.item.truncate", **cut)
            await on.send("input_audio_buffer.append", audio=pcm(turn(0.1, 2)))
            await on.until("response.done")
            turns = await on.session.talk.settled()
            roles = [one.role for one in turns]
            assert roles == ["system", "user", "assistant", "user", "assistant"]
            ids = served.engine.ids
            codes = [row for row in turns[2].rows if ids.is_speech(row) and row[1] < ids.eosp]
            assert len(codes) == 1
            check(on.events)

    run(test())


def test_items_stand_where_they_were_put(served: Backend) -> None:
    """Spec 3: at the end, at the beginning, after another; deleted ones are unsaid; the model's
    turns are the items' order."""

    async def test() -> None:
        async with bench(served) as on:
            for item_id, text, after in (
                ("a", "one", None),
                ("b", "two", None),
                ("c", "zero", "root"),
                ("d", "one and a half", "a"),
            ):
                item = message(text) | {"id": item_id}
                await on.send("conversation.item.create", item=item, previous_item_id=after)
            await on.send("conversation.item.delete", item_id="b")
            await on.send("conversation.item.create", item=message("Yes.", "assistant"))
            turns = await on.session.talk.settled()
            told = ["Hi.", "zero", "one", "one and a half", "Yes."]
            form = served.engine.format
            roles = ["system", "user", "user", "user", "assistant"]
            expected = [form.turn(Turn(r, text=t)) for r, t in zip(roles, told, strict=True)]  # type: ignore[arg-type]
            assert [list(one.rows) for one in turns] == expected
            check(on.events)
            check_types(on.events)

    run(test())


def test_an_item_with_sound(served: Backend) -> None:
    """Spec 4.1: a user's item may carry sound; the model hears it as if it were spoken."""

    async def test() -> None:
        async with bench(served) as on:
            wave = spoken(0.5)
            part = {"type": "input_audio", "audio": pcm(wave)}
            item = {"type": "message", "role": "user", "content": [part]}
            await on.send("conversation.item.create", item=item)
            turns = await on.session.talk.settled()
            heard = (wave.clip(-1, 1) * 32767).astype("<i2").astype(np.float32) / 32768
            codec = served.codec
            assert codec is not None
            codes = codec.codec.encode(torch.from_numpy(heard), RATE)
            assert list(turns[-1].rows) == served.engine.format.turn(Turn("user", codes=codes))

    run(test())


def test_out_of_band_leaves_no_trace(served: Backend) -> None:
    """Spec 3: `conversation: "none"` answers beside the conversation, with its own context."""

    async def test() -> None:
        async with bench(served) as on:
            await ask(on)
            before, items = said(on), [item.id for item in on.session.items]
            aside = {"conversation": "none", "metadata": {"topic": "x"}, "input": [message("So?")]}
            await on.send("response.create", response=aside | {"output_modalities": ["text"]})
            done = (await on.until("response.done"))["response"]
            assert done["metadata"] == {"topic": "x"}
            assert done["conversation_id"] is None
            assert done["output"][0]["content"][0]["type"] == "output_text"
            assert said(on) == before
            assert [item.id for item in on.session.items] == items

    run(test())


def test_a_response_with_its_own_context_joins(served: Backend) -> None:
    """Spec 3: `input` and `instructions` are for this response only; its answer stays."""

    async def test() -> None:
        async with bench(served) as on:
            await ask(on)
            only = {"instructions": "Whisper.", "output_modalities": ["text"]}
            await on.send("response.create", response=only)
            await on.until("response.done")
            await on.quiet()
            turns = await on.session.talk.settled()
            assert list(turns[0].rows) == served.engine.format.turn(Turn("system", text="Hi."))
            assert (turns[-1].role, turns[-1].kind) == ("assistant", "text")
            check(on.events)
            await on.send("conversation.item.delete", item_id=on.session.items.last_id)
            assert len(await on.session.talk.settled()) == len(turns) - 1

    run(test())


@pytest.mark.parametrize(("kind", "subtype"), [("audio/pcmu", "ULAW"), ("audio/pcma", "ALAW")])
def test_g711(served: Backend, kind: str, subtype: str) -> None:
    """Spec 2: telephone sound both ways, 8 kHz, one byte a sample."""

    async def test() -> None:
        async with bench(served) as on:
            form = {"format": {"type": kind}}
            session = {"type": "realtime", "audio": {"input": form, "output": form}}
            await on.send("session.update", session=session)
            out = io.BytesIO()
            soundfile.write(out, turn()[::3], 8000, format="RAW", subtype=subtype)
            audio = base64.b64encode(out.getvalue()).decode()
            await on.send("input_audio_buffer.append", audio=audio)
            await on.until("response.done")
            deltas = on.of("response.output_audio.delta")
            sound = b"".join(base64.b64decode(one["delta"]) for one in deltas)
            assert len(sound) == CODES * 640
            started = on.of("input_audio_buffer.speech_started")[0]
            assert started["audio_start_ms"] == 0
            assert on.session.config.document()["audio"]["output"]["format"] == {"type": kind}

    run(test())


def test_speech_events_only(served: Backend) -> None:
    """Spec 2: with both booleans false the server says when somebody speaks, and no more."""

    async def test() -> None:
        async with bench(served) as on:
            vad = {"type": "server_vad", "create_response": False, "interrupt_response": False}
            session = {"type": "realtime", "audio": {"input": {"turn_detection": vad}}}
            await on.send("session.update", session=session)
            await on.send("input_audio_buffer.append", audio=pcm(turn()))
            await on.until("input_audio_buffer.committed")
            await on.send("response.create")
            await on.until("response.output_audio.delta")
            await on.send("input_audio_buffer.append", audio=pcm(turn(0.3, 1)))
            done = await on.until("response.done")
            assert done["response"]["status"] == "incomplete"  # it was not cancelled
            await on.quiet()
            assert len(on.of("input_audio_buffer.committed")) == 2
            assert len(on.of("response.created")) == 1
            roles = [one.role for one in await on.session.talk.settled()]
            assert roles == ["system", "user", "assistant", "user"]
            check(on.events)

    run(test())


def test_sound_that_is_not_committed(served: Backend) -> None:
    """Spec 3: a response may be asked for while sound waits to be committed."""

    async def test() -> None:
        async with bench(served) as on:
            await on.send("session.update", session=MANUAL)
            await on.send("conversation.item.create", item=message("Hello"))
            await on.send("input_audio_buffer.append", audio=pcm(spoken(0.3)))
            await on.send("response.create")
            await on.send("input_audio_buffer.append", audio=pcm(spoken(0.1)))
            await on.until("response.done")
            await on.send("input_audio_buffer.commit")
            kinds = [(one.role, one.kind) for one in await on.session.talk.settled()]
            assert kinds[1:] == [("user", "text"), ("assistant", "speech"), ("user", "speech")]
            item = list(on.session.items)[-1]
            assert item.sound_ms == 400
            check(on.events)

    run(test())


def test_cancel(served: Backend) -> None:
    """Spec 3 and 5: the rest of the ladder comes, and says so; the next response is whole."""

    async def test() -> None:
        async with bench(served) as on:
            await on.send("session.update", session=MANUAL)
            await on.send("conversation.item.create", item=message("Hello"))
            await on.send("response.create")
            await on.send("response.cancel")
            done = on.of("response.done")[0]["response"]
            assert done["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
            await on.send("response.create")
            assert (await on.until("response.done"))["response"]["status"] == "cancelled"
            assert (await on.until("response.done"))["response"]["status"] == "incomplete"
            check(on.events)

    run(test())


@pytest.mark.parametrize(
    ("event", "code", "param"),
    [
        ({"type": "response.cancel"}, "response_cancel_not_active", None),
        ({"type": "input_audio_buffer.commit"}, "input_audio_buffer_commit_empty", None),
        ({"type": "input_audio_buffer.append"}, "missing_required_parameter", "audio"),
        ({"type": "input_audio_buffer.append", "audio": "%%%"}, "invalid_audio", "audio"),
        ({"type": "input_audio_buffer.append", "audio": 7}, "invalid_value", "audio"),
        ({"type": "nonsense"}, "invalid_value", "type"),
        ({"kind": "nonsense"}, "invalid_event", "type"),
        (
            {"type": "conversation.item.retrieve", "item_id": "x"},
            "item_retrieve_invalid_item_id",
            "item_id",
        ),
        (
            {"type": "conversation.item.delete", "item_id": "x"},
            "item_delete_invalid_item_id",
            "item_id",
        ),
        (
            {"type": "conversation.item.create", "item": message("x"), "previous_item_id": "x"},
            "item_not_found",
            "item_id",
        ),
        (
            {"type": "conversation.item.create", "item": message("x") | {"content": []}},
            "invalid_value",
            "item.content",
        ),
        (
            {
                "type": "conversation.item.create",
                "item": message("x") | {"content": [{"type": "input_image"}]},
            },
            "unsupported_content_type",
            "item.content[0].type",
        ),
        (
            {"type": "session.update", "session": {"output_modalities": ["smell"]}},
            "invalid_value",
            "session.output_modalities",
        ),
        (
            {
                "type": "session.update",
                "session": {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 1}}}},
            },
            "invalid_value",
            "session.audio.input.format.rate",
        ),
        (
            {
                "type": "session.update",
                "session": {"audio": {"input": {"turn_detection": {"threshold": 2}}}},
            },
            "invalid_value",
            "session.audio.input.turn_detection.threshold",
        ),
        (
            {"type": "response.create", "response": {"metadata": {"a": 1}}},
            "invalid_value",
            "response.metadata",
        ),
    ],
)
def test_refusals(served: Backend, event: dict[str, Any], code: str, param: str | None) -> None:
    """Spec 6: type, code, what is wrong, and the client's own event id; the session goes on."""

    async def test() -> None:
        async with bench(served) as on:
            before = on.session.document()
            await on.session.handle(event | {"event_id": "mine"})
            error = (await on.until("error"))["error"]
            assert (error["code"], error["param"]) == (code, param)
            assert error["type"] == "invalid_request_error"
            assert error["event_id"] == "mine"
            assert on.session.document() == before
            check_types(on.events)

    run(test())


def test_refusals_that_need_something_before(served: Backend) -> None:
    """Spec 6: a second response, a second item of one id, a written item truncated, another voice
    after the first sound."""

    async def test() -> None:
        async with bench(served) as on:
            await on.send("session.update", session=MANUAL)
            item = message("Hello") | {"id": "one"}
            await on.send("conversation.item.create", item=item)
            await on.send("conversation.item.create", item=item)
            cut = {"item_id": "one", "content_index": 0, "audio_end_ms": 0}
            await on.send("conversation.item.truncate", **cut)
            await on.send("response.create")
            await on.send("response.create")
            await on.until("response.done")
            codes = [event["error"]["code"] for event in on.of("error")]
            assert codes == [
                "item_create_duplicate_item_id",
                "unsupported_content_type",
                "conversation_already_has_active_response",
            ]
            assert len(await on.session.talk.settled()) == 3

    run(test())


def test_harmless_settings_are_accepted_and_shown(served: Backend) -> None:
    """Spec 6: pipecat ends on any unknown error, so what cannot harm is never one."""
    wanted = {
        "type": "realtime",
        "model": "gpt-realtime",
        "tracing": "auto",
        "tools": [{"type": "function", "name": "f", "parameters": {}}],
        "tool_choice": "required",
        "truncation": "disabled",
        "something_new": 1,
        "audio": {
            "input": {
                "noise_reduction": {"type": "near_field"},
                "transcription": {"model": "gpt-4o-mini-transcribe"},
                "turn_detection": {"type": "semantic_vad", "eagerness": "low"},
            },
            "output": {"voice": "alloy", "speed": 1.2},
        },
    }

    async def test() -> None:
        async with bench(served) as on:
            await on.send("session.update", session=wanted)
            shown = (await on.until("session.updated"))["session"]
            assert not on.of("error")
            check_types(on.events)
            assert shown["model"] == "moss-speech"
            assert shown["tools"] == wanted["tools"]
            assert shown["tool_choice"] == "required"
            audio = shown["audio"]
            assert audio["input"]["turn_detection"] == {
                "type": "semantic_vad",
                "eagerness": "low",
                "create_response": True,
                "interrupt_response": True,
            }
            assert audio["input"]["transcription"] is None  # this server does not do it
            assert audio["output"]["voice"] == "default"  # the voice that will speak
            await on.send("session.update", session={"type": "realtime", "instructions": ""})
            assert (await on.until("session.updated"))["session"]["instructions"] == ""
            assert await on.session.talk.settled() == []

    run(test())


def test_transcripts(parts: Parts) -> None:
    """Asked: where the server is asked to, the model writes down both sides."""

    with benches.backend(parts, transcripts=True) as served:

        async def talk() -> None:
            async with bench(served) as on:
                model = {"transcription": {"model": "any"}}
                session = {"type": "realtime", "audio": {"input": model}}
                await on.send("session.update", session=session)
                await on.send("input_audio_buffer.append", audio=pcm(turn()))
                done = (await on.until("response.done"))["response"]
                deltas = on.of("response.output_audio_transcript.delta")
                text = "".join(one["delta"] for one in deltas)
                assert text
                assert done["output"][0]["content"][0]["transcript"] == text
                name = "conversation.item.input_audio_transcription.completed"
                while not on.of(name):
                    await asyncio.sleep(0.002)
                assert on.of(name)[0]["transcript"]
                assert (
                    on.of(name)[0]["item_id"] == on.of("conversation.item.added")[0]["item"]["id"]
                )
                check_types(on.events)
                check(on.events)

        run(talk())


def test_a_session_that_begins_configured(served: Backend) -> None:
    """Spec 1: what an ephemeral key was made for is in force from the first event on."""
    client = Client("somebody", session=MANUAL | {"instructions": "Be kind."})

    async def test() -> None:
        async with bench(served, client) as on:
            session = on.events[0]["session"]
            assert session["instructions"] == "Be kind."
            assert session["audio"]["input"]["turn_detection"] is None
            rows = served.engine.format.turn(Turn("system", text="Be kind."))
            assert list(on.session.talk.turns[0].rows) == rows

    run(test())


def test_a_reply_that_is_refused(parts: Parts) -> None:
    """Law 4: where the engine has no room the client is told by a failed response, also when turn
    detection asked for it, and the session goes on."""
    with benches.backend(parts) as served:

        async def talk() -> None:
            async with bench(served) as on:
                refused = EngineFull("deadlines", "speech would stutter")

                def refuse(*given: Any) -> None:
                    raise refused

                real = served.engine._desk.reply
                served.engine._desk.reply = refuse  # type: ignore[assignment, method-assign]
                await on.send("input_audio_buffer.append", audio=pcm(turn()))
                done = (await on.until("response.done"))["response"]
                assert done["status"] == "failed"
                assert "stutter" in done["status_details"]["error"]["message"]
                served.engine._desk.reply = real  # type: ignore[method-assign]
                await on.send("input_audio_buffer.append", audio=pcm(turn(0.3, 1)))
                assert (await on.until("response.done"))["response"]["status"] == "incomplete"
                check(on.events)
                check_types(on.events)

        run(talk())
