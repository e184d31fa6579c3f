"""`mosslive doctor`: what it finds, and the commands that it suggests."""

import json
import shutil
import socket
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from mosslive.cli import doctor_machine
from mosslive.cli.app import app
from mosslive.cli.doctor_check import Check
from mosslive.cli.doctor_packages import package_checks, requirements
from mosslive.config import folders

REQUIRES = [
    "numpy>=1.26",
    'onnx>=1.17; extra == "voice"',
    'mosslive[voice]; extra == "server"',
    'uvicorn>=0.50; extra == "server"',
    'pytest>=8; extra == "dev"',
]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Versions of packages by name, and nothing else is installed."""
    versions = {"numpy": "2.0.1", "onnx": "1.17.0+cpu", "uvicorn": "0.50.0"}

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "requires", lambda _: REQUIRES)
    monkeypatch.setattr(metadata, "version", version)
    return versions


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {one.name: one for one in checks}


def test_extras_of_extras() -> None:
    """An extra needs its own packages and those of the extras that it includes."""
    assert requirements(REQUIRES) == {
        "": {"numpy": "1.26"},
        "voice": {"onnx": "1.17"},
        "server": {"uvicorn": "0.50", "onnx": "1.17"},
    }


def test_all_packages(installed: dict[str, str]) -> None:
    """Without a missing package every check passes and suggests nothing."""
    assert [(one.state, one.fix) for one in package_checks()] == [("ok", None)] * 4


def test_a_missing_extra(installed: dict[str, str]) -> None:
    """A missing extra is a warning with the command that installs it."""
    del installed["uvicorn"]
    found = by_name(package_checks())["extra server"]
    assert (found.state, found.fix) == ("warning", 'pip install "mosslive[server]"')
    assert "missing: uvicorn" in found.detail


@pytest.mark.parametrize("version", [None, "1.25.9"])
def test_a_missing_or_old_package(installed: dict[str, str], version: str | None) -> None:
    """A package that every command needs is an error if it is missing or too old."""
    del installed["numpy"]
    if version:
        installed["numpy"] = version
    found = by_name(package_checks())["packages"]
    assert (found.state, found.fix) == ("error", "pip install mosslive")


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """--json prints one document. A port in use is a warning with what to do, and a check that
    breaks is an error with exit status 1 that hides no other check."""

    def breaks() -> list[Check]:
        raise ZeroDivisionError

    monkeypatch.setattr(doctor_machine, "_memory", breaks)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(app, ["doctor", "--port", port, "--json"])
        shown = CliRunner().invoke(app, ["doctor", "--port", port])
    document: dict[str, Any] = json.loads(result.stdout)
    found = {one["name"]: one for one in document["checks"]}
    assert found["port"] == {
        "name": "port",
        "state": "warning",
        "detail": f"Port {port} is in use; choose another or use --port 0.",
        "fix": "mosslive serve --port 0 picks a free port",
    }
    assert (found["memory"]["state"], found["bundled model"]["state"]) == ("error", "ok")
    assert (result.exit_code, document["healthy"]) == (1, False)
    assert f"Port {port} is in use" in shown.stdout
    assert "→ mosslive serve --port 0" in shown.stdout


def test_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is described with its memory, and Triton is checked; without a C compiler that is an
    error with the command that installs one."""
    gpu = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_properties": lambda _: SimpleNamespace(name="H200"),
        "mem_get_info": lambda _: (140_000_000_000, 150_000_000_000),
    }
    for name, call in gpu.items():
        monkeypatch.setattr(torch.cuda, name, call)
    monkeypatch.setattr(doctor_machine, "_nvidia_driver", lambda: "570.1")
    monkeypatch.setattr(doctor_machine, "find_spec", lambda _: object())
    monkeypatch.setattr(shutil, "which", lambda _: None)
    device, triton = doctor_machine._device()
    assert device.detail.startswith("cuda:0, H200, 140 of 150 GB free, driver 570.1, CUDA ")
    assert (triton.state, triton.fix) == ("error", "apt install gcc libc6-dev")


def test_a_gpu_that_torch_cannot_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver without a CUDA build of PyTorch is a warning."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(doctor_machine, "_nvidia_driver", lambda: "570.1")
    (device,) = doctor_machine._device()
    assert device.state == "warning"
    assert "https://pytorch.org" in str(device.fix)


def test_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Microphone and loudspeaker are found one by one; a missing package has its command."""

    class PortAudioError(Exception):
        pass

    def query_devices(kind: str) -> dict[str, str]:
        if kind == "input":
            raise PortAudioError
        return {"name": "Speakers"}

    card = SimpleNamespace(PortAudioError=PortAudioError, query_devices=query_devices)
    monkeypatch.setitem(sys.modules, "sounddevice", card)
    microphone, loudspeaker = doctor_machine._sound()
    assert (microphone.state, loudspeaker.detail) == ("warning", "Speakers")
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    (missing,) = doctor_machine._sound()
    assert missing.fix == "pip install 'mosslive[talk]'"


def test_a_broken_bundled_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A truncated bundled model is an error; a missing one is a warning."""
    home = folders.shipped_folder()
    monkeypatch.setattr(folders, "shipped_folder", lambda: tmp_path)
    assert doctor_machine._bundled().state == "warning"
    (tmp_path / "codec").mkdir()
    shutil.copytree(home / "lm", tmp_path / "lm")
    for shard in (tmp_path / "lm").glob("*.safetensors"):
        shard.write_bytes(shard.read_bytes()[:-100])
    broken = doctor_machine._bundled()
    assert broken.state == "error"
    assert broken.fix
