"""Third-party clients, unmodified, from an environment of their own, against a real server.

They need other versions of common packages than ours, so they are never imported here: each is a
program that talks to the server over the loopback. `make clients` installs them.
"""

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.server.rig import RATE, WAIT_S, Parts, pcm_bytes, run, serving, turn

HERE = Path(__file__).parent
PYTHON = Path(sys.prefix) / "clients" / "bin" / "python"
NODE = Path(sys.prefix) / "clients" / "node" / "node_modules"

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(not PYTHON.exists(), reason="no .venv/clients; `make clients` makes it"),
]


def talk_with(parts: Parts, tmp_path: Path, *command: str | Path) -> dict[str, Any]:
    """Runs a client to its end; what it printed last."""
    # Some ask for semantic turn detection, which waits longer for who has paused before.
    silence = np.zeros(2 * RATE, np.float32)
    (tmp_path / "turn.pcm").write_bytes(pcm_bytes(np.concatenate((turn(), silence))))
    said: list[dict[str, Any]] = []

    async def test() -> None:
        async with serving(parts, max_reply_s=8.0, min_reply_s=16.0) as served:
            process = await asyncio.create_subprocess_exec(
                *command,
                str(served.port),
                tmp_path / "turn.pcm",
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                async with asyncio.timeout(WAIT_S):
                    out, err = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            assert process.returncode == 0, err.decode()[-3000:]
            said.append(json.loads(out.decode().splitlines()[-1]))

    run(test())
    return said[0]


def test_openai_agents(parts: Parts, tmp_path: Path) -> None:
    """Asked: two turns, an interruption, and sound from both."""
    got = talk_with(parts, tmp_path, PYTHON, HERE / "agents_client.py")
    assert got["replies"] == 2
    assert got["interrupted"] >= 1
    assert got["audio"] > 0


def test_livekit(parts: Parts, tmp_path: Path) -> None:
    """Asked: two turns; the first reply is cut off, the second whole; no error is told."""
    got = talk_with(parts, tmp_path, PYTHON, HERE / "livekit_client.py")
    assert 0 < got["lengths"][0] < got["lengths"][1] == 100 * 1920
    assert got["modalities"] == [["audio", "text"]] * 2
    assert got["errors"] == []


def test_pipecat(parts: Parts, tmp_path: Path) -> None:
    """Asked: two turns; the first reply is cut off, the second whole; no error is told."""
    got = talk_with(parts, tmp_path, PYTHON, HERE / "pipecat_client.py")
    assert 0 < got["audio"][0] < got["audio"][1] == 100 * 1920 * 2
    assert got["errors"] == []


@pytest.mark.skipif(not NODE.exists(), reason="no node, or no `make clients`")
def test_npm_agents_realtime(parts: Parts, tmp_path: Path) -> None:
    """Asked: the JavaScript client; a program finds its packages beside itself."""
    program = shutil.copy(HERE / "agents_realtime.mjs", NODE.parent)
    got = talk_with(parts, tmp_path, "node", program)
    assert got["replies"] == ["cancelled", "incomplete"]  # noise has no end of its own
    assert got["interrupted"] >= 1
    assert got["audio"] > 100 * 1920 * 2
    assert got["errors"] == []
