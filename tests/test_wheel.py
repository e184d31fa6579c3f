"""The wheel in a clean environment: built, installed with the extra `server`, and talking.

Takes minutes and needs a package index, so it runs with LONG_TESTS=1 only. `test_packaging.py`
checks the list of its files in every run.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[1]
PIP = ("-m", "pip", "--disable-pip-version-check")
START_S = 300
# Nothing of the source tree is found by the environment under test.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        os.environ.get("LONG_TESTS") != "1", reason="takes minutes; LONG_TESTS=1 runs it"
    ),
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: setuptools would also pack what an earlier build left in `build/`."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "mosslive", copy / "mosslive")
    build = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", out, copy)
    subprocess.run([sys.executable, *PIP, *build], check=True)
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and what it requires, and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    made = folder / "bin" / "python"
    options = ("install", "--quiet", "--no-compile", "-r", ROOT / "locks" / "torch.txt")
    for command in ((*options, f"{wheel}[server]"), ("check",)):
        subprocess.run([made, *PIP, *command], check=True, env=CLEAN, cwd=folder)
    return made


def test_the_wheel_has_the_model_and_the_page(wheel: Path) -> None:
    """The wheel holds the bundled model, the page, the licence and the command, and no tests."""
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
        (points,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "mosslive = mosslive.cli:main" in files.read(points).decode()
    wanted = {"lm/model.safetensors", "codec/model.safetensors", "voices/default.voice"}
    assert {f"mosslive/bundled/{name}" for name in wanted} <= names
    assert {"mosslive/py.typed", "mosslive/server/page/index.html"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests", "recipes", "supply"))]


def test_the_installed_wheel_talks(python: Path, tmp_path: Path) -> None:
    """`mosslive serve` of the installed wheel loads the bundled model from the package, serves the
    page and answers a question aloud."""
    command = [str(python.with_name("mosslive")), "serve", "--port", "0"]
    log = tmp_path / "log"
    with log.open("w") as out:
        server = subprocess.Popen(command, cwd=tmp_path, env=CLEAN, stderr=out)
    try:
        port = _logged(log, server, "listening")["port"]
        _logged(log, server, "ready")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=START_S) as http:
            assert "<html" in http.get("/").text
            assert http.get("/health").status_code == 200
            asked = {"input": "Hello.", "response_format": "pcm", "voice": "default"}
            sound = http.post("/v1/audio/speech", json=asked)
            assert sound.status_code == 200, sound.text
            assert len(sound.content) > 24_000  # half a second of 16-bit samples
    finally:
        server.terminate()
        server.wait(60)


def _logged(log: Path, server: "subprocess.Popen[bytes]", message: str) -> dict[str, object]:
    """Waits for the record of the log with this message."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        for line in log.read_text().splitlines():
            if line.startswith("{") and (record := json.loads(line))["message"] == message:
                return dict(record)
        assert server.poll() is None, log.read_text()
        time.sleep(0.2)
    raise AssertionError(f"no {message!r} in {log.read_text()}")
