"""Logging set-up: lines for people on a terminal, one JSON object per line elsewhere.

Texts of users and replies are not logged unless `log_content` is set; sound and keys never are.
Invariant of both formats: what a client sends cannot begin a new line or control the terminal.
Loggers are usable on any thread.
"""

import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, TextIO

_STANDARD = set(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}
# Of records with many fields, those that people read. JSON lines have all.
_BRIEF = {
    "turn": ("session", "turn", "reply", "ttfa_s", "audio_s", "rtf", "underruns"),
    "listening": ("page",),
    "ready": ("model", "context_s", "sessions", "requests", "conversations", "limited_by"),
}
_COLOURS = {"warning": "33", "error": "31", "critical": "31"}  # of ANSI terminals


@dataclass(frozen=True)
class LogSettings:
    level: str = "info"
    form: str = "json"  # or "text"


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        document |= _fields(record)
        if record.exc_info and record.exc_info[1]:
            document["error"] = "".join(traceback.format_exception(record.exc_info[1]))
        line = json.dumps(document, default=str, ensure_ascii=False)
        # JSON itself escapes the control characters of ASCII only.
        return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in line)


class TextLines(logging.Formatter):
    """`16:20:03 info    session begins  session=sess_1 beta=False`"""

    def __init__(self, colour: bool = False) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        shown = f"{level:<7}"
        if self._colour and level in _COLOURS:
            shown = f"\033[{_COLOURS[level]}m{shown}\033[0m"
        message = _printable(record.getMessage())
        if not record.name.startswith("mosslive"):
            message = f"{record.name}: {message}"
        line = f"{self.formatTime(record, '%H:%M:%S')} {shown} {message}"
        if fields := " ".join(f"{name}={_text(value)}" for name, value in _brief(record)):
            line = f"{line}  {fields}"
        if record.exc_info and record.exc_info[1]:
            line += "\n" + _traceback(record.exc_info[1])
        return line


class Named(logging.LoggerAdapter[logging.Logger]):
    """Adds the same fields to every record and keeps the record's own fields. The standard adapter
    drops those before Python 3.13."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **kwargs.get("extra", {})}
        return msg, kwargs


def log_settings(level: str, form: str, stream: TextIO | None = None) -> LogSettings:
    """`form`: "text", "json", or "auto": text if the stream, standard error, is a terminal."""
    if form == "auto":
        form = "text" if (stream or sys.stderr).isatty() else "json"
    return LogSettings(level, form)


def set_up(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Configures logging of the process; `serve` and each front call it once."""
    target = stream or sys.stderr
    handler = logging.StreamHandler(target)
    colour = target.isatty() and "NO_COLOR" not in os.environ
    handler.setFormatter(TextLines(colour) if settings.form == "text" else JsonLines())
    for name in ("mosslive", "uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(settings.level.upper())
    # asyncio reports failed tasks and writes to closed sockets; at level info it counts time.
    logging.getLogger("asyncio").setLevel(max(logging.getLogger("asyncio").level, logging.WARNING))
    # uvicorn logs the full URL of each WebSocket at level info; clients choose that text.
    quiet = logging.getLogger("uvicorn")
    quiet.setLevel(max(quiet.level, logging.WARNING))
    logging.getLogger("uvicorn.access").handlers = []
    logging.getLogger("uvicorn.access").propagate = False


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _brief(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    """The fields and the members of fields that are dictionaries, without deeper ones."""
    flat: dict[str, Any] = {}
    for name, value in _fields(record).items():
        flat |= value if isinstance(value, dict) else {name: value}
    for name in _BRIEF.get(record.getMessage(), flat):
        if flat.get(name) is not None and not isinstance(flat[name], dict | list | tuple):
            yield name, flat[name]


def _text(value: object) -> str:
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return json.dumps(text, ensure_ascii=not text.isprintable()) if _needs_quotes(text) else text


def _needs_quotes(text: str) -> bool:
    return not text or " " in text or '"' in text or not text.isprintable()


def _traceback(error: BaseException) -> str:
    """Python's lines of the traceback; a message, which may quote a client, is one line."""
    lines: list[str] = []
    for part in traceback.format_exception(error):
        # Only frames and the sentence between two errors, which begins with a line break, have
        # several lines of Python's own.
        own = part.lstrip(" |").startswith(('File "', "\n"))
        text = part.removesuffix("\n")
        lines += map(_printable, text.split("\n") if own else [text])
    return "\n".join(lines)


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
