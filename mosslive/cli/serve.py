"""`mosslive serve`: flags for every setting of the server, from the settings themselves."""

import inspect
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from mosslive.server.settings import CONFIG_VARIABLE, ServerSettings, kind_of, read_settings


def _run(config: Path | None, **flags: Any) -> None:
    """Serve the model: Realtime over WebSocket and WebRTC, plain HTTP, and a web page.

    Each flag is also a MOSSLIVE_* variable and a name in a TOML file (--config); a flag beats the
    variable, which beats the file.
    """
    settings = read_settings(flags, os.environ, config)
    from mosslive.server.run import serve as run_server
    from mosslive.talk.cores import share_cores

    share_cores(settings.device)
    run_server(settings)


def _command() -> Callable[..., None]:
    """`_run` with one option per setting: names, help and defaults stand in one place only."""

    def serve(**given: Any) -> None:
        _run(**given)

    parameters = [_parameter("config", Path, "A TOML file with settings.", CONFIG_VARIABLE)]
    for one in fields(ServerSettings):
        kind, _ = kind_of(one)
        default = "" if one.default in (None, (), False) else f" (default: {one.default})"
        flag_kind = str if kind is tuple else kind
        says = one.metadata["help"] + default
        negative = kind is bool and one.default is None  # false differs from not given
        parameters.append(_parameter(one.name, flag_kind, says, negative=negative))
    serve.__doc__ = _run.__doc__
    serve.__annotations__ = {one.name: one.annotation for one in parameters}
    vars(serve)["__signature__"] = inspect.Signature(parameters)
    return serve


def _parameter(
    name: str, kind: type, says: str, variable: str | None = None, negative: bool = False
) -> inspect.Parameter:
    flag = name.replace("_", "-")
    names = f"--{flag}/--no-{flag}" if negative else f"--{flag}"
    option = typer.Option(names, help=says, envvar=variable)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


serve = _command()
