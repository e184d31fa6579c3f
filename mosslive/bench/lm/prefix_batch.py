"""Many continuations of few beginnings as one sequence: what each row may see is said by a mask.

So one pass of a reference that knows only "rows, positions, mask" judges every stream of a batch.
Knows nothing of models or pages.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mosslive.config import ModelConfig
from mosslive.rows import Row


@dataclass(frozen=True)
class Forest:
    """Trunks stand one after another, then the leaves: leaf b is one row that follows the first
    `lengths[b]` rows of trunk `b % len(trunks)`."""

    trunks: list[list[Row]]
    leaves: list[Row]
    lengths: list[int]

    @cached_property
    def rows(self) -> Tensor:
        """int64 [n, 2]"""
        return torch.tensor([row for trunk in self.trunks for row in trunk] + self.leaves)

    @cached_property
    def positions(self) -> Tensor:
        """int64 [n]"""
        trunks = [p for trunk in self.trunks for p in range(len(trunk))]
        return torch.tensor(trunks + self.lengths)

    def mask(self, device: torch.device) -> Tensor:
        """bool [n, n]: row i sees row j."""
        count = len(self.positions)
        sees = torch.eye(count, dtype=torch.bool, device=device)
        first_leaf, begin = count - len(self.leaves), 0
        for number, trunk in enumerate(self.trunks):
            end = begin + len(trunk)
            own = torch.ones(len(trunk), len(trunk), dtype=torch.bool, device=device).tril()
            sees[begin:end, begin:end] = own
            for leaf in range(number, len(self.leaves), len(self.trunks)):
                sees[first_leaf + leaf, begin : begin + self.lengths[leaf]] = True
            begin = end
        return sees

    @property
    def leaf_indices(self) -> Tensor:
        return torch.arange(len(self.rows) - len(self.leaves), len(self.rows))


def speech_rows(config: ModelConfig, count: int, start: int) -> list[Row]:
    """Rows of speech with a few written rows among them: both tables are looked up."""
    rows = []
    for index in range(start, start + count):
        code = (1 + 31 * index + 17 * (index // 7)) % config.codes
        written = index % 11 == 5
        text = (3 + 13 * index) % min(config.vocab_size, 256) if written else None
        rows.append(
            (config.modality_pad_token_id, code)
            if text is None
            else (text, config.audio_pad_token_id)
        )
    return rows


def make_forest(config: ModelConfig, streams: int, context: int, beginnings: int = 4) -> Forest:
    """Streams of `context` rows and up to 6 more, so that a batch is ragged as real ones are; each
    has its own last row. The last row counts as context: it sees itself."""
    lengths = [context - 1 + (stream * 5) % 7 for stream in range(streams)]
    trunks = [
        speech_rows(config, max(lengths), 1000 * number)
        for number in range(min(beginnings, streams))
    ]
    pad = config.modality_pad_token_id
    codes = [(7 + 97 * stream) % config.codes for stream in range(streams)]
    # A row of the audio pad would be taken for the end of a written prompt.
    leaves = [(pad, code + (code == config.audio_pad_token_id)) for code in codes]
    return Forest(trunks, leaves, lengths)
