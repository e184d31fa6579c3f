"""Generated rows → text and codes, for a finished reply or as a stream.

There are two rules. The robust rule keeps every row. The published processor's rule always drops
the last row, so it loses a code of a reply that was cut by length; it exists for comparisons only.
"""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass

from mosslive.rows.grid import Row, RowIds, checked_codes
from mosslive.rows.tokenizer import TextTokenizer

# Surface forms the published processor rewrites after decoding.
_PROCESSOR_REWRITES = (("<|empty|>", "."), ("<|end_empty|>", ":"))


@dataclass(frozen=True)
class Output:
    text: str
    codes: list[int]


def read_rows(rows: Sequence[Row], tokenizer: TextTokenizer, ids: RowIds) -> Output:
    """Robust rule: the text of the text rows, and the codes of the speech rows up to the first end
    of speech. Drops no row; leaves out special tokens and an incomplete last character."""
    text = TextStream(tokenizer, ids)
    codes: list[int] = []
    speaking = True
    written = ""
    for row in rows:
        written += text.push(row)
        if speaking and ids.is_speech(row):
            speaking = row[1] != ids.eosp
            codes += [row[1]] if speaking else []
    return Output(written, checked_codes(codes, ids, "speech rows"))


def read_rows_as_processor(rows: Sequence[Row], tokenizer: TextTokenizer, ids: RowIds) -> Output:
    """The published processor's rule: always drops the last row. Text is the whole text channel;
    codes are the whole audio channel up to the first end of speech."""
    kept = rows[:-1]
    text = tokenizer.decode([row[0] for row in kept])
    for written, meant in _PROCESSOR_REWRITES:
        text = text.replace(written, meant)
    audio = [row[1] for row in kept]
    return Output(text, audio[: audio.index(ids.eosp)] if ids.eosp in audio else audio)


class TextStream:
    """Turns rows into text as they arrive, in whole characters.

    A token can end inside a UTF-8 character. The stream keeps such bytes until the rest arrives.
    """

    def __init__(self, tokenizer: TextTokenizer, ids: RowIds) -> None:
        self._tokenizer = tokenizer
        self._ids = ids
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, row: Row) -> str:
        if self._ids.is_speech(row):
            return ""
        return self._decoder.decode(self._tokenizer.token_bytes(row[0]))

    def finish(self) -> str:
        """Returns a replacement character if a character is incomplete, else an empty string."""
        return self._decoder.decode(b"", final=True)
