"""The `mosslive` command: one file per sub-command, each only parses and calls."""

import sys
from io import TextIOWrapper

from mosslive.cli.app import app
from mosslive.errors import MossliveError


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows a mark instead of ending the command.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except (MossliveError, OSError) as error:  # the user's input, or the user's disk
        print(f"mosslive: {error}", file=sys.stderr)
        sys.exit(1)
    except ModuleNotFoundError as error:
        hint = (
            "sound needs pip install 'mosslive[voice]', live talk 'mosslive[talk]', "
            "the server 'mosslive[server]', benchmarks 'mosslive[bench]'"
        )
        print(f"mosslive: {error.name} is not installed; {hint}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
