"""The streams of one chunk step: their page tables and the chunks they are at.

Rows of a step are ordered by half, then stream, then column: [halves · B · T]. The halves are the
guided and the unguided run of a stream, or one alone. Does not know what pages hold. Invariants:
a table names only pages that were written, or page 0, which is all zeros and never written; chunk
`index` of a stream is written to page table[b, index], and the state before it is in the previous
page, or in page 0.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

ZERO_PAGE = 0


@dataclass(frozen=True, eq=False)
class Chunks:
    table: Tensor  # [B, N] int32: the page of each chunk of a stream
    index: Tensor  # [B] int32: the chunk to compute
    held: Tensor  # [B] int32, 1..T: its valid columns; fewer than T only at a stream's end
    reach: int  # table columns that are read; larger than every index

    # Every layer uses both of these.

    @cached_property
    def own(self) -> Tensor:
        """[B] int64: the pages that are written."""
        return self.table.gather(1, self.index[:, None].long())[:, 0].long()

    @cached_property
    def before(self) -> Tensor:
        """[B] int64: the pages that hold the state before the chunk."""
        earlier = (self.index - 1).clamp(min=0)[:, None].long()
        pages = self.table.gather(1, earlier)[:, 0]
        return torch.where(self.index > 0, pages, ZERO_PAGE).long()
