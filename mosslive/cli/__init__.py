"""The `mosslive` command: one file per sub-command, which only parses arguments and calls."""

import sys
from io import TextIOWrapper

from mosslive.cli.app import app
from mosslive.errors import MossliveError


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot show is replaced; it does not end the command.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except (MossliveError, OSError) as error:  # bad input, or an error of the file system
        print(f"mosslive: {error}", file=sys.stderr)
        sys.exit(1)
    except ModuleNotFoundError as error:
        hint = (
            "install the extra you need: pip install 'mosslive[voice]' for audio, "
            "'mosslive[talk]' for live talk, 'mosslive[server]' for the server, "
            "'mosslive[bench]' for benchmarks; mosslive doctor lists what is missing"
        )
        print(f"mosslive: {error.name} is not installed; {hint}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
