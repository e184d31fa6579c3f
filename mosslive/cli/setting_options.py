"""Options that are settings of the server, for `serve` and for other commands that have them too.

Names, help and defaults come from `ServerSettings`, so that a setting means the same in all of
them. Does not know the commands.
"""

from dataclasses import fields
from typing import Any

import typer

from mosslive.server.settings import ServerSettings, kind_of

_SETTINGS = {one.name: one for one in fields(ServerSettings)}


def setting_option(name: str, *more: str) -> Any:
    """The option of a setting; its value is None if it is not given. `more`: further names."""
    one = _SETTINGS[name]
    flag = name.replace("_", "-")
    kind, _ = kind_of(one)
    # A negative form only where false differs from not given.
    negative = kind is bool and one.default is not False
    default = "" if one.default in (None, (), False) else f" (default: {one.default})"
    names = f"--{flag}/--no-{flag}" if negative else f"--{flag}"
    return typer.Option(names, *more, help=one.metadata["help"] + default)


def setting_type(name: str) -> Any:
    """The type of the option: a list is one text, separated by commas."""
    kind, _ = kind_of(_SETTINGS[name])
    return (str if kind is tuple else kind) | None


def setting_names() -> list[str]:
    return [*_SETTINGS]


def check_settings(**values: Any) -> None:
    """Raises `ConfigError` for a value that the server would refuse."""
    ServerSettings(**{name: value for name, value in values.items() if value is not None})
