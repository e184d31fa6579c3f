"""Sessions of type transcription: every turn of the user is written down, and nothing is said."""

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from websockets.asyncio.client import connect

from mosslive.config.capabilities import Capabilities
from mosslive.server.backend import Backend
from mosslive.server.realtime.session import Client
from tests.server import bench as benches
from tests.server.bench import Bench, bench, message
from tests.server.grammar import check, check_types
from tests.server.rig import RATE, WAIT_S, Parts, Peer, pcm, run, serving, spoken, turn, until

FAMILY = "conversation.item.input_audio_transcription"
TYPE = {"type": "transcription"}
MANUAL = TYPE | {"audio": {"input": {"turn_detection": None}}}
VAD = TYPE | {"audio": {"input": {"turn_detection": {"type": "server_vad"}}}}


@pytest.fixture(scope="module")
def served(parts: Parts) -> Iterator[Backend]:
    with benches.backend(parts, max_reply_s=0.8, min_reply_s=0.8) as made:
        yield made


def check_transcripts(on: Bench) -> None:
    """Each committed turn has one transcript, in order; its deltas are its text; there is no
    response."""
    check_types(on.events)
    check(on.events)
    assert not [event for event in on.events if event["type"].startswith("response.")]
    committed = [event["item_id"] for event in on.of("input_audio_buffer.committed")]
    done = on.of(f"{FAMILY}.completed")
    assert [event["item_id"] for event in done] == committed
    for event in done:
        mine = [d["delta"] for d in on.of(f"{FAMILY}.delta") if d["item_id"] == event["item_id"]]
        assert "".join(mine) == event["transcript"]
        assert event["usage"]["type"] == "duration"


async def _act(on: Bench, action: str, pick: int) -> None:
    match action:
        case "turn" | "speech":
            wave = turn(0.3, pick) if action == "turn" else spoken(0.3, pick)
            await on.send("input_audio_buffer.append", audio=pcm(wave))
        case "silence":
            await on.send("input_audio_buffer.append", audio=pcm(np.zeros(RATE // 5, np.float32)))
        case "commit" | "clear":
            await on.send(f"input_audio_buffer.{action}")
        case "respond":
            await on.send("response.create")
        case "write":
            await on.send("conversation.item.create", item=message("Hello"))
        case "cancel":
            await on.send("response.cancel")
        case "talk":
            await on.send("session.update", session={"type": "realtime"})
            await on.send("session.update", session=TYPE)
        case "manual" | "vad":
            await on.send("session.update", session=MANUAL if action == "manual" else VAD)
        case "wait":
            await on.quiet()


ACTIONS = ["turn", "turn", "speech", "silence", "commit", "clear", "respond", "write", "cancel"]


@hypothesis_settings(max_examples=15, deadline=None, derandomize=True, database=None)
@given(
    script=st.lists(
        st.tuples(st.sampled_from([*ACTIONS, "talk", "manual", "vad", "wait"]), st.integers(0, 9)),
        max_size=10,
    )
)
def test_random_sessions(served: Backend, script: list[tuple[str, int]]) -> None:
    """Whatever a client sends, every committed turn gets its transcript, no response is made, the
    history stays empty, and all pages are free afterwards."""

    async def test() -> None:
        async with bench(served, Client("client", session=TYPE)) as on:
            for action, pick in script:
                await _act(on, action, pick)
            await on.send("input_audio_buffer.clear")
            await on.quiet()
            check_transcripts(on)
            assert {one.role for one in await on.session.talk.settled()} <= {"system"}

    run(test())


def test_what_a_client_sees(served: Backend) -> None:
    """An update makes a new session one of type transcription, which shows its own fields only;
    what belongs to replies is refused by name; after the first turn the type is fixed."""

    async def test() -> None:
        async with bench(served) as on:
            assert on.events[0]["session"]["type"] == "realtime"
            await on.send("session.update", session=TYPE)
            shown = on.events[-1]["session"]
            assert set(shown) == {"id", "type", "object", "expires_at", "audio", "include"}
            assert set(shown["audio"]) == {"input"}
            assert shown["audio"]["input"]["transcription"]
            for kind, more in (
                ("response.create", {}),
                ("conversation.item.create", {"item": message("Hello")}),
            ):
                await on.send(kind, event_id="mine", **more)
                refused = on.events[-1]["error"]
                assert (refused["code"], refused["event_id"]) == (
                    "not_in_transcription_session",
                    "mine",
                )
                assert kind in refused["message"]
            await on.send("input_audio_buffer.append", audio=pcm(turn()))
            await on.until(f"{FAMILY}.completed")
            await on.send("session.update", session={"type": "realtime"})
            assert on.events[-1]["error"]["code"] == "cannot_update_session_type"
            await on.send("session.update", session={"type": "dictation"})
            assert on.events[-1]["error"]["param"] == "session.type"
            check_types(on.events)

    run(test())


def test_a_turn_beyond_the_context(parts: Parts) -> None:
    """A turn that is too long for a conversation is transcribed all the same, without an error."""
    few: dict[str, Any] = {"max_sessions": 2, "max_requests": 2}  # so that the pool has room
    with benches.backend(parts, context_rows=64, max_reply_s=0.4, **few) as small:

        async def test() -> None:
            async with bench(small, Client("client", session=MANUAL)) as on:
                await on.send("input_audio_buffer.append", audio=pcm(spoken(8.0)))
                await on.send("input_audio_buffer.commit")
                await on.until(f"{FAMILY}.completed")
                assert not on.of("error")

        run(test())


def test_sound_that_comes_too_fast(parts: Parts) -> None:
    """A commit is refused while too much sound waits for its transcript; a detected turn keeps no
    more sound. The session goes on: every turn is transcribed, and then there is room again."""
    with benches.backend(parts, max_reply_s=0.4, max_sound_s=1, max_turn_s=1) as small:

        async def test() -> None:
            async with bench(small, Client("client", session=TYPE)) as on:
                await on.send("session.update", session=MANUAL)

                async def commit() -> None:
                    await on.send("input_audio_buffer.append", audio=pcm(spoken(0.6)))
                    await on.send("input_audio_buffer.commit")

                async with on.session.in_order:
                    for _ in range(3):
                        await commit()
                    refused = on.events[-1]["error"]
                    assert refused["code"] == "too_many_transcripts"
                    assert "2 turns with 1.2 s" in refused["message"]
                    await on.send("input_audio_buffer.clear")
                    await on.send("session.update", session=VAD)
                    await on.send("input_audio_buffer.append", audio=pcm(turn()))
                    await until(lambda: len(on.of("input_audio_buffer.committed")) == 3)
                    assert on.session.waiting_s == pytest.approx(1.2)
                await on.quiet()
                assert len(on.of("error")) == 1
                await on.send("session.update", session=MANUAL)
                await on.send("input_audio_buffer.clear")
                await commit()
                await on.quiet()
                assert len(on.of(f"{FAMILY}.completed")) == 4
                assert on.session.waiting_s == pytest.approx(0)
                check_transcripts(on)

        run(test())


def test_a_server_that_cannot(parts: Parts) -> None:
    """A model that does not write refuses the type, with the reason."""
    with benches.backend(parts) as made:
        made.capabilities = Capabilities(modes=("speech-to-speech",))

        async def test() -> None:
            async with bench(made) as on:
                await on.send("session.update", session=TYPE)
                assert "does not write down speech" in on.events[-1]["error"]["message"]

        run(test())


def test_keys_for_transcription(parts: Parts) -> None:
    """Client secrets, GA and beta, open sessions of type transcription; so does the query."""

    async def test() -> None:
        keys: dict[str, Any] = {"api_keys": ("a-key-for-tests",)}
        async with serving(parts, **keys) as served:
            header = {"Authorization": "Bearer a-key-for-tests"}
            async with httpx.AsyncClient(base_url=served.http, timeout=WAIT_S) as http:

                async def issued(path: str, body: Any) -> Any:
                    answer = await http.post(f"/v1/realtime/{path}", json=body, headers=header)
                    assert answer.status_code == 200, answer.text
                    return answer.json()

                made = await issued("client_secrets", {"session": TYPE})
                assert made["session"]["type"] == "transcription"
                beta = await issued("transcription_sessions", {"input_audio_format": "g711_ulaw"})
                assert beta["input_audio_format"] == "g711_ulaw"
            for key, more in (
                (made["value"], ""),
                (beta["client_secret"]["value"], ""),
                ("a-key-for-tests", "&intent=transcription"),
            ):
                bearer = {"Authorization": f"Bearer {key}"}
                async with connect(f"{served.ws}{more}", additional_headers=bearer) as socket:
                    peer = Peer(socket)
                    assert (await peer.next())["session"]["type"] == "transcription"

    run(test())
