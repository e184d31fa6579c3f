"""Codes from a file or standard input, as several sub-commands take them."""

import json
import sys
from pathlib import Path

from mosslive.errors import MossliveError


def read_codes(name: str) -> list[int]:
    """A JSON list, an object with one named `codes` (as `--json` prints it), or numbers and white
    space; `-` is standard input."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise MossliveError(f"codes from {name}: not readable: {error}") from None
    try:
        is_json = text.lstrip().startswith(("[", "{"))
        found = json.loads(text) if is_json else [*map(int, text.split())]
        if isinstance(found, dict):
            found = found["codes"]
        if not isinstance(found, list):
            raise ValueError("no list")
    except (ValueError, KeyError, RecursionError):
        raise MossliveError(
            f"codes from {name}: allowed: a JSON list of integers, an object with such a list as "
            '"codes", or integers and spaces'
        ) from None
    if not found:
        raise MossliveError(f"codes from {name}: there are none; at least one is needed")
    return list(found)
