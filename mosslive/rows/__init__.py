"""Rows: ids, tokenizer, prompt format, mode machine, and rows back to text and codes."""

from mosslive.rows.grid import (
    CHANNELS,
    Channel,
    Row,
    RowIds,
    RowsError,
    checked_codes,
    checked_rows,
)
from mosslive.rows.mode import Mode, compose, ends_reply, first_mode, next_mode
from mosslive.rows.output import Output, TextStream, read_rows, read_rows_as_processor
from mosslive.rows.prompt import (
    DRIVER_SYSTEM,
    READ_ALOUD_SYSTEM,
    WRITE_DOWN_SYSTEM,
    Fallback,
    PromptFormat,
    ReplyKind,
    Role,
    Turn,
    check_reply,
)
from mosslive.rows.tokenizer import END_OF_TEXT, TextTokenizer, TokenizerError

__all__ = [
    "CHANNELS",
    "DRIVER_SYSTEM",
    "END_OF_TEXT",
    "READ_ALOUD_SYSTEM",
    "WRITE_DOWN_SYSTEM",
    "Channel",
    "Fallback",
    "Mode",
    "Output",
    "PromptFormat",
    "ReplyKind",
    "Role",
    "Row",
    "RowIds",
    "RowsError",
    "TextStream",
    "TextTokenizer",
    "TokenizerError",
    "Turn",
    "check_reply",
    "checked_codes",
    "checked_rows",
    "compose",
    "ends_reply",
    "first_mode",
    "next_mode",
    "read_rows",
    "read_rows_as_processor",
]
