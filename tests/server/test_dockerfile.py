"""Checks of `deploy/Dockerfile` that need no docker: what it copies, installs and runs.

They do not show that the image builds, because base images and wheels are downloaded:
`deploy/check-image` (`make test-image`) does, where there is a builder.
"""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from mosslive import MossliveError
from mosslive.cli.app import app
from mosslive.server.environment import PREFIX
from mosslive.server.settings import check_exposure, read_settings
from supply.locks import BASES, read
from tests.server.rig import WAIT_S, Parts, run, serving

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "Dockerfile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def instructions() -> list[tuple[str, str]]:
    """(name, the rest) in order; comments dropped and continued lines joined, as docker does."""
    lines = [one for one in FILE.read_text().splitlines() if not one.lstrip().startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ")
    pairs = (line.split(maxsplit=1) for line in whole.splitlines() if line.strip())
    return [(name, rest) for name, rest in pairs]


def all_of(name: str) -> list[str]:
    return [rest for one, rest in instructions() if one == name]


def variables() -> dict[str, str]:
    pairs = (pair.partition("=") for rest in all_of("ENV") for pair in shlex.split(rest))
    return {name: value for name, _, value in pairs}


def copied() -> set[str]:
    return {source for rest in all_of("COPY") for source in shlex.split(rest)[:-1]}


def test_copied_files_exist() -> None:
    """Every source of a COPY exists and is not ignored, and the files that pyproject.toml needs are
    among them."""
    for source in copied():
        assert (ROOT / source).exists(), source
    ignored = (FILE.parent / "Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in ignored
    assert {line[1:] for line in ignored if line.startswith("!")} == copied()
    assert {PROJECT["readme"], *PROJECT["license-files"], "pyproject.toml", "mosslive"} <= copied()


def test_the_image_installs_the_locks_of_the_server() -> None:
    """The image installs the lock files of the server by their hashes and nothing else but torch,
    in the version of the lock, and the package from the folder it was copied to."""
    installs = [one for one in all_of("RUN") if "pip install " in one]
    locked, torch, package = installs
    assert {"--require-hashes", "--no-deps"} <= set(locked.split())
    names = (*BASES["server"], "server")
    assert re.findall(r"-r (\S+)", locked) == [f"/src/locks/{name}.txt" for name in names]
    assert torch.split()[-1] == "${TORCH}"
    (pin,) = read("torch")
    assert set(re.findall(r"TORCH=\"?(\S+)", FILE.read_text())) == {pin.line}
    assert {"--no-deps", "--no-build-isolation", "/src"} <= set(package.split())
    for rest in all_of("COPY"):
        *sources, target = shlex.split(rest)
        folder = {"mosslive": "mosslive", "locks": "locks/"}.get(Path(sources[0]).parts[0], "")
        assert target == f"/src/{folder}"


def test_the_shell_reads_every_command() -> None:
    """No RUN has a syntax error that would only show in the middle of a build."""
    for command in all_of("RUN"):
        done = subprocess.run(["sh", "-n", "-c", command], capture_output=True, text=True)
        assert done.returncode == 0, (command, done.stderr)


def test_the_check_of_the_image_is_a_program() -> None:
    """`deploy/check-image` can be started, and the shell reads it."""
    check = FILE.parent / "check-image"
    assert os.access(check, os.X_OK)
    subprocess.run(["bash", "-n", check], check=True)


def test_the_entry_point_parses() -> None:
    """The entry point and its flags parse; with the variables of the image the server demands a
    key, and with a key it would start."""
    (entry,) = all_of("ENTRYPOINT")
    program, command, *flags = json.loads(entry)
    assert program in PROJECT["scripts"]
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    with commands[command].make_context(command, flags, resilient_parsing=False):
        pass
    given = {name: value for name, value in variables().items() if name.startswith(PREFIX)}
    settings = read_settings({}, given)
    with pytest.raises(MossliveError, match=f"{PREFIX}API_KEYS"):
        check_exposure(settings)
    check_exposure(read_settings({}, given | {f"{PREFIX}API_KEYS": "a-key-of-enough-letters"}))
    assert str(settings.port) in all_of("EXPOSE")


def test_the_server_does_not_run_as_root() -> None:
    """The server does not run as root; its user is created before and owns the folders it writes
    to."""
    names = [name for name, _ in instructions()]
    (user,) = all_of("USER")
    assert user not in ("root", "0")
    assert names.index("USER") < names.index("ENTRYPOINT")
    (made,) = [command for command in all_of("RUN") if "useradd" in command]
    assert instructions().index(("RUN", made)) < names.index("USER")
    assert re.search(rf"useradd [^&]*\b{user}\b", made)
    owned = re.findall(rf"install -d -o {user} [^&]*?((?: /\S+)+)", made)[0].split()
    written = {"MOSSLIVE_VOICES_DIR", "TRITON_CACHE_DIR", "HF_HOME", "MOSSLIVE_CACHE"}
    for name in written:
        assert any(f"{variables()[name]}/".startswith(f"{folder}/") for folder in owned), name


def test_the_health_check(parts: Parts) -> None:
    """The health check of the image passes while the server is ready and fails after it ends."""
    (check,) = all_of("HEALTHCHECK")
    python, option, program = shlex.split(check.partition("CMD")[2])
    assert (python, option) == ("python3", "-c")

    async def passes(port: int) -> bool:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program),
            env=os.environ | {"MOSSLIVE_PORT": str(port)},
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(WAIT_S):
            return await process.wait() == 0

    async def test() -> None:
        async with serving(parts, silent=True) as served:
            assert await passes(served.port)
            await served.server_state.drain()
            assert not await passes(served.port)

    run(test())
