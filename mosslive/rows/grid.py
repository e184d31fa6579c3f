"""Rows: the interface between the codec and the language model.

A row is (text id, audio id), one position of a sequence. The text id alone decides which of the two
counts: the modality pad means "this row is speech". Knows the ids, not the tokenizer or the model.
"""

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from mosslive.config import ModelConfig
from mosslive.errors import MossliveError

Row = tuple[int, int]
Channel = Literal["text", "audio"]  # also the name of the tail that predicts it
CHANNELS: tuple[Channel, Channel] = ("text", "audio")  # in the order of a row


class RowsError(MossliveError, ValueError):
    """Rows, turns or codes do not fit this model."""


@dataclass(frozen=True)
class RowIds:
    """The special ids, and the sizes of both vocabularies."""

    modality_pad: int  # text id of every speech row
    sosp: int  # text id that opens speech
    eosp: int  # audio id that closes speech; ids below it are codes, ids above are never legal
    audio_pad: int  # audio id of every text row; may be a legal code as well
    stops: frozenset[int]  # text ids that end a reply
    text_size: int
    audio_size: int

    @classmethod
    def from_config(cls, config: ModelConfig, end_of_text: int | None = None) -> "RowIds":
        """`end_of_text`: the tokenizer's id of that token, the second id that ends a reply. If the
        tokenizer has none, the config's pad id is used, as in the published model."""
        second = end_of_text if end_of_text is not None else config.pad_token_id
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
        """True for codes and for the end of speech: these rows are embedded by their audio id."""
        return row[0] == self.modality_pad


def checked_rows(rows: Any, ids: RowIds, longest: int) -> list[Row]:
    """A tensor, array or list of pairs [n, 2] → tuples. Raises `RowsError` for illegal rows."""
    listed = _listed(rows, "rows", "a tensor, array or list of pairs")
    if not listed:
        raise RowsError("rows is empty; allowed: at least one row")
    if len(listed) > longest:
        raise RowsError(f"{len(listed)} rows; allowed: at most {longest} (the context)")
    sizes = (ids.text_size, ids.audio_size)
    if _are_valid(listed, sizes):
        return listed
    for index, row in enumerate(listed):
        if not isinstance(row, list | tuple) or len(row) != 2:
            raise RowsError(f"row {index} is {row!r}; allowed: a pair (text id, audio id)")
        for channel, value, size in zip(CHANNELS, row, sizes, strict=True):
            if not 0 <= _as_int(value) < size:
                raise RowsError(f"row {index}: {channel} id is {value!r}; allowed: 0..{size - 1}")
    return [(_as_int(text), _as_int(audio)) for text, audio in listed]


def _are_valid(rows: list[Any], sizes: tuple[int, int]) -> bool:
    """Whether these are tuples of two legal ids, without a Python step per row: this checks a long
    context in 2 ms instead of 20."""
    if set(map(type, rows)) != {tuple} or set(map(len, rows)) != {2}:
        return False
    return all(
        set(map(type, column)) == {int} and min(column) >= 0 and max(column) < size
        for column, size in zip(zip(*rows, strict=True), sizes, strict=True)
    )


def checked_codes(codes: Iterable[int], ids: RowIds, where: str) -> list[int]:
    listed = _listed(codes, where, "a tensor, array or list of integers")
    for index, code in enumerate(listed):
        if not 0 <= _as_int(code) < ids.eosp:
            raise RowsError(f"{where}: code {index} is {code!r}; allowed: 0..{ids.eosp - 1}")
    return [_as_int(code) for code in listed]


def _listed(values: Any, where: str, allowed: str) -> list[Any]:
    try:
        return list(values.tolist() if hasattr(values, "tolist") else values)
    except TypeError:
        raise RowsError(f"{where} is a {type(values).__name__}; allowed: {allowed}") from None


def _as_int(value: Any) -> int:
    """The value as an integer, or -1, which is never a legal id. Bools and floats give -1: they
    are not silently converted."""
    try:
        return -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return -1
