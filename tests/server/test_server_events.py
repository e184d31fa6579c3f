"""Every builder of a server event returns what the `openai` package's types require."""

import importlib
import inspect
import json
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest

from mosslive.server.api_errors import ApiError
from mosslive.server.event_text import event_text
from mosslive.server.realtime import server_events
from mosslive.server.realtime.beta_events import to_beta
from mosslive.server.realtime.config import SessionConfig
from mosslive.server.realtime.items import Item
from mosslive.server.realtime.server_events import (
    conversation_item,
    error,
    input_audio_buffer,
    output_audio_buffer,
    response,
    session,
    timing,
    transcription,
)
from mosslive.server.realtime.server_events.response import Status
from tests.server.grammar import check_types

CONFIG = SessionConfig("gpt-realtime", "ash", "Be short.")
SESSION = {"id": "sess_1", "expires_at": 1} | CONFIG.document()
ITEM = Item(role="assistant", content=[{"type": "output_audio", "transcript": "Hi."}]).document()
TEXT_ITEM = Item(role="assistant", content=[{"type": "output_text", "text": "Hi."}]).document()
USER_ITEM = Item(content=[{"type": "input_audio", "transcript": None}]).document()
CALL_ITEM = Item(
    "function_call", None, extra={"call_id": "c", "name": "f", "arguments": "{}"}
).document()
PART = {"type": "audio", "transcript": "Hi."}
USAGE = {"total_tokens": 3, "input_tokens": 2, "output_tokens": 1}
FULL = ApiError("the engine is full", "engine_full_pages", kind="server_error", status=503)


def whole(status: Status, reason: str | None = None, failure: ApiError | None = None) -> Any:
    details = response.status_details(status, reason, failure)
    given = (CONFIG, [ITEM], "conv_1", {"topic": "x"}, details, USAGE)
    return response.response_object("resp_1", status, *given)


Builder = Callable[..., dict[str, Any]]
SAMPLES: list[tuple[Builder, tuple[Any, ...]]] = [
    (session.created, (SESSION,)),
    (session.updated, (SESSION,)),
    (session.conversation_created, ("conv_1",)),
    (input_audio_buffer.speech_started, ("item_1", 300)),
    (input_audio_buffer.speech_stopped, ("item_1", 900)),
    (input_audio_buffer.committed, ("item_1", None)),
    (input_audio_buffer.committed, ("item_1", "item_0")),
    (input_audio_buffer.cleared, ()),
    (input_audio_buffer.timeout_triggered, ("item_1", 300, 900)),
    (output_audio_buffer.started, ("resp_1",)),
    (output_audio_buffer.stopped, ("resp_1",)),
    (output_audio_buffer.cleared, ("resp_1",)),
    *[(conversation_item.added, (item, None)) for item in (ITEM, TEXT_ITEM, USER_ITEM, CALL_ITEM)],
    (conversation_item.done, (ITEM, "item_0")),
    (conversation_item.retrieved, (USER_ITEM,)),
    (conversation_item.truncated, ("item_1", 80)),
    (conversation_item.deleted, ("item_1",)),
    (transcription.delta, ("item_1", "Hel")),
    (transcription.completed, ("item_1", "Hello.", 0.5)),
    (transcription.failed, ("item_1", "the engine is full")),
    (error.error, (FULL, "mine")),
    (error.error, (ApiError("type is missing"), 7)),
    (response.created, (whole("in_progress"),)),
    (response.done, (whole("completed"),)),
    (response.done, (whole("cancelled", "turn_detected"),)),
    (response.done, (whole("incomplete", "max_output_tokens"),)),
    (response.done, (whole("failed", None, FULL),)),
    (response.output_item_added, ("resp_1", ITEM)),
    (response.output_item_done, ("resp_1", ITEM)),
    (response.content_part_added, ("resp_1", "item_1", PART)),
    (response.content_part_done, ("resp_1", "item_1", PART)),
    (response.output_audio_delta, ("resp_1", "item_1", b"\0\1")),
    (response.output_audio_done, ("resp_1", "item_1")),
    (response.output_audio_transcript_delta, ("resp_1", "item_1", "Hi.")),
    (response.output_audio_transcript_done, ("resp_1", "item_1", "Hi.")),
    (response.output_text_delta, ("resp_1", "item_1", "Hi.")),
    (response.output_text_done, ("resp_1", "item_1", "Hi.")),
]
# Not events, and the one event that the openai package does not know.
# `live` and `timing_ready` are events of our own, which the SDK does not know.
OTHERS = {
    response.response_object,
    response.status_details,
    timing.timing_ready,
    transcription.live,
}


def builders() -> set[Builder]:
    """All public functions of the package."""
    found: set[Builder] = set()
    for module in pkgutil.iter_modules(server_events.__path__):
        loaded = importlib.import_module(f"{server_events.__name__}.{module.name}")
        found |= {
            function
            for name, function in inspect.getmembers(loaded, inspect.isfunction)
            if function.__module__ == loaded.__name__ and not name.startswith("_")
        }
    return found


def test_every_builder_has_a_sample() -> None:
    """A new builder needs a sample here, so that its output is checked."""
    assert builders() - OTHERS == {builder for builder, _ in SAMPLES}


@pytest.mark.parametrize("beta", [False, True])
@pytest.mark.parametrize(
    ("builder", "given"), SAMPLES, ids=[builder.__qualname__ for builder, _ in SAMPLES]
)
def test_events_have_the_types_of_the_sdk(
    builder: Builder, given: tuple[Any, ...], beta: bool
) -> None:
    """Every event validates against the SDK's GA types, and translated against its beta types."""
    event: dict[str, Any] | None = {"event_id": "event_1"} | builder(*given)
    if beta:
        event = to_beta(builder(*given))
        event = {"event_id": "event_1"} | event if event else None
    if event:
        check_types([json.loads(event_text(event))], beta)


def test_timing_is_an_extension() -> None:
    """`mosslive.timing` is our own event and has its document as it is."""
    assert timing.timing_ready({"ttfa_s": 0.2}) == {
        "type": "mosslive.timing",
        "timing": {"ttfa_s": 0.2},
    }
