"""What all commands have in common: JSON for programs, help for people, completion for shells."""

import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mosslive.cli.app import app
from mosslive.server.settings import ServerSettings
from tests.test_public_names import ALL

# Commands without one result to print.
_NO_RESULT = {
    "mosslive serve": "runs until it is stopped; --log-format json writes its log as JSON lines",
}
# Settings of the server's model that one conversation in a terminal has no use for.
_SERVER_ONLY = {
    "voices": "clients choose among several voices",
    "voices_dir": "clients upload voices",
    "name": "clients ask for the model's name",
    "reply_pool_s": "many replies share a pool",
    "gpu_memory_gib": "many conversations share the memory",
}
COMMANDS = {path: one for path, one in ALL.items() if not hasattr(one, "commands")}


@pytest.mark.parametrize("path", COMMANDS)
def test_every_result_can_be_json(path: str) -> None:
    """Each command that prints a result has --json; the others are listed with the reason."""
    options = {name for one in COMMANDS[path].params for name in one.opts}
    assert ("--json" in options) != (path in _NO_RESULT)


def test_chat_has_the_settings_of_the_model() -> None:
    """What can be set for the model of a server can be set for `chat`, under the same name."""
    options = {name for one in COMMANDS["mosslive chat"].params for name in one.opts}
    names = [one.name for one in fields(ServerSettings)]
    of_the_model = set(names[: names.index("host")]) - _SERVER_ONLY.keys()
    assert {f"--{name.replace('_', '-')}" for name in of_the_model} <= options


@pytest.mark.parametrize("path", ALL)
def test_flags_have_no_type(path: str) -> None:
    """The help shows flags without a type, since they take no value."""
    words = path.split()[1:]
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "120"}).output
    assert "--help" in shown
    assert "<bool>" not in shown


def test_synth_json(tmp_path: Path) -> None:
    """`synth --json` prints one JSON document with the folders that it wrote."""
    result = CliRunner().invoke(app, ["synth", str(tmp_path), "--only", "lm", "--json"])
    document: dict[str, Any] = json.loads(result.stdout)
    assert document["written"] == [str(tmp_path / "lm")]


@pytest.mark.parametrize(
    ("words", "completed"),
    [("mosslive ser", "serve"), ("mosslive serve --max-sessions-p", "--max-sessions-per-key")],
)
def test_shell_completion(words: str, completed: str) -> None:
    """A shell that asks for the rest of a word gets it, without loading PyTorch."""
    asked = {"_MOSSLIVE_COMPLETE": "complete_bash", "COMP_WORDS": words}
    place = {"COMP_CWORD": str(len(words.split()) - 1)}
    program = (
        "import sys; sys.argv = ['mosslive']\n"
        "from mosslive.cli import main\n"
        "try: main()\n"
        "finally: assert 'torch' not in sys.modules"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, env=os.environ | asked | place, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [completed]
