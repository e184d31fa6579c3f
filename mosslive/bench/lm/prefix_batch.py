"""Many streams that share few prefixes, packed into one sequence with an attention mask.

So one pass of a reference that knows only rows, positions and a mask computes every stream of a
batch. Knows no models and no pages.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mosslive.config import ModelConfig
from mosslive.rows import Row


@dataclass(frozen=True)
class PrefixBatch:
    """The prefixes one after another, then the last rows. Last row b follows the first `lengths[b]`
    rows of prefix `b % len(prefixes)`."""

    prefixes: list[list[Row]]
    last_rows: list[Row]
    lengths: list[int]

    @cached_property
    def rows(self) -> Tensor:
        """int64 [n, 2]"""
        return torch.tensor([row for prefix in self.prefixes for row in prefix] + self.last_rows)

    @cached_property
    def positions(self) -> Tensor:
        """int64 [n]"""
        own = [p for prefix in self.prefixes for p in range(len(prefix))]
        return torch.tensor(own + self.lengths)

    def mask(self, device: torch.device) -> Tensor:
        """bool [n, n]: whether row i sees row j."""
        count = len(self.positions)
        sees = torch.eye(count, dtype=torch.bool, device=device)
        first_last, begin = count - len(self.last_rows), 0
        for number, prefix in enumerate(self.prefixes):
            end = begin + len(prefix)
            own = torch.ones(len(prefix), len(prefix), dtype=torch.bool, device=device).tril()
            sees[begin:end, begin:end] = own
            for stream in range(number, len(self.last_rows), len(self.prefixes)):
                sees[first_last + stream, begin : begin + self.lengths[stream]] = True
            begin = end
        return sees

    @property
    def last_indices(self) -> Tensor:
        return torch.arange(len(self.rows) - len(self.last_rows), len(self.rows))


def speech_rows(config: ModelConfig, count: int, start: int) -> list[Row]:
    """Returns rows of speech with a few text rows, so that both embedding tables are used."""
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


def make_prefix_batch(
    config: ModelConfig, streams: int, context: int, prefix_count: int = 4
) -> PrefixBatch:
    """Makes streams of `context` rows and up to 6 more, so that the batch is ragged like a real
    one. Each stream has its own last row, which counts as context because it sees itself."""
    lengths = [context - 1 + (stream * 5) % 7 for stream in range(streams)]
    prefixes = [
        speech_rows(config, max(lengths), 1000 * number)
        for number in range(min(prefix_count, streams))
    ]
    pad = config.modality_pad_token_id
    codes = [(7 + 97 * stream) % config.codes for stream in range(streams)]
    # A row of the audio pad would mark the end of a text prompt.
    last_rows = [(pad, code + (code == config.audio_pad_token_id)) for code in codes]
    return PrefixBatch(prefixes, last_rows, lengths)
