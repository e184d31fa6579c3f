"""The `mosslive` command: in the test's own process, and the installed script.

A new process takes seconds to import PyTorch, so most tests call `main` itself, which turns errors
into one sentence and an exit code.
"""

import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from unittest.mock import patch

from mosslive.cli import main


def console(*arguments: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `main` with these arguments and streams of its own."""
    command = ["mosslive", *map(str, arguments)]
    out, err = (TextIOWrapper(BytesIO(), encoding="utf-8") for _ in range(2))
    code: object = 0
    with (
        patch.object(sys, "argv", command),
        patch.object(sys, "stdin", StringIO(stdin)),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    assert isinstance(code, int)
    return subprocess.CompletedProcess(command, code, *texts)


def installed(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The installed console script in a process of its own, with real streams and exit codes."""
    command = [Path(sys.executable).with_name("mosslive"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
