"""Reads fields of client events: returns a value of the right type or raises `ApiError`.

The error has the name of the field, its value and what is allowed. In all functions `where` is the
path of the object `raw`, for the error, and `default` is returned if the field is missing or null;
without a default a missing field raises. Pure functions over JSON, for every thread. Knows no
event.
"""

import reprlib
from typing import Any

from mosslive.server.api_errors import ApiError

MISSING = object()


def text(raw: dict[str, Any], name: str, where: str = "", default: Any = MISSING) -> Any:
    return _typed(raw, name, where, default, str, "a string")


def whole(
    raw: dict[str, Any],
    name: str,
    least: int,
    most: int,
    where: str = "",
    default: Any = MISSING,
) -> Any:
    value = _typed(raw, name, where, default, int, f"a whole number, {least} to {most}")
    if value is not default and not least <= value <= most:
        raise bad(where + name, value, f"{least} to {most}")
    return value


def number(
    raw: dict[str, Any],
    name: str,
    least: float,
    most: float,
    where: str = "",
    default: Any = MISSING,
) -> Any:
    value = raw.get(name, default)
    if value is MISSING:
        raise missing(where + name)
    if value is default or value is None:
        return default
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not real or not least <= value <= most:
        raise bad(where + name, value, f"{least} to {most}")
    return float(value)


def flag(raw: dict[str, Any], name: str, where: str, default: bool) -> bool:
    return bool(_typed(raw, name, where, default, bool, "true or false"))


def record(raw: dict[str, Any], name: str, where: str = "", default: Any = MISSING) -> Any:
    return _typed(raw, name, where, default, dict, "an object")


def many(raw: dict[str, Any], name: str, where: str = "", default: Any = MISSING) -> Any:
    return _typed(raw, name, where, default, list, "a list")


def choice(value: object, allowed: tuple[str, ...], where: str) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise bad(where, value, ", ".join(allowed))
    return value


def bad(where: str, value: object, allowed: str) -> ApiError:
    """The error for a value that is not allowed; the caller raises it."""
    # `reprlib` reads only the first elements: a client may send millions of them.
    shown = repr(value[:100]) if isinstance(value, str) else reprlib.repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return ApiError(f"{where} is {shown}; allowed: {allowed}", "invalid_value", where)


def missing(where: str) -> ApiError:
    """The error for a missing field; the caller raises it."""
    return ApiError(f"{where} is missing", "missing_required_parameter", where)


def _typed(
    raw: dict[str, Any], name: str, where: str, default: Any, kind: type, allowed: str
) -> Any:
    value = raw.get(name, MISSING)
    if value is None and default is not MISSING:
        return default
    if value is MISSING:
        if default is MISSING:
            raise missing(where + name)
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise bad(where + name, value, allowed)
    return value
