"""The programs in `examples/` run as printed, against a real server.

Those for other packages run with the third-party clients (`make test-clients`).
"""

import re
import shutil
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import soundfile

from mosslive.server.app import make_app
from tests.server.browser import Chrome
from tests.server.clients.test_clients import PATIENCE_S, PYTHON, needs, output_of
from tests.server.rig import CODES, RATE, Parts, Served, run, serving, turn

FOLDER = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".py", ".sh", ".html"))
MOST_LINES = 90
API = ("/v1/", "/health", "/metrics", "/version")  # the rest is for browsers
# Endpoints that curl cannot use, and the twins of others under their beta names.
NOT_BY_CURL = {
    "/v1/realtime",  # WebSocket, or an SDP offer
    "/v1/realtime/calls",  # an SDP offer
    "/v1/realtime/calls/{call}/hangup",  # a call, which needs an SDP offer
    "/v1/realtime/sessions",
    "/v1/realtime/transcription_sessions",
    "/v1/{rest:path}",
}


def question(folder: Path) -> Path:
    soundfile.write(folder / "question.wav", turn(), RATE, "PCM_16")
    return folder / "question.wav"


def seconds(path: Path, rate_hz: int) -> float:
    sound, found_hz = soundfile.read(path)
    assert found_hz == rate_hz
    assert np.abs(sound).max() > 0
    return len(sound) / rate_hz


def test_programs_are_short_and_say_how_to_start_them() -> None:
    """Each has its commands in its first lines, and the README lists it."""
    readme = (FOLDER / "README.md").read_text("utf-8")
    for name in PROGRAMS:
        text = (FOLDER / name).read_text("utf-8")
        assert len(text.splitlines()) < MOST_LINES, name
        head = "\n".join(text.splitlines()[:12])
        assert "mosslive serve" in head, name
        assert f"examples/{name}" in head or f"/{name}" in head, name
        assert f"[`{name}`]({name})" in readme, name


def test_microphone_and_phone(parts: Parts, tmp_path: Path) -> None:
    """A file takes the place of the microphone; the answer comes at 24 kHz, by telephone at 8."""

    async def test() -> None:
        async with serving(parts) as served:
            asked, out = question(tmp_path), tmp_path / "answer.wav"
            program = (sys.executable, FOLDER / "microphone.py", "--url", served.ws)
            printed = await output_of(*program, "--files", asked, out, folder=tmp_path)
            assert "model: (spoken)" in printed
            assert seconds(out, RATE) == pytest.approx(CODES * 0.08)
            program = (sys.executable, FOLDER / "phone.py", "--url", served.ws)
            await output_of(*program, asked, out, folder=tmp_path)
            assert seconds(out, 8000) == pytest.approx(CODES * 0.08, abs=0.01)

    run(test(), 2 * PATIENCE_S)


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_curl_uses_every_endpoint(parts: Parts, tmp_path: Path) -> None:
    """Each HTTP endpoint answers its command; none is missing."""
    text = (FOLDER / "curl.sh").read_text("utf-8")
    paths = re.findall(r"\$base(/[\w/-]+)", text)
    called = {re.sub(r"/(moss-speech|mine)$", "", path) for path in paths}

    async def test() -> None:
        async with serving(parts) as served:
            routes = {getattr(route, "path", "") for route in make_app(served.server_state).routes}
            api = [path for path in routes - NOT_BY_CURL if path.startswith(API)]
            assert {re.sub(r"/\{[\w:]+\}$", "", path) for path in api} == called
            out = await output_of("bash", FOLDER / "curl.sh", served.http, folder=tmp_path)
            assert '"text":' in out
            assert '"deleted":true' in out
            assert "mosslive_" in out.splitlines()[-1]

    run(test(), 2 * PATIENCE_S)
    assert seconds(tmp_path / "question.wav", RATE) > 0
    assert seconds(tmp_path / "answer.wav", RATE) > 0


def asks(parts: Parts, tmp_path: Path, program: str, url: str) -> None:
    """Runs a program of another package; `url`: an attribute of `Served`, and a suffix."""

    async def test() -> None:
        async with serving(parts) as served:
            address = getattr(served, url).split("?")[0] + ("/v1" if url == "http" else "")
            out = tmp_path / "answer.wav"
            command = (PYTHON, FOLDER / program, "--url", address, question(tmp_path), out)
            assert "error" not in await output_of(*command, folder=tmp_path)
            assert seconds(out, RATE) > 0

    run(test(), 2 * PATIENCE_S)


@pytest.mark.clients
@needs("agents")
def test_openai_agents(parts: Parts, tmp_path: Path) -> None:
    """openai-agents gets a spoken answer."""
    asks(parts, tmp_path, "openai_agents.py", "ws")


@pytest.mark.clients
@needs("pipecat")
def test_pipecat(parts: Parts, tmp_path: Path) -> None:
    """Pipecat gets a spoken answer."""
    asks(parts, tmp_path, "pipecat_bot.py", "ws")


@pytest.mark.clients
@needs("livekit")
def test_livekit(parts: Parts, tmp_path: Path) -> None:
    """LiveKit gets a spoken answer."""
    asks(parts, tmp_path, "livekit_model.py", "http")


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.clients
def test_browser(parts: Parts, chrome: Chrome) -> None:
    """The page of another origin connects over WebRTC, hears the microphone and gets an answer."""
    files = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(FOLDER)))
    origin = f"http://localhost:{files.server_port}"
    Thread(target=files.serve_forever, daemon=True).start()

    async def talk(served: Served) -> None:
        async with chrome.page() as page:
            await page.goto(f"{origin}/browser.html?server={served.http}")
            await page.click("#talk")
            await page.wait_for_function("document.body.innerText.includes('Answer:')")
            assert "Error" not in await page.inner_text("#log")
            await page.goto("about:blank")  # the call ends with the page
            await served.quiet()

    async def test() -> None:
        async with serving(parts, allowed_origins=(origin,)) as served:
            await talk(served)

    try:
        chrome.run(test(), 2 * PATIENCE_S)
    finally:
        files.shutdown()
        files.server_close()
