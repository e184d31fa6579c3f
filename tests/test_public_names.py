"""The public names: Python names, commands, arguments and options. None disappears by accident.

`tests/public_names.txt` lists them, one per line, sorted. To add or remove a name on purpose, edit
the file; a failing test prints the lines that differ.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import mosslive
from mosslive.cli.app import app

LISTED = Path(__file__).with_name("public_names.txt")


def commands(command: Any, path: str = "mosslive") -> Iterator[tuple[str, Any]]:
    """(path, command) of a command and all its sub-commands. `Any`: some versions of typer contain
    their own copy of click."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{path} {name}")


ALL = dict(commands(typer.main.get_command(app)))


def parameter_name(parameter: Any) -> str:
    """`--greedy/--sample` of an option, `OUT` of an argument."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name)
    return "/".join([*parameter.opts, *parameter.secondary_opts])


def test_names_are_those_listed() -> None:
    """`mosslive.__all__` and all commands, arguments and options equal the stored list."""
    found = {f"import {name}" for name in mosslive.__all__} | ALL.keys()
    for path, command in ALL.items():
        found |= {f"{path} {parameter_name(parameter)}" for parameter in command.params}
    listed = LISTED.read_text(encoding="utf-8").splitlines()
    assert listed == sorted(listed), f"sort {LISTED.name}"
    difference = {
        "new": sorted(found - set(listed)),
        "missing": sorted(set(listed) - found),
    }
    assert found == set(listed), f"update {LISTED.name}: {difference}"


@pytest.mark.parametrize("path", ALL)
def test_every_option_has_a_help_text(path: str) -> None:
    """Each command, argument and option has a help text."""
    command = ALL[path]
    without = [parameter_name(one) for one in command.params if not one.help]
    assert command.help
    assert not without
