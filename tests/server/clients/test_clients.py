"""Third-party clients, unmodified, from an environment of their own, against a real server.

They need other versions of common packages than ours, so they are never imported here: each is a
program that talks to the server over the loopback. `make clients` installs them. Nothing here
depends on how fast a client is: the reply that it interrupts lasts until it has spoken.
"""

import asyncio
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mosslive.server.realtime.talk_events import TalkEventForwarder
from tests.server.rig import RATE, Parts, pcm_bytes, run, serving, turn

HERE = Path(__file__).parent
HOME = Path(sys.prefix) / "clients"
PYTHON = HOME / "bin" / "python"
NODE = HOME / "node" / "node_modules"
PATIENCE_S = 240.0  # to load a client and run its conversation, on a busy machine
ENDLESS_S, SHORT_S = 80.0, 2.0
WHOLE = round(SHORT_S * RATE)  # samples of the second reply

pytestmark = pytest.mark.clients


def needs(package: str) -> pytest.MarkDecorator:
    found = list(HOME.glob(f"lib/python*/site-packages/{package}"))
    return pytest.mark.skipif(not found, reason=f"{package} is not installed: `make clients`")


async def output_of(*command: str | Path, folder: Path | None = None) -> str:
    """What a program prints. Fails with its errors if it fails."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()[-3000:]
    return out.decode()


@pytest.fixture(autouse=True)
def patient_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first reply lasts until the client speaks again; the later ones are short and whole."""
    real = TalkEventForwarder._reply_started

    def started(self: TalkEventForwarder, turn: int) -> None:
        # A reply that has begun keeps its length. No event of it is sent yet.
        session = self.session
        settings = session.backend.settings
        session.backend.settings = replace(settings, max_reply_s=SHORT_S, min_reply_s=SHORT_S)
        session.configure_talk(session.config)
        real(self, turn)

    monkeypatch.setattr(TalkEventForwarder, "_reply_started", started)


def talk_with(parts: Parts, tmp_path: Path, *command: str | Path) -> dict[str, Any]:
    """Runs a client to its end. Returns the JSON that it printed last."""
    # Some clients use semantic turn detection, which waits longer after pauses.
    silence = np.zeros(2 * RATE, np.float32)
    (tmp_path / "turn.pcm").write_bytes(pcm_bytes(np.concatenate((turn(), silence))))
    said: list[dict[str, Any]] = []

    async def test() -> None:
        lasting: dict[str, Any] = {"max_reply_s": ENDLESS_S, "min_reply_s": ENDLESS_S}
        async with serving(parts, **lasting) as served:
            printed = await output_of(*command, str(served.port), tmp_path / "turn.pcm")
            said.append(json.loads(printed.splitlines()[-1]))

    run(test(), PATIENCE_S + 60)
    return said[0]


@needs("agents")
def test_openai_agents(parts: Parts, tmp_path: Path) -> None:
    """openai-agents holds two turns with an interruption and receives sound of both replies."""
    got = talk_with(parts, tmp_path, PYTHON, HERE / "agents_client.py")
    assert got["replies"] == 2
    assert got["interrupted"] >= 1
    assert got["audio"] > 0


@needs("livekit")
def test_livekit(parts: Parts, tmp_path: Path) -> None:
    """LiveKit holds two turns without an error: the first reply is interrupted, the second
    complete."""
    got = talk_with(parts, tmp_path, PYTHON, HERE / "livekit_client.py")
    assert 0 < got["lengths"][0] < ENDLESS_S * RATE
    assert got["lengths"][1] == WHOLE
    assert got["modalities"] == [["audio", "text"]] * 2
    assert got["errors"] == []


@needs("pipecat")
def test_pipecat(parts: Parts, tmp_path: Path) -> None:
    """Pipecat holds two turns without an error: the first reply is interrupted, the second
    complete."""
    got = talk_with(parts, tmp_path, PYTHON, HERE / "pipecat_client.py")
    assert 0 < got["audio"][0] < ENDLESS_S * RATE * 2
    assert got["audio"][1] == WHOLE * 2
    assert got["errors"] == []


@pytest.mark.skipif(not NODE.exists(), reason="no node, or no `make clients`")
def test_npm_agents_realtime(parts: Parts, tmp_path: Path) -> None:
    """The JavaScript client of OpenAI holds a conversation; Node looks for packages next to the
    program."""
    program = shutil.copy(HERE / "agents_realtime.mjs", NODE.parent)
    got = talk_with(parts, tmp_path, "node", program)
    assert got["replies"] == ["cancelled", "incomplete"]  # noise has no end of its own
    assert got["interrupted"] >= 1
    assert got["audio"] > WHOLE * 2
    assert got["errors"] == []
