"""The errors of a session, and harmless settings that it accepts."""

from typing import Any

import pytest

from mosslive.rows import Turn
from mosslive.server.api_errors import ApiError, read_json
from mosslive.server.backend import Backend
from mosslive.server.realtime.session import Client
from tests.server.bench import bench, message
from tests.server.grammar import check_types
from tests.server.rig import MANUAL, run


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
    """An error event has the type, the code, the field and the client's event id, and the session
    goes on."""

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
    """A second active response, a duplicate item id, a truncation of a text item and another voice
    after the first sound are refused."""

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
    """Harmless settings never give an error, because Pipecat ends on any unknown one."""
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
            assert (shown["tools"], shown["tool_choice"]) == ([], "none")
            assert "calls no functions" in shown["notices"][0]
            audio = shown["audio"]
            assert audio["input"]["turn_detection"] == {
                "type": "semantic_vad",
                "eagerness": "low",
                "create_response": True,
                "interrupt_response": True,
            }
            assert audio["input"]["transcription"] is None  # disabled on this server
            assert audio["output"]["voice"] == "default"  # the voice that will speak
            assert audio["output"]["speed"] == 1.0  # the only speed
            assert audio["input"]["noise_reduction"] is None
            await on.send("session.update", session={"type": "realtime", "instructions": ""})
            assert (await on.until("session.updated"))["session"]["instructions"] == ""
            assert await on.session.talk.settled() == []

    run(test())


def test_a_session_that_begins_configured(served: Backend) -> None:
    """The configuration of an ephemeral key applies from the first event on."""
    client = Client("client", session=MANUAL | {"instructions": "Be kind."})

    async def test() -> None:
        async with bench(served, client) as on:
            session = on.events[0]["session"]
            assert session["instructions"] == "Be kind."
            assert session["audio"]["input"]["turn_detection"] is None
            rows = served.engine.format.turn(Turn("system", text="Be kind."))
            assert list(on.session.talk.turns[0].rows) == rows

    run(test())


def test_a_frame_of_many_values_is_not_parsed() -> None:
    """A long text with very many values would block the event loop; one long string does not."""
    many = "[" + ",".join(["[]"] * 200_000) + "]"
    with pytest.raises(ApiError, match="allowed: 20000") as caught:
        read_json(many, "frame")
    assert (caught.value.code, caught.value.status) == ("too_many_values", 400)
    assert len(read_json('{"audio": "' + "A" * 1_000_000 + '"}', "frame")["audio"]) == 1_000_000
