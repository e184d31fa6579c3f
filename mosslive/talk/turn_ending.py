"""How a reply stands in the history: which of its rows stay, and what closes the turn.

Pure functions over rows. A turn in the history reads as the prompt format writes it: speech is
closed by the end-of-speech row, the turn by its footer. Knows nothing of engines or sound.
"""

from collections.abc import Sequence
from typing import NamedTuple

from mosslive.rows import Row, RowIds


class TurnEnding(NamedTuple):
    kept: int  # rows of the reply that stay; 0: nothing was said, there is no turn
    rows: list[Row]  # to append after them


def close_whole(rows: Sequence[Row], footer: Sequence[Row], ids: RowIds) -> TurnEnding:
    """A reply that ended by itself, or was cut off by length."""
    if rows and rows[-1][0] == footer[0][0]:  # the model wrote the first row of the footer
        if len(rows) == 1:
            return TurnEnding(0, [])
        return TurnEnding(len(rows), list(footer[1:]))
    kept = len(rows) - (bool(rows) and rows[-1][0] in ids.stops)
    return _closed(rows, kept, footer, ids)


def close_heard(
    rows: Sequence[Row], heard_codes: int, footer: Sequence[Row], ids: RowIds
) -> TurnEnding:
    """A spoken reply of which so many codes were heard. Rows after the last of them were not."""
    codes = code_rows(rows, ids)[:heard_codes]
    return _closed(rows, codes[-1] + 1 if codes else 0, footer, ids)


def code_rows(rows: Sequence[Row], ids: RowIds) -> list[int]:
    """Where the codes of a reply stand: the speech rows before the first end of speech."""
    found = []
    for index, row in enumerate(rows):
        if ids.is_speech(row):
            if row[1] >= ids.eosp:
                break
            found.append(index)
    return found


def _closed(rows: Sequence[Row], kept: int, footer: Sequence[Row], ids: RowIds) -> TurnEnding:
    if not kept:
        return TurnEnding(0, [])
    last = rows[kept - 1]
    speaking = ids.is_speech(last) and last[1] != ids.eosp
    end = [(ids.modality_pad, ids.eosp)] if speaking else []
    return TurnEnding(kept, [*end, *footer])
