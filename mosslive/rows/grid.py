"""Rows: the only thing that crosses between the speech side and the language model.

A row is (text id, audio id), one position. Which of the two counts is told by the text id alone:
the modality pad means "this row is speech". Knows the ids, not the tokenizer and not the model.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from mosslive.config import ModelConfig
from mosslive.errors import MossliveError

Row = tuple[int, int]
Channel = Literal["text", "audio"]  # also the name of the tail that feeds it
CHANNELS: tuple[Channel, Channel] = ("text", "audio")  # in the order of a row


class RowsError(MossliveError, ValueError):
    """Rows, turns or codes that do not fit this model."""


@dataclass(frozen=True)
class RowIds:
    """The ids with a meaning, and the sizes that bound all others."""

    modality_pad: int  # text id of every speech row
    sosp: int  # text id that opens speech
    eosp: int  # audio id that closes speech; ids below it are codes, ids above are never legal
    audio_pad: int  # audio id of every text row; may be a legal code as well
    stops: frozenset[int]  # text ids that end a reply
    text_size: int
    audio_size: int

    @classmethod
    def from_config(cls, config: ModelConfig, second_stop: int | None = None) -> "RowIds":
        """`second_stop`: the tokenizer's end-of-text id, used where the config names no pad id."""
        second = config.pad_token_id if config.pad_token_id is not None else second_stop
        return cls(
            modality_pad=config.modality_pad_token_id,
            sosp=config.sosp_token_id,
            eosp=config.eosp_token_id,
            audio_pad=config.audio_pad_token_id,
            stops=frozenset({config.eos_token_id} | ({second} if second is not None else set())),
            text_size=config.vocab_size,
            audio_size=config.audio_vocab_size,
        )

    def is_speech(self, row: Row) -> bool:
        """True for codes and for the end of speech: rows embedded by their audio id."""
        return row[0] == self.modality_pad


def checked_rows(rows: Any, ids: RowIds, longest: int) -> list[Row]:
    """Rows given as a tensor, array or list of pairs [n, 2], as tuples; refuses what cannot be."""
    listed = rows.tolist() if hasattr(rows, "tolist") else list(rows)
    if not listed:
        raise RowsError("rows is empty; at least one row is needed")
    if len(listed) > longest:
        raise RowsError(f"{len(listed)} rows; allowed: at most {longest} (the context)")
    sizes = (ids.text_size, ids.audio_size)
    for index, row in enumerate(listed):
        if not isinstance(row, list | tuple) or len(row) != 2:
            raise RowsError(f"row {index} is {row!r}; allowed: a pair (text id, audio id)")
        for channel, value, size in zip(CHANNELS, row, sizes, strict=True):
            if not _is_int(value) or not 0 <= value < size:
                raise RowsError(f"row {index}: {channel} id is {value!r}; allowed: 0..{size - 1}")
    return [(int(text), int(audio)) for text, audio in listed]


def checked_codes(codes: Iterable[int], ids: RowIds, where: str) -> list[int]:
    listed = list(codes)
    for index, code in enumerate(listed):
        if not _is_int(code) or not 0 <= code < ids.eosp:
            raise RowsError(f"{where}: code {index} is {code!r}; allowed: 0..{ids.eosp - 1}")
    return [int(code) for code in listed]


def _is_int(value: object) -> bool:
    # numpy integers pass through __index__; bool is an int only by accident of the language.
    return hasattr(value, "__index__") and not isinstance(value, bool)
