"""WebRTC: aiortc as an unmodified peer of a real server, and the state it leaves behind."""

import asyncio
import base64
from typing import Any

import httpx
import numpy as np
import pytest

from mosslive.server.webrtc import call as call_module
from mosslive.server.webrtc.audio_track import FRAME_S
from mosslive.server.webrtc.call import LEAD_S
from tests.server.caller import Caller, calling, post
from tests.server.grammar import check_types
from tests.server.rig import CODES, MANUAL, RATE, Parts, run, serving, spoken, turn, until

pytestmark = pytest.mark.alone

KEY = "a-key-long-enough"


def test_two_turns_and_an_interruption(parts: Parts) -> None:
    """In a spoken conversation the second turn interrupts the first reply: the rest is never sent,
    and the item is truncated to what the track has played."""

    async def test() -> None:
        async with (
            serving(parts, max_reply_s=8.0, min_reply_s=16.0) as served,
            calling(served, {"type": "realtime", "instructions": "Be short."}) as caller,
        ):
            assert caller.events[0]["session"]["instructions"] == "Be short."
            caller.microphone.speak(turn())
            started = await caller.until("output_audio_buffer.started")
            created = next(e for e in caller.events if e["type"] == "response.created")
            assert started["response_id"] == created["response"]["id"]
            await until(lambda: np.abs(caller.sound()).max() > 300)
            caller.microphone.speak(spoken(0.6, seed=1))
            await caller.until("input_audio_buffer.speech_started")
            done = await caller.until("response.done")
            assert done["response"]["status"] == "cancelled"
            assert done["response"]["status_details"]["reason"] == "turn_detected"
            cut = await caller.until("conversation.item.truncated")
            (item,) = done["response"]["output"]
            assert cut["item_id"] == item["id"]
            assert 0 < cut["audio_end_ms"] < 8000
            assert "output_audio_buffer.cleared" in caller.types()
            caller.send("session.update", session={"type": "realtime", "max_output_tokens": CODES})
            await caller.until("session.updated")
            second = await caller.until("response.done")
            assert second["response"]["status"] == "incomplete"  # random weights never end a reply
            stopped = await caller.until("output_audio_buffer.stopped")
            assert stopped["response_id"] == second["response"]["id"]
            caller.send("conversation.item.retrieve", item_id=item["id"])
            got = await caller.until("conversation.item.retrieved")
            seconds = len(got["item"]["content"][0]["audio"]) * 3 / 4 / 2 / RATE
            assert seconds == pytest.approx(cut["audio_end_ms"] / 1000, abs=0.01)
            assert not [name for name in caller.types() if name.endswith("audio.delta")]
            check_types(caller.events)

    run(test())


def test_sound_both_ways(parts: Parts) -> None:
    """The server hears the microphone and plays the whole reply unchanged, no faster than real
    time; plain SDP is accepted as a body."""

    async def test() -> None:
        async with serving(parts) as served, calling(served) as caller:
            caller.microphone.speak(turn(1.0))
            await caller.until("output_audio_buffer.started")
            loop = asyncio.get_running_loop()
            began = loop.time()
            await caller.until("output_audio_buffer.stopped")
            assert loop.time() - began > CODES * 0.08 - 0.15
            assert "response.done" in caller.types()  # before it
            added = [e["item"] for e in caller.events if e["type"] == "conversation.item.added"]
            user, reply = [await sound_of(caller, item["id"]) for item in added]
            assert likeness(spoken(1.0), user) > 0.6
            assert len(reply) == CODES * 1920
            await until(lambda: loud_s(caller) > CODES * 0.08 - 0.1)
            # This much is sent ahead, so that a busy machine causes no gap.
            begin = reply[: round(LEAD_S * RATE)]
            assert likeness(begin, caller.sound()[::2].astype(np.float32)) > 0.7

    run(test())


def test_a_peer_that_sends_nothing_while_it_is_silent(parts: Parts) -> None:
    """A turn ends and is answered although no frame of its silence arrives (Opus DTX, a muted
    track), and so does the next one."""

    async def test() -> None:
        async with serving(parts) as served, calling(served) as caller:
            for _ in range(2):
                caller.microphone.speak(spoken(1.0))
                caller.microphone.quiet_after = True
                await caller.until("response.done")
                await caller.until("output_audio_buffer.stopped")

    run(test())


def test_a_call_of_type_transcription(parts: Parts) -> None:
    """A call may only write down what is said: transcripts come over the data channel, and no
    response is made."""

    async def test() -> None:
        family = "conversation.item.input_audio_transcription"
        async with serving(parts) as served, calling(served, {"type": "transcription"}) as caller:
            assert caller.events[0]["session"]["type"] == "transcription"
            caller.microphone.speak(turn())
            done = await caller.until(f"{family}.completed")
            deltas = [e["delta"] for e in caller.events if e["type"] == f"{family}.delta"]
            assert "".join(deltas) == done["transcript"] != ""
            assert not [name for name in caller.types() if name.startswith("response")]

    run(test())


async def sound_of(caller: Caller, item_id: str) -> Any:
    caller.send("conversation.item.retrieve", item_id=item_id)
    item = (await caller.until("conversation.item.retrieved"))["item"]
    return np.frombuffer(base64.b64decode(item["content"][0]["audio"]), "<i2").astype(np.float32)


def likeness(part: Any, whole: Any) -> float:
    """The best correlation of a sound with a part of another; 1: it is contained."""
    size = 1 << (len(part) + len(whole)).bit_length()
    fits = np.fft.irfft(np.fft.rfft(whole, size) * np.conj(np.fft.rfft(part, size)), size)
    best = int(np.argmax(fits[: len(whole)]))
    there = whole[best : best + len(part)]
    return float(fits[best] / np.linalg.norm(part) / (np.linalg.norm(there) + 1e-9))


def loud_s(caller: Caller) -> float:
    frames = caller.sound()[: len(caller.sound()) // 960 * 960].reshape(-1, 960)
    return float((np.abs(frames).max(1) > 60).sum() * FRAME_S)


def test_manual_turns(parts: Parts) -> None:
    """Without turn detection the client commits the microphone's sound; beyond the longest turn it
    gets one error and may clear the buffer."""

    async def test() -> None:
        async with serving(parts, max_turn_s=1.0) as served, calling(served, MANUAL) as caller:
            full = await caller.until("error")
            assert full["error"]["code"] == "input_audio_buffer_full"
            caller.send("input_audio_buffer.clear")
            await caller.until("input_audio_buffer.cleared")
            caller.microphone.speak(spoken(0.4))
            await until(lambda: not caller.microphone.speaking)
            caller.send("input_audio_buffer.commit")
            await caller.until("input_audio_buffer.committed")
            caller.send("response.create")
            await caller.until("output_audio_buffer.stopped")
            assert not [name for name in caller.types() if "speech_" in name]

    run(test())


def test_cancel_and_clear(parts: Parts) -> None:
    """`response.cancel` and `output_audio_buffer.clear` silence the track at once."""

    async def test() -> None:
        async with (
            serving(parts, max_reply_s=8.0, min_reply_s=16.0) as served,
            calling(served, MANUAL) as caller,
        ):
            for end in ("response.cancel", "output_audio_buffer.clear"):
                caller.send("response.create")
                await caller.until("output_audio_buffer.started")
                caller.send(end)
                await caller.until("output_audio_buffer.cleared")
                if end == "output_audio_buffer.clear":
                    caller.send("response.cancel")
                await until(lambda: caller.types().count("response.done") > 0)
                caller.forget()

    run(test())


def test_timing_is_sent_if_included(parts: Parts) -> None:
    """Our extension `include` adds `mosslive.timing` after a reply, and only then."""

    async def test() -> None:
        async with (
            serving(parts) as served,
            calling(served, MANUAL | {"include": ["mosslive.timing"]}) as caller,
        ):
            caller.send("response.create")
            timing = (await caller.until("mosslive.timing"))["timing"]
            assert timing["ttfa_s"] > 0
            assert sum(timing["stages_s"].values()) == pytest.approx(timing["ttfa_s"], abs=1e-3)

    run(test())


@pytest.mark.parametrize("how", ["hang up", "close", "vanish", "never comes", "drain", "idle"])
def test_every_end_of_a_call_frees_everything(
    parts: Parts, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However a call ends in the middle of a reply, no task, track, slot or page is left (`serving`
    asserts it)."""
    # Faster than in use: aioice gives a peer up after six checks without an answer.
    monkeypatch.setattr("aioice.ice.CONSENT_INTERVAL", 0.05)
    monkeypatch.setattr("aioice.stun.RETRY_MAX", 1)
    monkeypatch.setattr(call_module, "CONNECT_S", 0.5 if how == "never comes" else 30.0)

    async def test() -> None:
        changes: dict[str, Any] = {"max_reply_s": 8.0, "min_reply_s": 16.0}
        changes |= {"idle_s": 0.5} if how == "idle" else {}
        changes |= {"max_reply_s": 1.0} if how == "drain" else {}
        async with serving(parts, **changes) as served:
            if how == "never comes":
                caller = Caller()
                async with httpx.AsyncClient(base_url=served.http) as http:
                    answer = await post(http, await caller.offer(), None, {})
                assert answer.status_code == 201
                assert served.server_state.slots.taken == 1
                await served.quiet()
                await caller.close()
                return
            async with calling(served, MANUAL) as caller:
                caller.send("response.create")
                await caller.until("output_audio_buffer.started")
                assert served.server_state.slots.taken == 1
                if how == "hang up":
                    async with httpx.AsyncClient(base_url=served.http) as http:
                        answer = await http.post(f"{caller.location}/hangup")
                        assert answer.status_code == 200
                        await served.quiet()
                        gone = await http.post(f"{caller.location}/hangup")
                        assert gone.status_code == 404
                elif how == "close":
                    await caller.peer.close()
                elif how == "vanish":
                    close_sockets(caller)
                elif how == "drain":
                    draining = asyncio.get_running_loop().create_task(served.server_state.drain())
                    last = await caller.until("error")
                    assert last["error"]["code"] == "session_ended"
                    assert "output_audio_buffer.stopped" in caller.types()
                    await draining
                elif how == "idle":
                    caller.microphone.stop()
                    last = await caller.until("error")
                    assert "idle" in last["error"]["message"]
                await served.quiet()

    run(test())


def test_the_reason_arrives_in_spite_of_lost_packets(parts: Parts) -> None:
    """A session that the server ends tells why, also if packets are lost just then."""

    async def test() -> None:
        async with serving(parts, idle_s=1.0) as served, calling(served, MANUAL) as caller:
            sctp, lost = caller.peer.sctp, 0
            assert sctp is not None
            handle = sctp._handle_data

            async def lossy(data: bytes) -> None:
                nonlocal lost
                if b"session_ended" in data and not lost:
                    lost += 1
                    return
                await handle(data)

            sctp._handle_data = lossy  # type: ignore[method-assign]
            caller.microphone.stop()
            last = await caller.until("error")
            assert last["error"]["code"] == "session_ended"
            assert lost == 1
            await served.quiet()

    run(test())


def close_sockets(caller: Caller) -> None:
    """Closes the sockets of the peer without a message."""
    for transceiver in caller.peer.getTransceivers():
        ice = transceiver.receiver.transport.transport
        for protocol in ice._connection._protocols:
            protocol.transport.abort()


def test_calls_need_a_key(parts: Parts) -> None:
    """Calls need a key or an ephemeral key with its session, count towards the session limit, and
    belong to the key that opened them."""

    async def test() -> None:
        keys: dict[str, Any] = {"api_keys": (KEY, "another-key"), "max_sessions_per_key": 1}
        async with serving(parts, **keys) as served:
            http = httpx.AsyncClient(base_url=served.http, timeout=60)
            async with http:
                mine = {"authorization": f"Bearer {KEY}"}
                caller = Caller()
                offer = await caller.offer()
                await caller.close()
                assert (await post(http, offer, None, {})).status_code == 401
                secret = await http.post(
                    "/v1/realtime/client_secrets",
                    json={"session": {"instructions": "Of the key.", **MANUAL}},
                    headers=mine,
                )
                async with calling(served, {}, secret.json()["value"]) as caller:
                    assert caller.events[0]["session"]["instructions"] == "Of the key."
                    full = await post(http, offer, None, mine)
                    assert full.status_code == 429
                    assert full.json()["error"]["code"] == "too_many_sessions"
                    other = {"authorization": "Bearer another-key"}
                    hidden = await http.post(f"{caller.location}/hangup", headers=other)
                    assert hidden.status_code == 404
                assert (await http.get("/v1/realtime/ice_servers")).status_code == 401

    run(test())


def test_bad_offers(parts: Parts) -> None:
    """A body that is not an SDP offer is refused with a reason and leaks nothing."""

    async def test() -> None:
        async with serving(parts) as served, httpx.AsyncClient(base_url=served.http) as http:
            caller = Caller()
            good = await caller.offer()
            await caller.close()
            for offer in (
                "",
                "hello",
                "v=0\r\nm=audio",
                "v=0\r\nm=audio 9 X 0\r\n" * 50,
                good.replace("m=application", "m=video"),
                good.replace("a=fingerprint", "a=nothing"),
                good + "x" * (1 << 16),
            ):
                answer = await post(http, offer, None, {})
                assert answer.status_code in (400, 413), offer
                assert answer.json()["error"]["code"] == "invalid_sdp"
            wrong = await post(http, good, {"output_modalities": ["smell"]}, {})
            assert wrong.status_code == 400
            assert wrong.json()["error"]["param"] == "session.output_modalities"
            kind = await http.post("/v1/realtime/calls", content=good)
            assert kind.status_code == 415
            assert served.server_state.slots.taken == 0

    run(test())


def test_rubbish_on_the_channel(parts: Parts) -> None:
    """Malformed messages get an error event, the format of a track cannot be changed, and an event
    too long for the peer is replaced by an error."""

    async def test() -> None:
        async with serving(parts) as served, calling(served, MANUAL, most_bytes=50_000) as caller:
            for rubbish in ("{", "[]", b"\x00\x01", '{"type": "no.such"}'):
                caller.channel.send(rubbish)
                await caller.until("error")
            pcmu = {"format": {"type": "audio/pcmu"}}
            caller.send("session.update", session={"audio": {"input": pcmu, "output": pcmu}})
            shown = (await caller.until("session.updated"))["session"]["audio"]
            assert shown["input"]["format"]["type"] == "audio/pcm"
            assert shown["output"]["format"]["type"] == "audio/pcm"
            other = caller.peer.createDataChannel("another")
            await until(lambda: other.readyState == "closed")
            caller.send("response.create")
            done = await caller.until("response.done")
            caller.send("conversation.item.retrieve", item_id=done["response"]["output"][0]["id"])
            assert (await caller.until("error"))["error"]["code"] == "event_too_large"

    run(test())
