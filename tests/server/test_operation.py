"""Settings, the command, and the end of a server."""

import asyncio
import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import soundfile
from typer.testing import CliRunner
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from mosslive import MossliveError
from mosslive.cli.app import app
from mosslive.server.send_queue import SendQueue, SlowReader
from mosslive.server.settings import ServerSettings, read_settings
from tests.codec.conftest import speech
from tests.server.rig import WAIT_S, Parts, Peer, run, serving, spoken


def test_sources_and_their_order(tmp_path: Path) -> None:
    """Settings come from the file, then the environment, then the flags; the later source wins."""
    file = tmp_path / "mosslive.toml"
    file.write_text('port = 1\nhost = "localhost"\nidle_s = 5\napi_keys = ["12345678"]\n')
    environment = {"MOSSLIVE_PORT": "2", "MOSSLIVE_TRANSCRIPTS": "true", "PATH": "/bin"}
    got = read_settings({"port": None, "seed": 7}, environment, file)
    assert (got.port, got.host, got.idle_s, got.seed) == (2, "localhost", 5.0, 7)
    assert got.transcripts
    assert got.api_keys == ("12345678",)
    assert read_settings({"port": 3}, environment, file).port == 3
    several = read_settings({}, {"MOSSLIVE_API_KEYS": "aaaaaaaa, bbbbbbbb"})
    assert several.api_keys == ("aaaaaaaa", "bbbbbbbb")
    assert read_settings({}, {}) == ServerSettings()


@pytest.mark.parametrize(
    ("flags", "environment", "toml", "message"),
    [
        ({}, {}, "prot = 1", "Unknown setting prot; did you mean port? (in "),
        ({}, {}, "zebra = 1", "Unknown setting zebra; mosslive serve --help lists all."),
        ({}, {}, "port = ", "not readable as TOML"),
        ({}, {"MOSSLIVE_PORT": "x"}, "", "MOSSLIVE_PORT is 'x'; allowed: a number"),
        ({}, {"MOSSLIVE_NO_AUTH": "x"}, "", "allowed: true or false"),
        ({}, {}, 'port = "1"', "port is '1'; allowed: a whole number"),
        ({}, {}, "no_auth = 1", "no_auth is 1; allowed: true or false"),
        ({}, {}, "api_keys = [1]", "allowed: a list of strings"),
        ({"port": 70000}, {}, "", "port is 70000; allowed: 0 to 65535"),
        ({"max_sessions": 0}, {}, "", "max_sessions is 0; allowed: 1 or more"),
        ({"idle_s": float("nan")}, {}, "", "idle_s is nan"),
        ({"ssl_certfile": Path("x")}, {}, "", "TLS needs both --ssl-certfile and --ssl-keyfile"),
        ({"api_keys": ("short",)}, {}, "", "8 characters or more"),
        ({"log_format": "xml"}, {}, "", "log_format is 'xml'; allowed: auto, text, json"),
        ({"log_level": "loud"}, {}, "", "allowed: debug, info, warning, error"),
    ],
)
def test_bad_settings(
    tmp_path: Path,
    flags: dict[str, Any],
    environment: dict[str, str],
    toml: str,
    message: str,
) -> None:
    """The error names the setting, where it was read, and the allowed values."""
    file = tmp_path / "settings.toml"
    file.write_text(toml)
    with pytest.raises(MossliveError) as caught:
        read_settings(flags, environment, file)
    assert message in str(caught.value)


def test_every_setting_is_a_flag() -> None:
    """Every field of `ServerSettings` is a flag of `mosslive serve`."""
    shown = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200"}).output
    for one in dataclasses.fields(ServerSettings):
        assert f"--{one.name.replace('_', '-')}" in shown


def test_a_queue_that_is_full() -> None:
    """A full queue raises `SlowReader`; no events are dropped in between."""

    async def test() -> None:
        send_queue = SendQueue(100)
        send_queue.put({"type": "one"})
        assert await send_queue.get() == '{"type":"one"}'
        send_queue.put({"type": "x" * 80})
        send_queue.put({"type": "y" * 80})
        with pytest.raises(SlowReader):
            await send_queue.get()

    run(test())


def test_the_last_event_is_sent_before_the_queue_is_empty() -> None:
    """The queue counts as empty only after the last event taken from it has been sent."""

    async def test() -> None:
        send_queue = SendQueue(100)
        send_queue.put({"type": "one"})
        await send_queue.get()
        emptied = asyncio.ensure_future(send_queue.emptied())
        await asyncio.sleep(0)
        assert not emptied.done()
        send_queue.confirm(0.0)
        await emptied

    run(test())


def test_drain(parts: Parts) -> None:
    """A draining server lets responses finish, refuses new sessions and closes the sockets with
    1001."""

    async def test() -> None:
        async with serving(parts) as served:
            async with served.session() as peer:
                await peer.manual()
                await peer.say(spoken(0.4))
                await peer.send("input_audio_buffer.commit")
                await peer.send("response.create")
                await peer.until("response.created")
                draining = asyncio.get_running_loop().create_task(served.server_state.drain())
                done = await peer.until("response.done")
                assert done["response"]["status"] == "incomplete"  # not cancelled
                with pytest.raises(ConnectionClosed) as caught:
                    await peer.next()
                assert caught.value.rcvd is not None
                assert caught.value.rcvd.code == 1001
            await draining
            async with httpx.AsyncClient(base_url=served.http) as http:
                assert (await http.get("/health")).json() == {"status": "draining"}
                answer = await http.post("/v1/audio/speech", json={"input": "x"})
                assert answer.json()["error"]["code"] == "shutting_down"

    run(test())


def test_drain_waits_for_responses_out_of_band(parts: Parts) -> None:
    """Draining waits for responses outside the conversation too."""

    async def test() -> None:
        async with serving(parts) as served, served.session() as peer:
            out_of_band = {"conversation": "none", "input": []}
            await peer.send("response.create", response=out_of_band)
            await peer.until("response.created")
            draining = asyncio.get_running_loop().create_task(served.server_state.drain())
            assert (await peer.until("response.done"))["response"]["status"] == "incomplete"
            with pytest.raises(ConnectionClosed):
                await peer.until("nothing")
            await draining

    run(test())


def test_a_signal_while_loading(tmp_path: Path) -> None:
    """A server that is still loading exits on SIGTERM, however long the load would take."""
    program = tmp_path / "loading.py"
    program.write_text(
        "import time\n"
        "from mosslive.server import run\n"
        "from mosslive.server.settings import ServerSettings\n"
        "run.load_backend = lambda settings: time.sleep(600)\n"
        "run.serve(ServerSettings(port=0))\n"
    )

    async def test() -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, program), stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        try:
            async with asyncio.timeout(WAIT_S):
                while b"listening" not in await process.stderr.readline():
                    pass
                process.send_signal(signal.SIGTERM)
                await process.stderr.read()
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    run(test())


@pytest.mark.alone
def test_drain_does_not_wait_for_ever(parts: Parts) -> None:
    """A session that does not finish within `drain_s` is closed."""

    async def test() -> None:
        limits: dict[str, Any] = {"drain_s": 0.2, "max_reply_s": 40.0}
        async with serving(parts, **limits) as served, served.session() as peer:
            await peer.manual()
            await peer.say(spoken(0.4))
            await peer.send("input_audio_buffer.commit")
            await peer.send("response.create")
            await peer.until("response.created")
            await served.server_state.drain()
            with pytest.raises(ConnectionClosed):
                await peer.until("nothing")

    run(test())


def test_the_command(nano_folder: Path, codec_folder: Path, tmp_path: Path) -> None:
    """`mosslive serve` in a process of its own becomes ready, talks, logs JSON and exits on
    SIGTERM."""
    soundfile.write(tmp_path / "anna.wav", speech(1.6, 24_000), 24_000)

    async def test() -> None:
        flags = ["--model", nano_folder, "--codec", codec_folder, "--voice", tmp_path / "anna.wav"]
        more = ["--port", "0", "--max-reply-s", "0.8", "--min-reply-s", "1.6"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mosslive", "serve"),
            *map(str, flags + more),
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | {"MOSSLIVE_SEED": "3"},
        )
        assert process.stderr is not None
        port, lines = 0, []
        try:
            async with asyncio.timeout(WAIT_S):
                while line := await process.stderr.readline():
                    lines.append(json.loads(line))
                    if lines[-1]["message"] == "listening":
                        port = lines[-1]["port"]
                    if lines[-1]["message"] == "ready":
                        break
                async with connect(f"ws://127.0.0.1:{port}/v1/realtime?x=private") as socket:
                    peer = Peer(socket)
                    assert (await peer.next())["session"]["audio"]["output"]["voice"] == "anna"
                    await peer.manual()
                    assert (await peer.ask())["response"]["status"] == "incomplete"
                    process.send_signal(signal.SIGTERM)
                    with pytest.raises(ConnectionClosed):
                        await peer.until("nothing")
                rest = await process.stderr.read()
                assert await process.wait() == 0, rest
            lines += [json.loads(line) for line in rest.splitlines()]
            assert {"session begins", "turn", "draining"} <= {line["message"] for line in lines}
            assert "private" not in json.dumps(lines)  # the query string is chosen by the client
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    run(test())
