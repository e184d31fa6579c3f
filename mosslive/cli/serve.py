"""`mosslive serve`: one flag per field of `ServerSettings`."""

import inspect
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from mosslive.cli.models import once, served
from mosslive.server.settings import CONFIG_VARIABLE, ServerSettings, kind_of, read_settings

_MODEL_ARGUMENT = "model_argument"


def _run(config: Path | None, **flags: Any) -> None:
    """Serve a model: OpenAI Realtime over WebSocket and WebRTC, HTTP endpoints, and a web page.

    Each setting can be a flag, a MOSSLIVE_* variable or a name in a TOML file (--config). Flags
    override variables, and variables override the file.
    """
    flags["model"] = once(flags.pop(_MODEL_ARGUMENT), flags["model"])
    settings = read_settings(flags, os.environ, config)
    from mosslive.server.run import serve as run_server
    from mosslive.talk.cpu_threads import share_cpu_threads

    def prepare(given: ServerSettings) -> ServerSettings:
        found = served(given)
        share_cpu_threads(found.device)
        return found

    run_server(settings, prepare)


def _command() -> Callable[..., None]:
    """`_run` with one option per setting. Names, help and defaults come from `ServerSettings`."""

    def serve(**given: Any) -> None:
        _run(**given)

    model = typer.Argument(metavar="MODEL", help="Serve this folder or repo id, as --model.")
    parameters = [
        inspect.Parameter(
            _MODEL_ARGUMENT,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[Path | None, model],
        )
    ]
    parameters += [
        _parameter("config", Path, "Read settings from this TOML file.", CONFIG_VARIABLE)
    ]
    for one in fields(ServerSettings):
        kind, _ = kind_of(one)
        default = "" if one.default in (None, (), False) else f" (default: {one.default})"
        flag_kind = str if kind is tuple else kind
        says = one.metadata["help"] + default
        negative = kind is bool and one.default is not False  # false differs from not given
        parameters.append(_parameter(one.name, flag_kind, says, negative=negative))
    serve.__doc__ = _run.__doc__
    serve.__annotations__ = {one.name: one.annotation for one in parameters}
    vars(serve)["__signature__"] = inspect.Signature(parameters)
    return serve


def _parameter(
    name: str, kind: type, text: str, variable: str | None = None, negative: bool = False
) -> inspect.Parameter:
    flag = name.replace("_", "-")
    names = f"--{flag}/--no-{flag}" if negative else f"--{flag}"
    option = typer.Option(names, help=text, envvar=variable)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


serve = _command()
