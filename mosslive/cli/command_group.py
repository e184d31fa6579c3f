"""A typer application whose help shows flags without a type: `--json`, not `--json <bool>`.

A flag takes no value, so a type beside it misleads. Used by every command and group. Does not know
the commands.
"""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class CommandGroup(typer.Typer):
    def __init__(self, help_text: str, **options: Any) -> None:
        super().__init__(help=help_text, cls=_Group, no_args_is_help=True, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        return super().command(name, cls=_Command, **options)


def _without_types(parameters: list[Any]) -> list[Any]:
    """`Any`: some versions of typer contain their own copy of click."""
    for one in parameters:
        if getattr(one, "is_flag", False):
            one.metavar = ""
    return parameters
