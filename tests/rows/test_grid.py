"""`checked_rows`: accepted types, and errors that name the bad row."""

from typing import Any

import numpy as np
import pytest
import torch

from mosslive import LanguageModel
from mosslive.rows import RowsError, checked_rows


@pytest.mark.parametrize("make", [list, np.array, torch.tensor, tuple])
def test_any_kind_of_grid_is_accepted(nano_lm: LanguageModel, make: Any) -> None:
    """A tensor, an array and a list of pairs give the same rows."""
    assert checked_rows(make([[1, 2], [3, 4]]), nano_lm.ids, 9) == [(1, 2), (3, 4)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "rows is empty"),
        ([(1, 2)] * 10, "10 rows; allowed: at most 9"),
        ([1, 2], r"row 0 is 1; allowed: a pair"),
        ([(1, 2), (1, 2, 3)], r"row 1 is \(1, 2, 3\)"),
        ([(1, 2), (640, 2)], r"row 1: text id is 640; allowed: 0\.\.639"),
        ([(1, -1)], r"row 0: audio id is -1; allowed: 0\.\.511"),
        ([(1.5, 1)], "row 0: text id is 1.5"),
        ([(True, 1)], "row 0: text id is True"),
        (torch.zeros(3, 2), "row 0: text id is 0.0"),
        (torch.zeros(2, 2, 2, dtype=torch.int64), r"row 0: text id is \[0, 0\]"),
    ],
)
def test_bad_rows_raise(nano_lm: LanguageModel, rows: Any, message: str) -> None:
    """The error names the row, the channel, the value and what is allowed."""
    with pytest.raises(RowsError, match=message):
        checked_rows(rows, nano_lm.ids, 9)
