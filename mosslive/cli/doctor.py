"""`mosslive doctor`: says what is missing on this machine, and how to get it."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from mosslive.cli.console import out, print_json
from mosslive.cli.voice import JsonOption
from mosslive.server.settings import ServerSettings
from mosslive.version import __version__

_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}


def doctor(
    port: Annotated[
        int, typer.Option(min=1, max=65_535, help="Check whether the server could use this port.")
    ] = ServerSettings().port,
    as_json: JsonOption = False,
) -> None:
    """Check versions, device, memory, port, sound card and packages, and how to mend what is wrong.

    Exits with status 1 if something is broken that every command needs.
    """
    from mosslive.cli.doctor_machine import machine_checks
    from mosslive.cli.doctor_packages import package_checks

    checks = [*package_checks(), *machine_checks(port)]
    healthy = all(one.state != "error" for one in checks)
    if as_json:
        document = {"version": __version__, "healthy": healthy}
        print_json(document | {"checks": [asdict(one) for one in checks]})
    else:
        out.print(f"mosslive {__version__}", markup=False)
        for one in checks:
            state = Text(f"{one.state:<8}", style=_COLOURS[one.state])
            out.print(state + Text(f"{one.name:<17}{one.detail}"), soft_wrap=True)
            if one.fix:
                out.print(Text(f"{'':<8}{'':<17}→ {one.fix}"), soft_wrap=True)
    if not healthy:
        raise typer.Exit(1)
