"""Input audio: formats, turns and transcripts."""

import asyncio
import base64
import io

import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from mosslive.server.backend import Backend
from mosslive.server.one_shot import transcribe_codes
from mosslive.server.realtime import live_transcript
from mosslive.server.realtime.live_transcript import common_words
from tests.server import bench as benches
from tests.server.bench import bench, message
from tests.server.grammar import check, check_types
from tests.server.rig import CODES, MANUAL, Parts, pcm, run, spoken, turn, until


@pytest.mark.parametrize(("kind", "subtype"), [("audio/pcmu", "ULAW"), ("audio/pcma", "ALAW")])
def test_g711(served: Backend, kind: str, subtype: str) -> None:
    """G.711 works in both directions: 8 kHz, one byte per sample."""

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
    """With `create_response` and `interrupt_response` false the server only reports speech."""

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
            await until(lambda: len(on.of("input_audio_buffer.committed")) == 2)
            await on.quiet()
            assert len(on.of("input_audio_buffer.committed")) == 2
            assert len(on.of("response.created")) == 1
            roles = [one.role for one in await on.session.talk.settled()]
            assert roles == ["system", "user", "assistant", "user"]
            check(on.events)

    run(test())


def test_transcripts(parts: Parts) -> None:
    """With transcripts enabled the model transcribes both sides."""

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


def test_live_transcripts(parts: Parts) -> None:
    """A session that asks for it gets the transcript of a reply while it is spoken, and of the
    beginning of one that is interrupted; the standard events are as without it."""
    included = {"type": "realtime", "include": ["mosslive.transcript"]}

    with benches.backend(parts, transcripts=True, max_reply_s=4, min_reply_s=4) as served:

        async def talk() -> None:
            async with bench(served, lead_s=0.3) as on:
                await on.send("session.update", session=included)
                await on.send("input_audio_buffer.append", audio=pcm(turn()))
                first = await on.until("mosslive.transcript")
                assert not on.of("response.done")
                assert first["transcript"]
                assert first["audio_ms"] > 0
                done = (await on.until("response.done"))["response"]
                last = on.of("mosslive.transcript")[-1]
                assert last["audio_ms"] == 4000
                assert done["output"][0]["content"][0]["transcript"] == last["transcript"]
                assert last["item_id"] == done["output"][0]["id"]
                await on.quiet()
                await on.send("input_audio_buffer.append", audio=pcm(turn()))
                await on.until("response.content_part.added")
                await on.until("response.output_audio.delta")
                await on.send("response.cancel")
                cut = (await on.until("response.done"))["response"]
                assert cut["status"] == "cancelled"
                item = cut["output"][0]["id"]
                await until(lambda: on.of("mosslive.transcript")[-1]["item_id"] == item)
                check([event for event in on.events if event["type"] != "mosslive.transcript"])

        run(talk())


@pytest.mark.parametrize("lead_s", [None, 0.3])
def test_a_captioned_reply_is_transcribed_once(
    parts: Parts, lead_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transcript at the end of a reply is that of its last live pass, not made again; live
    passes do not wait for the transcript of the user's turn."""
    passes: list[int] = []  # codes of each
    running = 0

    async def counted(backend: Backend, codes: list[int]) -> str:
        nonlocal running
        assert running == 0
        running += 1
        passes.append(len(codes))
        try:
            return await transcribe_codes(backend, codes)
        finally:
            running -= 1

    monkeypatch.setattr(live_transcript, "transcribe_codes", counted)
    audio = {"input": {"transcription": {"model": "any"}}}
    both = {"type": "realtime", "include": ["mosslive.transcript"], "audio": audio}

    with benches.backend(parts, transcripts=True, max_reply_s=2, min_reply_s=2) as served:

        async def talk() -> None:
            async with bench(served, lead_s=lead_s) as on:
                await on.send("session.update", session=both)
                await on.send("input_audio_buffer.append", audio=pcm(turn()))
                done = (await on.until("response.done"))["response"]
                last = on.of("mosslive.transcript")[-1]
                assert done["output"][0]["content"][0]["transcript"] == last["transcript"]
                await on.until("conversation.item.input_audio_transcription.completed")
                assert passes.count(25) == 1

        run(talk())


@given(*[st.lists(st.sampled_from(["a", "bc", "d."]), max_size=5)] * 2)
def test_words_on_which_two_passes_agree(one: list[str], other: list[str]) -> None:
    """They are the longest beginning that both have, in whole words."""
    common = common_words(" ".join(one), " ".join(other)).split()
    assert common == one[: len(common)] == other[: len(common)]
    after = one[len(common) : len(common) + 1], other[len(common) : len(common) + 1]
    assert after[0] != after[1] or not after[0]


@pytest.mark.parametrize("manual", [False, True])
def test_another_format_in_mid_turn(served: Backend, manual: bool) -> None:
    """A turn has one audio format; a new format discards the open turn, and the client is
    notified."""

    async def test() -> None:
        async with bench(served) as on:
            if manual:
                await on.send("session.update", session=MANUAL)
            await on.send("input_audio_buffer.append", audio=pcm(spoken(0.4)))
            await until(lambda: on.session.talk.listening)
            form = {"input": {"format": {"type": "audio/pcmu"}}}
            await on.send("session.update", session={"type": "realtime", "audio": form})
            assert [event["type"] for event in on.events[-2:]] == [
                "input_audio_buffer.cleared",
                "session.updated",
            ]
            if manual:
                await on.send("input_audio_buffer.commit")
                assert on.events[-1]["error"]["code"] == "input_audio_buffer_commit_empty"
            out = io.BytesIO()
            soundfile.write(out, turn()[::3], 8000, format="RAW", subtype="ULAW")
            audio = base64.b64encode(out.getvalue()).decode()
            await on.send("input_audio_buffer.append", audio=audio)
            if manual:
                await on.send("input_audio_buffer.commit")
            await on.until("input_audio_buffer.committed")
            assert len([one for one in on.session.items if one.role == "user"]) == 1

    run(test())


def test_turn_detection_after_detached_sound(served: Backend) -> None:
    """Turn detection works after a response that was created while sound waited for its commit."""

    async def test() -> None:
        async with bench(served) as on:
            await on.send("session.update", session=MANUAL)
            await on.send("conversation.item.create", item=message("Hello"))
            await on.send("input_audio_buffer.append", audio=pcm(spoken(0.3)))
            await on.send("response.create")
            await on.until("response.done")
            vad = {"input": {"turn_detection": {"type": "server_vad"}}}
            await on.send("session.update", session={"type": "realtime", "audio": vad})
            await on.send("input_audio_buffer.append", audio=pcm(turn()))
            await on.until("input_audio_buffer.speech_started")
            await on.until("response.done")
            check(on.events)

    run(test())


def test_a_transcript_of_detached_sound(parts: Parts) -> None:
    """Every commit of sound starts its transcription."""
    with benches.backend(parts, transcripts=True, max_reply_s=0.4) as served:

        async def talk() -> None:
            async with bench(served) as on:
                audio = {"input": {"turn_detection": None, "transcription": {"model": "any"}}}
                await on.send("session.update", session={"type": "realtime", "audio": audio})
                await on.send("conversation.item.create", item=message("Hello"))
                await on.send("input_audio_buffer.append", audio=pcm(spoken(0.3)))
                await on.send("response.create")
                await on.until("response.done")
                await on.send("input_audio_buffer.commit")
                item = (await on.until("input_audio_buffer.committed"))["item_id"]
                name = "conversation.item.input_audio_transcription.completed"
                assert (await on.until(name))["item_id"] == item

        run(talk())
