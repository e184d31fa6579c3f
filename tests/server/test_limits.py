"""Every limit of the server, with a client that exceeds it."""

import io
import threading
from contextlib import ExitStack
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from mosslive.rows import PromptFormat
from mosslive.server.api_errors import ApiError, retry_headers
from mosslive.server.audio_files import read_file
from mosslive.server.decode_limits import Refused
from mosslive.server.decode_process import decode
from mosslive.server.slots import Slots
from tests.server.auth import KEY, OTHER, bearing, closed, denied
from tests.server.rig import (
    WAIT_S,
    Parts,
    pcm,
    run,
    serving,
    spoken,
)


def test_number_of_sessions(parts: Parts) -> None:
    """Sessions are limited in total and per key; a slot is free again when its session ends."""

    async def test() -> None:
        keys: dict[str, Any] = {
            "api_keys": (KEY, OTHER),
            "max_sessions": 3,
            "max_sessions_per_key": 2,
        }
        async with serving(parts, **keys) as served:
            async with served.session(**bearing(KEY)), served.session(**bearing(KEY)):
                assert await denied(served, **bearing(KEY)) == (429, "too_many_sessions")
                async with served.session(**bearing(OTHER)):
                    assert await denied(served, **bearing(OTHER)) == (429, "too_many_sessions")
            await served.quiet()
            async with served.session(**bearing(KEY)):
                pass

    run(test())


def test_frames(parts: Parts) -> None:
    """A malformed frame gets an error event and an oversized one closes its own connection; other
    sessions go on."""

    async def test() -> None:
        async with serving(parts, max_event_bytes=100_000) as served, served.session() as other:
            async with served.session() as peer:
                for frame, code in (
                    (b"\x00\x01", "invalid_frame"),
                    ("not json", "invalid_json"),
                    ("[" * 20_000, "invalid_json"),
                    ("[]", "invalid_event"),
                    ("1" * 5000, "invalid_json"),
                    ('{"type": "\\ud800"}', "invalid_json"),
                    ('{"type": "session.update", "session": {"tools": [NaN]}}', "invalid_json"),
                    ('{"type": "session.update", "session": {"tools": [1e999]}}', "invalid_json"),
                    ('{"type": {}}', "invalid_event"),
                ):
                    await peer.socket.send(frame)
                    assert (await peer.api_error())["code"] == code
                await peer.send("session.update", session={"instructions": "x" * 200_000})
                assert (await closed(peer))[0] == 1009
            async with served.session(compression="deflate") as bomb:  # small on the wire
                await bomb.send("session.update", session={"instructions": "x" * 5_000_000})
                assert (await closed(bomb))[0] == 1009
            await other.manual()
            await other.ask()

    run(test())


def test_long_turns_and_texts(parts: Parts) -> None:
    """A turn beyond the limit is ended, an uncommitted buffer beyond the limit is refused as full,
    and long texts are refused."""

    async def test() -> None:
        limits: dict[str, Any] = {"max_turn_s": 1.0, "max_text_chars": 100, "max_items": 1}
        async with serving(parts, **limits) as served, served.session() as peer:
            await peer.say(spoken(1.5))
            await peer.until("input_audio_buffer.committed")
            await peer.manual()
            await peer.say(spoken(1.2))
            assert (await peer.api_error())["code"] == "input_audio_buffer_full"
            await peer.send("input_audio_buffer.clear")
            part = {"type": "input_text", "text": "x" * 101}
            item = {"type": "message", "role": "user", "content": [part]}
            await peer.until("input_audio_buffer.cleared")
            await peer.send("conversation.item.create", item=item)
            assert (await peer.api_error())["code"] == "too_many_items"
            out_of_band = {"conversation": "none", "input": [item]}
            await peer.send("response.create", response=out_of_band)
            done = (await peer.until("response.done"))["response"]
            assert done["status_details"]["error"]["code"] == "invalid_value"

    run(test())


@pytest.mark.alone
def test_idle_and_endless_sessions(parts: Parts) -> None:
    """A session that is idle for too long or lasts too long is closed."""

    async def test() -> None:
        async with serving(parts, idle_s=0.3) as served, served.session() as peer:
            assert await closed(peer) == (1008, "idle for too long")
        async with serving(parts, max_session_s=1.0) as served, served.session() as peer:
            assert (await closed(peer))[0] == 1008

    run(test())


def test_bodies(parts: Parts) -> None:
    """A body beyond the limit is refused by its stated length and by its actual length."""

    async def test() -> None:
        async def endless() -> Any:
            for _ in range(50):
                yield b"x" * 1000

        async with (
            serving(parts, max_upload_bytes=10_000) as served,
            httpx.AsyncClient(base_url=served.http) as http,
        ):
            answer = await http.post("/v1/chat/completions", content=b"x" * 20_000)
            assert answer.status_code == 413
            answer = await http.post("/v1/chat/completions", content=endless())
            assert answer.json()["error"]["code"] == "body_too_large"

    run(test())


def test_a_small_file_that_decodes_to_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long sound file is refused by its header, and if the header is wrong, before the rest is
    decoded."""
    out = io.BytesIO()
    soundfile.write(out, np.zeros(3600 * 8000, np.int16), 8000, format="FLAC")
    data = out.getvalue()
    assert len(data) < 150_000
    with pytest.raises(ApiError, match="longer than 60 s"):
        read_file(data, 60.0)
    read: list[int] = []
    true_frames = soundfile.SoundFile.frames.fget

    class Liar(soundfile.SoundFile):  # type: ignore[misc]
        asked = 0

        @property
        def frames(self) -> int:
            Liar.asked += 1
            return 0 if Liar.asked == 1 else int(true_frames(self))

        def read(self, count: int, **options: Any) -> Any:
            read.append(count)
            return super().read(count, **options)

    monkeypatch.setattr(soundfile, "SoundFile", Liar)
    with pytest.raises(Refused, match="too_long"):
        decode(data, 60.0)
    assert sum(read) < 61 * 8000 + (1 << 16)


def test_texts_of_an_item(parts: Parts) -> None:
    """The texts of an item are limited together, however they are divided, including those that the
    model does not read."""

    async def test() -> None:
        async with serving(parts, max_text_chars=100) as served, served.session() as peer:
            part = {"type": "input_text", "text": "x" * 60}
            sound = {"type": "input_audio", "audio": pcm(spoken(0.1)), "transcript": "x" * 101}
            for item in (
                {"type": "message", "role": "user", "content": [part, part]},
                {"type": "message", "role": "user", "content": [part | {"text": ""}] * 65},
                {"type": "message", "role": "user", "content": [sound]},
                {"type": "function_call_output", "call_id": "c", "output": "x" * 101},
            ):
                await peer.send("conversation.item.create", item=item)
                assert (await peer.api_error())["code"] == "invalid_value"

    run(test())


def test_long_texts_do_not_block_the_event_loop(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long texts are tokenized off the event loop, and the texts of a request are limited
    together."""
    threads: set[int] = set()
    real = PromptFormat.turn

    def watched(form: PromptFormat, said: Any) -> Any:
        threads.add(threading.get_ident())
        return real(form, said)

    async def test() -> None:
        async with (
            serving(parts, max_text_chars=1000) as served,
            httpx.AsyncClient(base_url=served.http, timeout=WAIT_S) as http,
        ):
            monkeypatch.setattr(PromptFormat, "turn", watched)
            messages = [{"role": "user", "content": "word " * 200}]
            body = {"messages": messages, "max_tokens": 2}
            await http.post("/v1/chat/completions", json=body)
            assert threads
            assert threading.get_ident() not in threads
            body = {"messages": messages * 11}
            answer = await http.post("/v1/chat/completions", json=body)
            assert answer.json()["error"]["message"].endswith("allowed: at most 10000 in all")

    run(test())


def test_number_of_requests(parts: Parts) -> None:
    """Beyond `max_requests` and `max_sessions` a client gets 429 with `Retry-After`."""

    async def test() -> None:
        limits: dict[str, Any] = {"max_requests": 1, "max_sessions": 1}
        async with serving(parts, **limits) as served, served.session():
            async with httpx.AsyncClient(base_url=served.http, timeout=WAIT_S) as http:
                with served.server_state.requests.take("another"):
                    full = await http.post("/v1/audio/speech", json={"input": "x"})
            assert (full.status_code, full.headers["retry-after"]) == (429, "1")
            error = full.json()["error"]
            assert error["code"] == "too_many_requests"
            assert error["message"] == "The only request slot is taken; try again in 1 s."
            with pytest.raises(InvalidStatus) as caught:
                async with connect(served.ws):
                    pass
            assert caught.value.response.headers["retry-after"] == "5"
            assert b"The only seat is taken; try again in 5 s." in caught.value.response.body

    run(test())


@pytest.mark.parametrize(
    ("what", "per_owner", "message", "retry_s"),
    [
        ("sessions", 64, "All 64 seats are taken; try again in 5 s.", "5"),
        ("sessions", 3, "All 3 seats of this key are taken; try again in 5 s.", "5"),
        ("requests", 64, "All 64 request slots are taken; try again in 1 s.", "1"),
    ],
)
def test_what_a_refused_client_reads(what: str, per_owner: int, message: str, retry_s: str) -> None:
    """A full server says in one sentence what is taken and when to try again, and its
    Retry-After header says the same."""
    slots = Slots(what, 64, per_owner)
    with ExitStack() as taken:
        for _ in range(per_owner):
            taken.enter_context(slots.take("me"))
        with pytest.raises(ApiError) as caught, slots.take("me"):
            pass
    assert str(caught.value) == message
    assert retry_headers(caught.value) == {"retry-after": retry_s}
