"""The list of sub-commands."""

from typing import Annotated

import typer

from mosslive.cli.bench import bench
from mosslive.cli.build import build
from mosslive.cli.chat import chat
from mosslive.cli.codec import codec
from mosslive.cli.command_group import CommandGroup
from mosslive.cli.demo import demo
from mosslive.cli.doctor import doctor
from mosslive.cli.generate import generate
from mosslive.cli.inspect import inspect
from mosslive.cli.pull import pull
from mosslive.cli.serve import serve
from mosslive.cli.synth import synth
from mosslive.cli.verify import verify
from mosslive.cli.voice import voice
from mosslive.version import __version__

app = CommandGroup(
    "Run MOSS-Speech, an open speech-to-speech language model, in live conversations.",
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"mosslive {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


app.command()(build)
app.command()(chat)
app.command()(demo)
app.command()(doctor)
app.command()(generate)
app.command()(inspect)
app.command()(pull)
app.command()(serve)
app.command()(synth)
app.command()(verify)
app.add_typer(bench, name="bench")
app.add_typer(codec, name="codec")
app.add_typer(voice, name="voice")
