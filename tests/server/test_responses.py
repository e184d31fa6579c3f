"""Responses inside and outside the conversation, cancelled and refused."""

from typing import Any

import pytest

from mosslive import EngineFull
from mosslive.rows import Turn
from mosslive.server.backend import Backend
from tests.server import bench as benches
from tests.server.bench import ask, bench, message, said
from tests.server.grammar import check, check_types
from tests.server.rig import MANUAL, Parts, pcm, run, spoken, turn


def test_out_of_band_leaves_no_trace(served: Backend) -> None:
    """A response with `conversation: "none"` has a context of its own and does not change the
    conversation."""

    async def test() -> None:
        async with bench(served) as on:
            await ask(on)
            before, items = said(on), [item.id for item in on.session.items]
            out_of_band = {
                "conversation": "none",
                "metadata": {"topic": "x"},
                "input": [message("So?")],
            }
            await on.send("response.create", response=out_of_band | {"output_modalities": ["text"]})
            done = (await on.until("response.done"))["response"]
            assert done["metadata"] == {"topic": "x"}
            assert done["conversation_id"] is None
            assert done["output"][0]["content"][0]["type"] == "output_text"
            assert said(on) == before
            assert [item.id for item in on.session.items] == items

    run(test())


def test_a_response_with_its_own_context_joins(served: Backend) -> None:
    """`input` and `instructions` apply to this response only; its output joins the conversation."""

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


def test_sound_that_is_not_committed(served: Backend) -> None:
    """A response can be created while sound waits to be committed."""

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
    """After a cancel the remaining events of the response come with the status "cancelled", and the
    next response is complete."""

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


def test_a_reply_that_is_refused(parts: Parts) -> None:
    """If the engine is full the client gets a failed response, also after turn detection, and the
    session goes on."""
    with benches.backend(parts) as served:

        async def talk() -> None:
            async with bench(served) as on:
                refused = EngineFull("deadlines", "speech would stutter")

                def refuse(*given: Any) -> None:
                    raise refused

                real = served.engine._client.reply
                served.engine._client.reply = refuse  # type: ignore[assignment, method-assign]
                await on.send("input_audio_buffer.append", audio=pcm(turn()))
                done = (await on.until("response.done"))["response"]
                assert done["status"] == "failed"
                assert "stutter" in done["status_details"]["error"]["message"]
                served.engine._client.reply = real  # type: ignore[method-assign]
                await on.send("input_audio_buffer.append", audio=pcm(turn(0.3, 1)))
                assert (await on.until("response.done"))["response"]["status"] == "incomplete"
                check(on.events)
                check_types(on.events)

        run(talk())


@pytest.mark.alone
def test_speech_interrupts_a_one_shot_response(parts: Parts) -> None:
    """Speech that interrupts a response is reported as the reason, however the response was
    created."""
    # Long enough that the speech interrupts it.
    with benches.backend(parts, max_reply_s=8.0, min_reply_s=16.0) as served:

        async def test() -> None:
            async with bench(served) as on:
                await on.send("response.create", response={"instructions": "Sing."})
                await on.until("response.output_audio.delta")
                await on.send("input_audio_buffer.append", audio=pcm(turn()))
                done = (await on.until("response.done"))["response"]
                assert done["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
                assert (await on.until("response.done"))["response"]["status"] == "incomplete"
                check(on.events)

        run(test())


@pytest.mark.alone
def test_the_next_response_while_the_last_is_still_played(served: Backend) -> None:
    """If the server plays the sound, the client can create the next response as soon as one is
    done, and cannot cancel one that is done."""

    async def test() -> None:
        async with bench(served, lead_s=0.3) as on:
            await on.send("session.update", session=MANUAL)
            await on.send("conversation.item.create", item=message("Hello"))
            await on.send("response.create", response={"max_output_tokens": 5})
            await on.until("response.done")
            assert on.session.talk.replying
            await on.send("response.cancel")
            assert (await on.until("error"))["error"]["code"] == "response_cancel_not_active"
            await on.send("response.create", response={"max_output_tokens": 5})
            await on.until("response.done")
            assert len(on.of("error")) == 1
            check(on.events)

    run(test())


def test_what_a_response_may_be_given(parts: Parts) -> None:
    """A long `input` is refused before all of it is read."""
    with benches.backend(parts, max_text_chars=100) as served:

        async def talk() -> None:
            async with bench(served) as on:
                out_of_band = {"conversation": "none", "input": [message("x" * 99)] * 12}
                await on.send("response.create", response=out_of_band)
                done = (await on.until("response.done"))["response"]
                refusal = done["status_details"]["error"]["message"]
                assert refusal.startswith("response.input has more than 1000 characters")

        run(talk())


@pytest.mark.alone
def test_a_commit_during_the_end_of_playback_expects_no_response(served: Backend) -> None:
    """A turn that the client commits while the server still plays a finished reply starts no
    response: a cancel has nothing to cancel, and the next create waits for the end of playback."""

    async def test() -> None:
        async with bench(served, lead_s=0.3) as on:
            await on.send("session.update", session=MANUAL)
            await on.send("conversation.item.create", item=message("Hello"))
            await on.send("response.create")
            await on.until("response.done")
            assert on.session.talk.replying  # its end is still played
            await on.send("input_audio_buffer.append", audio=pcm(spoken(0.3)))
            await on.send("input_audio_buffer.commit")
            await on.send("response.cancel")
            assert on.events[-1]["type"] == "error"
            assert on.events[-1]["error"]["code"] == "response_cancel_not_active"
            await on.send("response.create")
            await on.until("response.done")
            created, done = on.of("response.created"), on.of("response.done")
            assert len(created) == len(done) == 2
            check(on.events)

    run(test())


def test_an_update_between_a_turn_and_its_response(served: Backend) -> None:
    """A response has the configuration of the moment at which the user's turn ended, like the reply
    that it sends: an update that comes before `response.created` is for the next one."""

    async def test() -> None:
        async with bench(served) as on:
            await on.send("input_audio_buffer.append", audio=pcm(turn(0.5)))
            await on.send("session.update", session={"output_modalities": ["text"]})
            assert not on.of("response.created")
            done = (await on.until("response.done"))["response"]
            assert done["output_modalities"] == ["audio"]
            await on.quiet()
            check(on.events)

    run(test())
