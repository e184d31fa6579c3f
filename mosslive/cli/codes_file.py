"""Reads codes from a file or standard input, for several sub-commands."""

import json
import sys
from pathlib import Path

from mosslive.errors import MossliveError


def read_codes(name: str) -> list[int]:
    """Reads a JSON list, an object with a list `codes` (the format of `--json`), or integers
    separated by white space. `-` is standard input."""
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
            raise ValueError("not a list")
    except (ValueError, KeyError, RecursionError):
        raise MossliveError(
            f"codes from {name}: not readable as codes; allowed: a JSON list of integers, an "
            'object with a list "codes", or integers separated by spaces'
        ) from None
    if not found:
        raise MossliveError(f"codes from {name}: the list is empty; allowed: at least one code")
    return list(found)
