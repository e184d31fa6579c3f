"""The HTTP endpoints, called by the `openai` package and by plain requests."""

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
from openai import AsyncOpenAI

from mosslive import EngineFull
from mosslive.server import chat
from mosslive.server.backend import Backend
from mosslive.server.decode_process import decode
from mosslive.server.run import make_server
from mosslive.server.server_state import ServerState
from mosslive.talk.events import ContextTrimmed, Event, ReplyStarted
from tests.server.rig import (
    CODES,
    RATE,
    WAIT_S,
    Parts,
    Served,
    run,
    serving,
    settings,
    until,
    wav,
)


def audio_part(data: bytes) -> dict[str, Any]:
    audio = {"data": base64.b64encode(data).decode(), "format": "wav"}
    return {"type": "input_audio", "input_audio": audio}


@asynccontextmanager
async def client(served: Served, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=served.http, timeout=WAIT_S, **options) as made:
        yield made


def test_chat_completions(parts: Parts) -> None:
    """`chat.completions` of the openai package accepts text and sound and returns text or sound,
    whole and streamed."""

    async def test() -> None:
        async with serving(parts) as served:
            openai = AsyncOpenAI(api_key="unused", base_url=f"{served.http}/v1")
            spoken_question: Any = [{"role": "user", "content": [audio_part(wav())]}]
            answer = await openai.chat.completions.create(
                model="moss",
                modalities=["text", "audio"],
                audio={"voice": "alloy", "format": "wav"},
                messages=spoken_question,
            )
            message = answer.choices[0].message
            assert message.audio is not None
            sound, rate = soundfile.read(io.BytesIO(base64.b64decode(message.audio.data)))
            assert (len(sound), rate) == (CODES * 1920, RATE)
            assert sound.std() > 0
            assert answer.choices[0].finish_reason == "length"
            assert answer.usage is not None
            assert answer.usage.completion_tokens == CODES
            written = await openai.chat.completions.create(
                model="moss", messages=[{"role": "user", "content": "Hello"}], max_tokens=5
            )
            assert isinstance(written.choices[0].message.content, str)
            stream: Any = await openai.chat.completions.create(
                model="moss",
                modalities=["text", "audio"],
                audio={"voice": "alloy", "format": "pcm16"},
                messages=spoken_question,
                stream=True,
                stream_options={"include_usage": True},
            )
            data, last = b"", None
            async for chunk in stream:
                last = chunk
                for choice in chunk.choices:
                    if choice.delta.audio:
                        data += base64.b64decode(choice.delta.audio.data or "")
            assert last is not None
            assert last.usage.completion_tokens == CODES
            streamed = np.frombuffer(data, "<i2") / 32768
            assert np.abs(streamed - sound).max() < 1e-4  # the same seed, the same reply

    run(test())


def test_speech(parts: Parts) -> None:
    """`audio.speech` returns every supported format, as a body and as events."""

    async def test() -> None:
        async with serving(parts) as served:
            openai = AsyncOpenAI(api_key="unused", base_url=f"{served.http}/v1")

            async def read(kind: Any) -> bytes:
                answer = await openai.audio.speech.create(
                    model="moss", voice="alloy", input="Hello there", response_format=kind
                )
                return answer.content

            assert len(await read("pcm")) == CODES * 1920 * 2
            for kind in ("wav", "flac", "mp3", "opus"):
                samples, _ = soundfile.read(io.BytesIO(await read(kind)))
                assert len(samples) >= CODES * 1920
            samples, _ = decode(await read("aac"), 60.0)
            assert len(samples) >= CODES * 1920
            async with client(served) as http:
                asked = {"input": "Hello", "stream_format": "sse", "response_format": "pcm"}
                answer = await http.post("/v1/audio/speech", json=asked)
                lines = [line[6:] for line in answer.text.splitlines() if line]
                events = [json.loads(line) for line in lines]
                assert events[-1]["type"] == "speech.audio.done"
                assert events[-1]["usage"]["output_tokens"] == CODES
                assert {event["type"] for event in events[:-1]} == {"speech.audio.delta"}

    run(test())


REFUSED: list[tuple[str, Any, int, str | None]] = [
    ("/v1/chat/completions", {"messages": []}, 400, "messages"),
    ("/v1/chat/completions", {"messages": [1]}, 400, "messages[0]"),
    ("/v1/chat/completions", {"messages": [{"role": "x"}]}, 400, "messages[0].role"),
    ("/v1/chat/completions", {"messages": [{"role": "user"}]}, 400, "messages[0].content"),
    ("/v1/chat/completions", {"n": 2, "messages": [1]}, 400, "n"),
    ("/v1/chat/completions", {"modalities": ["smell"]}, 400, "modalities"),
    ("/v1/chat/completions", [], 400, None),
    ("/v1/audio/speech", {"input": ""}, 400, "input"),
    ("/v1/audio/speech", {"input": "x" * 4097}, 400, "input"),
    ("/v1/audio/speech", {"input": "x", "response_format": "ogg"}, 400, "response_format"),
    ("/v1/audio/speech", {"input": "x", "speed": 9}, 400, "speed"),
    ("/v1/realtime/client_secrets", {"session": 1}, 400, "session"),
    (
        "/v1/realtime/client_secrets",
        {"expires_after": {"anchor": "created_at", "seconds": 9}},
        400,
        "expires_after.seconds",
    ),
]


def test_refusals(parts: Parts) -> None:
    """HTTP errors have the public shape and name the field."""

    async def test() -> None:
        async with serving(parts) as served, client(served) as http:
            for path, body, status, param in REFUSED:
                answer = await http.post(path, json=body)
                error = answer.json()["error"]
                assert set(error) == {"type", "code", "message", "param"}
                assert (answer.status_code, error["param"]) == (status, param), body

    run(test())


def test_bad_sound(parts: Parts) -> None:
    """A body that is not sound, base64 or JSON gets a 4xx answer, not a server error."""

    async def test() -> None:
        async with serving(parts) as served, client(served) as http:
            for part, code in (
                (audio_part(b"no sound at all"), "invalid_audio"),
                ({"type": "input_audio", "input_audio": {"data": "%"}}, "invalid_base64"),
                ({"type": "input_audio", "input_audio": {}}, "missing_required_parameter"),
                ({"type": "image_url"}, "invalid_value"),
            ):
                body = {"messages": [{"role": "user", "content": [part]}]}
                answer = await http.post("/v1/chat/completions", json=body)
                assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
            answer = await http.post("/v1/chat/completions", content=b"{" * 5000)
            assert answer.json()["error"]["code"] == "invalid_json"

    run(test())


def test_models_version_and_page(parts: Parts) -> None:
    """The models and the version are served, and an unknown path gives 404."""

    async def test() -> None:
        async with serving(parts) as served, client(served) as http:
            models = (await http.get("/v1/models")).json()
            assert [model["id"] for model in models["data"]] == ["moss-speech"]
            assert models["data"][0]["capabilities"]["voices"] is True
            assert (await http.get("/v1/models/any/name")).json()["id"] == "any/name"
            assert "version" in (await http.get("/version")).json()
            assert (await http.get("/v1/nothing")).status_code == 404
            assert (await http.get("/../../etc/passwd")).status_code == 404

    run(test())


def test_liveness_and_readiness_while_loading(parts: Parts) -> None:
    """While the model loads, the server reports that it is alive but not ready, and refuses
    requests with a reason."""

    async def test() -> None:
        access = asyncio.Event()

        async def load() -> Backend:
            await access.wait()
            raise RuntimeError("never mind")

        server, server_state = make_server(settings(), load)
        task = asyncio.get_running_loop().create_task(server._serve())
        await until(lambda: server.started)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as http:
            assert (await http.get("/health/live")).status_code == 200
            answer = await http.get("/health")
            assert (answer.status_code, answer.json()) == (503, {"status": "loading"})
            answer = await http.post("/v1/audio/speech", json={"input": "x"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "loading")
        access.set()
        await task  # a failed load ends the server and keeps the reason
        assert isinstance(server.failure, RuntimeError)
        assert isinstance(server_state, ServerState)

    run(test())


def test_metrics(parts: Parts) -> None:
    """/metrics reports TTFA, RTF, pages, sessions and refusals, with units in the names."""

    async def test() -> None:
        async with serving(parts) as served, client(served) as http:
            async with served.session() as peer:
                await peer.manual()
                await peer.ask()
                await peer.send("response.cancel")
                await peer.api_error()
                page = (await http.get("/metrics")).text
            values = dict(line.rsplit(" ", 1) for line in page.splitlines() if line[0] != "#")
            assert values['mosslive_sessions_live{transport="websocket"}'] == "1.0"
            assert values["mosslive_time_to_first_audio_seconds_count"] == "1.0"
            assert values["mosslive_reply_real_time_factor_count"] == "1.0"
            assert float(values["mosslive_reply_audio_seconds_total"]) == pytest.approx(1.6)
            assert values['mosslive_refusals_total{code="response_cancel_not_active"}'] == "1.0"
            stats = served.backend.engine.stats()
            assert float(values["mosslive_engine_pages"]) == stats.pages
            for name in ("underruns_total", "engine_queued_rows", "engine_free_pages"):
                assert f"mosslive_{name}" in values

    run(test())


def test_without_a_codec(parts: Parts) -> None:
    """A server without a codec answers text with text and refuses sound with a reason."""

    async def test() -> None:
        async with serving(parts, silent=True) as served, client(served) as http:
            body = {"modalities": ["audio"], "messages": [{"role": "user", "content": "x"}]}
            answer = await http.post("/v1/chat/completions", json=body)
            assert answer.json()["error"]["code"] == "no_voice"
            async with served.session() as peer:
                assert peer.events[0]["session"]["output_modalities"] == ["text"]
                await peer.send("input_audio_buffer.append", audio="AAAA")
                assert "no codec" in (await peer.api_error())["message"]
                part = {"type": "input_text", "text": "Hello"}
                item = {"type": "message", "role": "user", "content": [part]}
                await peer.send("conversation.item.create", item=item)
                await peer.send("response.create")
                done = await peer.until("response.done")
                assert done["response"]["output"][0]["content"][0]["type"] == "output_text"

    run(test())


def test_framework_errors_have_one_shape(parts: Parts) -> None:
    """Every HTTP error is JSON of one shape, whichever layer raises it."""

    async def test() -> None:
        async with serving(parts) as served, httpx.AsyncClient(base_url=served.http) as http:
            form = {"content-type": "multipart/form-data; boundary=x"}
            for answer, status, code in (
                (await http.get("/v1/nothing"), 404, "not_found"),
                (await http.post("/v1/nothing"), 404, "not_found"),
                (await http.put("/v1/models"), 405, "method_not_allowed"),
                (await http.get("/v1/chat/completions"), 405, "method_not_allowed"),
                (await http.get("/v1/realtime"), 426, "upgrade_required"),
                (await http.post("/v1/voices", content=b"x", headers=form), 400, "invalid_request"),
                (await http.post("/v1/audio/speech", content=b'"\\ud800"'), 400, "invalid_json"),
            ):
                assert answer.status_code == status
                assert answer.json()["error"]["code"] == code

    run(test())


def test_wrong_paths_and_methods(parts: Parts) -> None:
    """The error for a wrong path or method names it and lists what is allowed."""

    async def test() -> None:
        keys: dict[str, Any] = {"api_keys": ("a-key-for-tests",)}
        async with serving(parts, **keys) as served:
            header = {"Authorization": "Bearer a-key-for-tests"}
            async with client(served, headers=header) as http:
                missing = await http.post("/v1/audio/speeches", json={})
                assert "/v1/audio/speeches" in missing.json()["error"]["message"]
                wrong = await http.request("DELETE", "/v1/voices")
                assert wrong.headers["allow"] == "GET, HEAD, POST"
                assert "DELETE; allowed: GET, HEAD, POST" in wrong.json()["error"]["message"]
                plain = await http.get("/v1/realtime")
                assert plain.headers["upgrade"] == "websocket"
                assert "ws://" in plain.json()["error"]["message"]
                long = await http.get("/v1/" + "x" * 500)
                assert len(long.json()["error"]["message"]) < 200
            async with client(served) as http:  # without a key the paths are not listed
                assert (await http.get("/v1/nothing")).status_code == 401

    run(test())


def test_a_stream_that_is_refused(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A streamed reply that the engine refuses after it was announced, and before its first output,
    gets status 503: the response has not started."""

    async def refused(*given: object) -> AsyncIterator[Event]:
        yield ContextTrimmed(2, 40)
        yield ReplyStarted(1, "text")
        raise EngineFull("deadlines", "speech would stutter")

    monkeypatch.setattr(chat, "one_shot_reply", refused)

    async def test() -> None:
        async with serving(parts) as served, client(served) as http:
            asked = {"messages": [{"role": "user", "content": "Hello"}], "stream": True}
            answer = await http.post("/v1/chat/completions", json=asked)
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "engine_full_deadlines"
            assert "retry-after" in answer.headers

    run(test())
