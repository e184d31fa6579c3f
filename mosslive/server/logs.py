"""Logs as one JSON object per line, for people with tools and people with eyes.

What users say is not among them: endpoints log it only where the settings ask for it.
"""

import json
import logging
import sys
import traceback
from collections.abc import MutableMapping
from typing import Any, TextIO

_STANDARD = set(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        document |= {k: v for k, v in vars(record).items() if k not in _STANDARD}
        if record.exc_info and record.exc_info[1]:
            document["error"] = "".join(traceback.format_exception(record.exc_info[1]))
        return json.dumps(document, default=str, ensure_ascii=False)


class Named(logging.LoggerAdapter[logging.Logger]):
    """Lines that all carry the same fields, besides their own: the library's adapter would drop
    those before Python 3.13."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **kwargs.get("extra", {})}
        return msg, kwargs


def set_up(level: str, stream: TextIO | None = None) -> None:
    """Once, by the process that serves."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("mosslive", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper())
    # What it tells of every socket holds the whole address, which is the client's to choose.
    quiet = logging.getLogger("uvicorn")
    quiet.setLevel(max(quiet.level, logging.WARNING))
    logging.getLogger("uvicorn.access").handlers = []
    logging.getLogger("uvicorn.access").propagate = False
