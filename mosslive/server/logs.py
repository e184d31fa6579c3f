"""Logging set-up: one JSON object per line on standard error.

Texts of users and replies are not logged unless `log_content` is set; sound and keys never are.
Loggers are usable on any thread. Does not know what is logged.
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
    """Adds the same fields to every record and keeps the record's own fields. The standard adapter
    drops those before Python 3.13."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **kwargs.get("extra", {})}
        return msg, kwargs


def set_up(level: str, stream: TextIO | None = None) -> None:
    """Configures logging of the process; `serve` calls it once."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("mosslive", "uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper())
    # asyncio reports failed tasks and writes to closed sockets; at level info it counts time.
    logging.getLogger("asyncio").setLevel(max(logging.getLogger("asyncio").level, logging.WARNING))
    # uvicorn logs the full URL of each WebSocket at level info; clients choose that text.
    quiet = logging.getLogger("uvicorn")
    quiet.setLevel(max(quiet.level, logging.WARNING))
    logging.getLogger("uvicorn.access").handlers = []
    logging.getLogger("uvicorn.access").propagate = False
