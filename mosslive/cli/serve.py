"""`mosslive serve`: one flag per field of `ServerSettings`."""

import inspect
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from mosslive.cli.models import once, served
from mosslive.cli.setting_options import setting_names, setting_option, setting_type
from mosslive.server import logs
from mosslive.server.environment import CONFIG_VARIABLE as _CONFIG
from mosslive.server.settings import ServerSettings, read_settings

_MODEL_ARGUMENT = "model_argument"

_log = logging.getLogger("mosslive.server")


def _run(config: Path | None, **flags: Any) -> None:
    """Serve a model: OpenAI Realtime over WebSocket and WebRTC, HTTP endpoints, and a web page.

    Each setting can be a flag, a MOSSLIVE_* variable or a name in a TOML file (--config). Flags
    override variables, and variables override the file.
    """
    warnings: list[str] = []
    flags["model"] = once(flags.pop(_MODEL_ARGUMENT), flags["model"])
    settings = read_settings(flags, os.environ, config, warnings.append)
    # Before anything else can fail: a misspelt variable may be the reason.
    logs.set_up(logs.log_settings(settings.log_level, settings.log_format))
    for warning in warnings:
        _log.warning("%s", warning)
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
    config = typer.Option("--config", help="Read settings from this TOML file.", envvar=_CONFIG)
    parameters = [_parameter(_MODEL_ARGUMENT, Path | None, model)]
    parameters.append(_parameter("config", Path | None, config))
    for name in setting_names():
        parameters.append(_parameter(name, setting_type(name), setting_option(name)))
    serve.__doc__ = _run.__doc__
    serve.__annotations__ = {one.name: one.annotation for one in parameters}
    vars(serve)["__signature__"] = inspect.Signature(parameters)
    return serve


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


serve = _command()
