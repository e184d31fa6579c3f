"""No data of one user reaches another user or the log."""

import io
import json
import logging

import httpx
import pytest
import soundfile

from mosslive.server.logs import JsonLines, LogSettings, set_up
from tests.server.auth import KEY, OTHER, bearing
from tests.server.rig import RATE, WAIT_S, Parts, run, serving, spoken


def test_sessions_do_not_see_each_other(parts: Parts) -> None:
    """A session cannot see items of another session, nor voices of another key."""

    async def test() -> None:
        async with serving(parts, api_keys=(KEY, OTHER)) as served:
            async with served.session(**bearing(KEY)) as one, served.session(**bearing(KEY)) as two:
                await one.manual()
                done = (await one.ask())["response"]
                for event in ("retrieve", "delete"):
                    item = done["output"][0]["id"]
                    await two.send(f"conversation.item.{event}", item_id=item)
                    assert (await two.api_error())["code"].endswith("invalid_item_id")
                await two.send("response.cancel", response_id=done["id"])
                assert (await two.api_error())["code"] == "response_cancel_not_active"
            async with httpx.AsyncClient(base_url=served.http, timeout=WAIT_S) as http:
                mine, yours = ({"Authorization": f"Bearer {key}"} for key in (KEY, OTHER))
                out = io.BytesIO()
                soundfile.write(out, spoken(1.0), RATE, format="WAV")
                made = await http.post(
                    "/v1/voices",
                    files={"file": ("a.wav", out.getvalue())},
                    data={"name": "secret"},
                    headers=mine,
                )
                assert made.status_code == 201
                listed = (await http.get("/v1/voices", headers=yours)).json()["data"]
                assert [one["id"] for one in listed] == ["default"]
                gone = await http.delete("/v1/voices/secret", headers=yours)
                assert gone.status_code == 404
            async with served.session(**bearing(OTHER)) as peer:
                audio = {"output": {"voice": "secret"}}
                await peer.send("session.update", session={"type": "realtime", "audio": audio})
                session = (await peer.until("session.updated"))["session"]
                assert session["audio"]["output"]["voice"] == "default"

    run(test())


def test_the_log_contains_no_user_data(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    """The log contains no words, sound or keys of a client."""

    async def test() -> None:
        async with serving(parts, api_keys=(KEY,)) as served:
            async with served.session(**bearing(KEY)) as peer:
                part = {"type": "input_text", "text": "a private matter"}
                item = {"type": "message", "role": "user", "content": [part]}
                await peer.send("conversation.item.create", item=item)
                await peer.send("response.create", response={"output_modalities": ["text"]})
                done = await peer.until("response.done")
                await peer.send("private matter two")
                await peer.api_error()
                reply = done["response"]["output"][0]["content"][0]["text"]
            async with httpx.AsyncClient(base_url=served.http, timeout=WAIT_S) as http:
                body = {"messages": [{"role": "user", "content": "private matter three"}]}
                header = {"Authorization": f"Bearer {KEY}"}
                await http.post("/v1/chat/completions", json=body, headers=header)
            assert reply
            lines = [JsonLines().format(record) for record in caplog.records]
            assert any("session begins" in line for line in lines)
            for line in lines:
                json.loads(line)
                assert "private matter" not in line
                assert KEY not in line
                assert json.dumps(reply, ensure_ascii=False)[1:-1] not in line or len(reply) < 4

    with caplog.at_level(logging.DEBUG, "mosslive"):
        run(test())


def test_session_records_carry_their_fields(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    """Log lines of a session carry its id, why it was refused, how each turn went and why it ended;
    with `log_content` at level debug also the reply."""

    async def test() -> None:
        async with serving(parts, log_content=True) as served, served.session() as peer:
            await peer.send("no such event")
            await peer.api_error()
            await peer.send("response.create", response={"output_modalities": ["text"]})
            await peer.until("response.done")

    with caplog.at_level(logging.DEBUG, "mosslive"):
        run(test())
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records]
    by_message = {line["message"]: line for line in lines if line["logger"] == "mosslive.session"}
    assert by_message["refused"]["code"] == "invalid_value"
    assert by_message["turn"]["timing"]["reply"] == "text"
    assert by_message["session ends"]["code"] == 1000
    assert by_message["session ends"]["reason"] == "the client left"
    assert by_message["reply"]["text"]
    assert len({line["session"] for line in by_message.values()}) == 1


def test_the_log_of_asyncio_is_json_too() -> None:
    """What asyncio reports (a failed task, writes to a closed socket) is a JSON line like every
    other, so that programs can read the whole log."""
    names = ("mosslive", "uvicorn", "asyncio", "uvicorn.access")
    loggers = [logging.getLogger(name) for name in names]
    before = [(one.handlers, one.propagate, one.level) for one in loggers]
    out = io.StringIO()
    try:
        set_up(LogSettings(), out)
        logging.getLogger("asyncio").warning("socket.send() raised exception.")
        logging.getLogger("asyncio").info("not of interest")
    finally:
        for one, (handlers, propagate, level) in zip(loggers, before, strict=True):
            one.handlers, one.propagate = handlers, propagate
            one.setLevel(level)
    (line,) = out.getvalue().splitlines()
    assert json.loads(line)["message"] == "socket.send() raised exception."
