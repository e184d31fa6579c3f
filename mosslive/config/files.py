"""Reads JSON settings files and reports errors in the files themselves."""

import json
import sys
from pathlib import Path
from typing import Any

from mosslive.errors import MossliveError


class ConfigError(MossliveError, ValueError):
    """A setting is missing, malformed, or requests something this package does not compute."""


def refuse(field: str, value: object, allowed: str) -> ConfigError:
    """Returns the error for a bad value: field, value and what is allowed."""
    return ConfigError(f"{field} is {value!r}; allowed: {allowed}")


def is_positive_number(value: object) -> bool:
    """True for a finite real number above zero. NaN and integers beyond float range fail."""
    real = isinstance(value, int | float) and not isinstance(value, bool)
    return real and 0 < value <= sys.float_info.max  # type: ignore[operator]


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON object hook: raises ValueError for a repeated key, instead of keeping the last one."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)} appears twice")
    return found


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object. Every error names the file."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=each_once)
    except FileNotFoundError:
        if not path.parent.exists():
            raise ConfigError(f"{path.parent}: no such folder") from None
        raise ConfigError(f"{path}: no such file; a model folder needs {path.name}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not readable as JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: contains a {type(raw).__name__}; allowed: a JSON object")
    return raw
