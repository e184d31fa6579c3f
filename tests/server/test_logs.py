"""The log: lines for people on a terminal, JSON elsewhere."""

import io
import json
import logging
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mosslive.server.logs import JsonLines, TextLines, log_settings


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def record(message: str, level: int = logging.INFO, **fields: Any) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "mosslive.server", "msg": message, "levelno": level})
    made.levelname = logging.getLevelName(level)
    vars(made).update(fields)
    return made


@pytest.mark.parametrize(
    ("asked", "stream", "form"),
    [
        ("auto", Terminal(), "text"),
        ("auto", io.StringIO(), "json"),
        ("json", Terminal(), "json"),
        ("text", io.StringIO(), "text"),
    ],
)
def test_the_stream_chooses_the_format(asked: str, stream: io.StringIO, form: str) -> None:
    """auto is text on a terminal and JSON elsewhere; text and json are as asked."""
    assert log_settings("info", asked, stream).form == form


def test_a_line_for_people() -> None:
    """A line has time, level, message and fields; values with spaces are quoted."""
    line = TextLines().format(record("session ends", session="s1", code=1000, reason="the end"))
    assert re.fullmatch(
        r'\d\d:\d\d:\d\d info    session ends  session=s1 code=1000 reason="the end"', line
    )


def test_a_turn_is_one_short_line() -> None:
    """Of the many numbers of a turn people get those that they read; JSON has all."""
    timing = {"turn": 2, "ttfa_s": 0.34567, "rtf": None, "stages_s": {"send": 1}, "rows": 9}
    turn = record("turn", session="s1", timing=timing)
    assert TextLines().format(turn).endswith("turn  session=s1 turn=2 ttfa_s=0.346")
    assert json.loads(JsonLines().format(turn))["timing"] == timing


def test_errors_have_a_colour_and_a_traceback() -> None:
    """On a terminal an error is red; its traceback follows."""
    try:
        raise ValueError("no")
    except ValueError as error:
        failed = record("it failed", logging.ERROR, exc_info=(ValueError, error, None))
    shown = TextLines(colour=True).format(failed)
    assert "\033[31merror  \033[0m it failed\n" in shown
    assert shown.endswith("ValueError: no")
    assert "\033" not in TextLines().format(failed)


@given(st.text())
def test_texts_of_clients_stay_on_their_line_of_a_traceback(text: str) -> None:
    """A message of an error is one line of its traceback, without control characters; so is that of
    its cause. The lines of Python stay lines."""

    def chain(message: str) -> logging.LogRecord:
        try:
            try:
                raise KeyError("first")
            except KeyError as error:
                raise ValueError(message) from error
        except ValueError as error:
            try:
                raise RuntimeError(message) from error
            except RuntimeError as last:
                return record("failed", logging.ERROR, exc_info=(RuntimeError, last, None))

    lines = TextLines().format(chain(f"x{text}")).split("\n")
    plain = TextLines().format(chain("x")).split("\n")
    assert all(line.isprintable() for line in lines)
    assert len(lines) == len(plain)
    assert [line for line in lines if line.startswith("  File")] == [
        line for line in plain if line.startswith("  File")
    ]
    as_json = JsonLines().format(chain(f"x{text}"))
    assert as_json.isprintable()
    assert f"ValueError: x{text}" in json.loads(as_json)["error"]


def test_a_message_cannot_forge_a_line() -> None:
    """Line breaks and escape sequences in an error's message are shown as such."""
    error = ValueError("x\nfake\x1b[2J\x9b")
    failed = record("failed", logging.ERROR, exc_info=(ValueError, error, None))
    assert TextLines().format(failed).endswith("\nValueError: x\\nfake\\x1b[2J\\x9b")
    assert "\\u009b" in JsonLines().format(failed)


@given(st.text(), st.text())
def test_texts_of_clients_stay_on_their_line(message: str, value: str) -> None:
    """Neither format lets a text begin a new line or send a control character."""
    made = record("%s", field=value)
    made.args = (message,)
    assert TextLines().format(made).isprintable()
    assert JsonLines().format(made).isprintable()
