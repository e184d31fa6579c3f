"""Generated rows → what a person reads and hears, whole or while they arrive.

Two rules. The robust one keeps every row; the published processor's rule loses the last row of a
reply that was cut by length and exists for comparisons only.
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
    """Robust rule: text of the text rows, and the codes of the speech rows up to the first end of
    speech. No row is dropped; special tokens and a torn last character are left out."""
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
    """The published processor's rule: the last row is dropped whatever it is, text is the whole
    text channel, codes are the whole audio channel up to the first end of speech."""
    kept = rows[:-1]
    text = tokenizer.decode([row[0] for row in kept])
    for written, meant in _PROCESSOR_REWRITES:
        text = text.replace(written, meant)
    audio = [row[1] for row in kept]
    return Output(text, audio[: audio.index(ids.eosp)] if ids.eosp in audio else audio)


class TextStream:
    """Rows in, text out as soon as it is certain; never half a character.

    A token can end inside a UTF-8 character. Its bytes wait here until the rest arrives.
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
        """What still waits: nothing, or one replacement character for a torn one."""
        return self._decoder.decode(b"", final=True)
