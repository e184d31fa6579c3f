"""The rules that every stream of server events obeys, written independently of the server.

`check` reads the events of one session and raises at the first event out of order. `check_types`
validates each event against the types of the `openai` package.
"""

import re
from typing import Any, get_args

from openai.types.beta.realtime import RealtimeServerEvent as BetaEvent
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

Event = dict[str, Any]


def _by_name(union: Any) -> dict[str, TypeAdapter[Any]]:
    """The class of each event type, so that an error is about one class instead of fifty."""
    classes = get_args(get_args(union)[0])
    return {
        name: TypeAdapter(one)
        for one in classes
        for name in get_args(one.model_fields["type"].annotation)
    }


_GA, _BETA = _by_name(RealtimeServerEvent), _by_name(BetaEvent)

# One letter per event of a response, so that a regular expression can check their order.
_LETTERS = {
    "response.created": "c",
    "response.output_item.added": "i",
    "conversation.item.added": "v",
    "response.content_part.added": "p",
    "response.output_audio.delta": "a",
    "response.output_audio_transcript.delta": "x",
    "response.output_text.delta": "t",
    "response.output_audio.done": "A",
    "response.output_audio_transcript.done": "X",
    "response.output_text.done": "T",
    "response.content_part.done": "P",
    "response.output_item.done": "I",
    "conversation.item.done": "V",
    "response.done": "D",
}
_SPOKEN = r"p[ax]*AXP"
_WRITTEN = r"pt*TP"
_IN = re.compile(rf"c(iv({_SPOKEN}|{_WRITTEN})IV)?D")
_OUT_OF_BAND = re.compile(rf"c(i({_SPOKEN}|{_WRITTEN})I)?D")
# What may be missing at the end of a response if the client left in the middle.
_ENDS = [
    end[first:] for end in ("ivpAXPIVD", "ivpTPIVD", "ipAXPID", "ipTPID") for first in range(10)
]


def check_types(events: list[Event], beta: bool = False) -> None:
    """Every required field exists and has the right type."""
    for event in events:
        (_BETA if beta else _GA)[event["type"]].validate_python(event)


def check(events: list[Event], whole: bool = True) -> None:
    """Checks the events of a GA session. `whole`: no response is left open."""
    first = ["session.created", "conversation.created"]
    assert [event["type"] for event in events[:2]] == first[: len(events)]
    ids = [event["event_id"] for event in events]
    assert len(set(ids)) == len(ids)
    _check_items(events, whole)
    _check_turns(events)
    _check_responses(events, whole)


def _check_responses(events: list[Event], whole: bool) -> None:
    orders: dict[str, str] = {}
    out_of_band: dict[str, bool] = {}
    items: dict[str, str] = {}  # of responses, by item
    open_in: str | None = None
    for event in events:
        kind = event["type"]
        if kind == "conversation.item.deleted" and orders.get(
            items.get(event["item_id"], ""), ""
        ).endswith("D"):
            del items[event["item_id"]]  # a client may use the id again
        if kind not in _LETTERS:
            continue
        if "response" in event:
            response = event["response"]["id"]
        elif "response_id" in event:
            response = event["response_id"]
        elif event["item"]["id"] in items:
            response = items[event["item"]["id"]]
        else:
            continue  # an item that no response created
        if kind == "response.created":
            assert response not in orders
            out_of_band[response] = event["response"]["conversation_id"] is None
            assert event["response"]["status"] == "in_progress"
            if not out_of_band[response]:
                assert open_in is None, "two responses write to the conversation"
                open_in = response
            orders[response] = ""
        orders[response] += _LETTERS[kind]
        if kind == "response.output_item.added":
            items[event["item"]["id"]] = response
            assert event["item"]["status"] == "in_progress"
        if "item_id" in event:
            assert items[event["item_id"]] == response
            assert (event["output_index"], event["content_index"]) == (0, 0)
        if kind == "response.done":
            _check_end(event["response"], items)
            open_in = None if open_in == response else open_in
    for response, letters in orders.items():
        order = _OUT_OF_BAND if out_of_band[response] else _IN
        ends = [""] if whole else _ENDS
        assert any(order.fullmatch(letters + end) for end in ends), f"{response}: {letters}"


def _check_end(response: Event, items: dict[str, str]) -> None:
    status = response["status"]
    assert status in ("completed", "cancelled", "incomplete", "failed")
    assert (response["status_details"] is None) == (status == "completed")
    for item in response["output"]:
        assert items[item["id"]] == response["id"]
        assert item["status"] == ("completed" if status == "completed" else "incomplete")
        assert "audio" not in item["content"][0]


def _check_items(events: list[Event], whole: bool) -> None:
    """Ids are new, positions are right, and `added` comes before `done`, each once. An id may be
    used again when its item is deleted."""
    order: list[str] = []
    done: set[str] = set()
    ever: set[str] = set()
    for event in events:
        kind = event["type"]
        if kind == "conversation.item.added":
            item, before = event["item"]["id"], event["previous_item_id"]
            assert item not in order
            ever.add(item)
            done.discard(item)
            order.insert(0 if before is None else order.index(before) + 1, item)
        elif kind == "conversation.item.done":
            assert event["item"]["id"] in ever - done
            done.add(event["item"]["id"])
        elif kind == "conversation.item.deleted":
            order.remove(event["item_id"])
        elif kind == "input_audio_buffer.committed":
            assert event["previous_item_id"] == (order[-1] if order else None)
        elif kind == "conversation.item.truncated":
            assert event["item_id"] in ever
    assert done == ever or not whole


def _check_turns(events: list[Event]) -> None:
    """A turn is started, stopped, committed and then an item, all with one id."""
    speaking: str | None = None
    stopped: str | None = None
    for index, event in enumerate(events):
        kind = event["type"].removeprefix("input_audio_buffer.")
        if kind == "speech_started":
            speaking, stopped = event["item_id"], None
        elif kind == "speech_stopped":
            assert event["item_id"] == speaking
            speaking, stopped = None, event["item_id"]
        elif kind == "committed":
            assert stopped in (None, event["item_id"])
            stopped = None
            following = events[index + 1 : index + 3]
            kinds = ["conversation.item.added", "conversation.item.done"]
            assert [one["type"] for one in following] == kinds[: len(following)]
            assert {one["item"]["id"] for one in following} <= {event["item_id"]}
