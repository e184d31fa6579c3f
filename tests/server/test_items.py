"""Items that a client creates, reads, truncates and deletes, and what the model sees of them."""

import base64

import numpy as np
import pytest
import torch

from mosslive.rows import Turn
from mosslive.server.backend import Backend
from tests.server import bench as benches
from tests.server.bench import ask, bench, message
from tests.server.grammar import check, check_types
from tests.server.rig import CODES, MANUAL, RATE, Parts, pcm, run, spoken, turn


@pytest.mark.parametrize(
    ("end_ms", "codes"), [(0, 0), (39, 0), (40, 1), (560, 7), (1600, 20), (2600, 20)]
)
def test_truncate(served: Backend, end_ms: int, codes: int) -> None:
    """After a truncation the model remembers only what was heard, as whole codes in the prompt
    format; 0 ms and up to one second beyond the end are accepted."""

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
            truncated = await on.until("conversation.item.truncated")
            assert truncated["audio_end_ms"] == end_ms
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
            # The conversation goes on from there.
            assert (await ask(on))["status"] == "incomplete"

    run(test())


def test_truncate_beyond_the_end(served: Backend) -> None:
    """A truncation further beyond the end is refused with the public service's message and no
    code."""

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
    """On barge-in the truncation arrives while the next turn is spoken, and both items are
    right."""

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
    """Items are inserted at the end, at the beginning or after another, deleted ones are forgotten,
    and the model's turns have the order of the items."""

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
            texts = ["Hi.", "zero", "one", "one and a half", "Yes."]
            form = served.engine.format
            roles = ["system", "user", "user", "user", "assistant"]
            expected = [form.turn(Turn(r, text=t)) for r, t in zip(roles, texts, strict=True)]  # type: ignore[arg-type]
            assert [list(one.rows) for one in turns] == expected
            check(on.events)
            check_types(on.events)

    run(test())


def test_an_item_with_sound(served: Backend) -> None:
    """A user item may contain sound, which the model hears like spoken input."""

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


def test_an_item_under_its_old_id(served: Backend) -> None:
    """Clients choose item ids, and may delete an item and create another with the same id."""

    async def test() -> None:
        async with bench(served) as on:
            for text in ("before", "after"):
                await on.send("conversation.item.create", item=message(text) | {"id": "mine"})
                if text == "before":
                    await on.send("conversation.item.delete", item_id="mine")
            turns = await on.session.talk.settled()
            rows = served.engine.format.turn(Turn("user", text="after"))
            assert [list(one.rows) for one in turns[1:]] == [rows]
            assert not on.of("error")

    run(test())


def test_truncate_in_mid_reply(served: Backend) -> None:
    """A reply truncated before it is complete stays truncated: its sound, its transcript and what
    the model remembers."""

    async def test() -> None:
        async with bench(served) as on:
            await on.send("session.update", session=MANUAL)
            await on.send("conversation.item.create", item=message("Hello"))
            await on.send("response.create")
            item = (await on.until("response.output_audio.delta"))["item_id"]
            cut = {"item_id": item, "content_index": 0, "audio_end_ms": 160}
            await on.send("conversation.item.truncate", **cut)
            await on.until("response.done")
            await on.send("conversation.item.retrieve", item_id=item)
            shown = (await on.until("conversation.item.retrieved"))["item"]["content"][0]
            assert len(base64.b64decode(shown["audio"])) == 160 * 48
            ids = served.engine.ids
            rows = (await on.session.talk.settled())[-1].rows
            assert len([row for row in rows if ids.is_speech(row) and row[1] < ids.eosp]) == 2

    run(test())


def test_truncate_when_the_sound_is_forgotten(parts: Parts) -> None:
    """The length of a reply is known longer than its sound."""
    with benches.backend(parts, max_sound_s=0.0) as served:

        async def talk() -> None:
            async with bench(served) as on:
                item = (await ask(on))["output"][0]["id"]
                cut = {"item_id": item, "content_index": 0, "audio_end_ms": 1200}
                await on.send("conversation.item.truncate", **cut)
                await on.until("conversation.item.truncated")
                await on.send("conversation.item.retrieve", item_id=item)
                shown = (await on.until("conversation.item.retrieved"))["item"]["content"][0]
                assert "audio" not in shown

        run(talk())


def test_sounds_that_wait_are_limited_while_the_user_speaks(served: Backend) -> None:
    """Items with sound that are not encoded yet are limited, also during a turn of the user, which
    they wait for."""

    async def test() -> None:
        async with bench(served) as on:
            await on.send("session.update", session=MANUAL)
            await on.send("input_audio_buffer.append", audio=pcm(spoken(0.3)))
            sound = {"type": "input_audio", "audio": pcm(spoken(0.2))}
            item = {"type": "message", "role": "user", "content": [sound]}
            for _ in range(30):
                await on.send("conversation.item.create", item=item)
            refused = [event["error"]["code"] for event in on.of("error")]
            assert refused
            assert set(refused) == {"too_many_sounds"}
            await on.send("input_audio_buffer.clear")
            await on.session.talk.settled()

    run(test())


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("function_call", "name"),
        ("function_call", "arguments"),
        ("function_call_output", "call_id"),
        ("function_call_output", "output"),
    ],
)
def test_function_items_are_complete(served: Backend, kind: str, missing: str) -> None:
    """A function item without a field that clients read is refused, so that no event lacks it."""

    async def test() -> None:
        async with bench(served) as on:
            item = {"type": kind, "call_id": "c", "name": "f", "arguments": "{}", "output": "o"}
            await on.send("conversation.item.create", item=item)
            await on.send("conversation.item.create", item=item | {missing: None})
            del item[missing]
            await on.send("conversation.item.create", item=item)
            refused = [event["error"]["param"] for event in on.of("error")]
            assert refused == [f"item.{missing}"] * 2
            assert len(on.of("conversation.item.added")) == 1
            check_types(on.events)

    run(test())
