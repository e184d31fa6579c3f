"""One reply being made: its settings, where it stands, and what a new row means for it.

Everything random or remembered belongs to the request itself, so what runs beside it in a batch
cannot change its reply. It samples nothing: the sampler (`sample`, or a GPU) reads the plain
attributes below and hands the ids to `accept`. No step costs more for a longer history.
"""

from typing import Literal

from torch import Tensor

from mosslive.cache import OutOfPages, PageTable
from mosslive.config import Sampling
from mosslive.rows import (
    CHANNELS,
    Channel,
    Mode,
    Row,
    RowIds,
    compose,
    ends_reply,
    first_mode,
    next_mode,
)

Stop = Literal["stop", "length", "context", "pages"]


class Request:
    """Not shared between threads. Its history is `table.rows` followed by `waiting`."""

    def __init__(
        self,
        rows: list[Row],
        sampling: Sampling,
        ids: RowIds,
        table: PageTable,
        longest: int,
    ) -> None:
        """`rows`: what follows the rows of the table, which have all been through the trunk.
        `longest`: rows the context holds."""
        self.table = table
        self.waiting = list(rows)  # not through the trunk yet; in mid-reply the newest row alone
        self.sampling = sampling
        self.ids = ids
        self.longest = longest
        self.last: Row = rows[-1] if rows else table.rows[-1]
        self.mode: Mode = first_mode(self.last, ids)
        self.new_rows: list[Row] = []
        self.stop: Stop | None = None  # why the reply ended; None while it goes on
        self.refusal: OutOfPages | None = None  # with stop == "pages": what was lacking
        # Which ids each channel's history holds, bool [V]. Kept by `sample` where the repetition
        # penalty asks for it; a sampler with a memory of its own leaves this empty.
        self.seen: dict[Channel, Tensor] = {}

    def adopt(self) -> None:
        """At the beginning: shares the pages that already hold the first rows."""
        if not len(self.table):
            del self.waiting[: self.table.adopt(self.waiting)]

    @property
    def step(self) -> int:
        """Number of the coming row, from 1, as min_new and max_new count."""
        return len(self.new_rows) + 1

    @property
    def coming_mode(self) -> Mode:
        return next_mode(self.mode, self.last, self.ids)

    def begin_step(self) -> None:
        """Once before the coming row is chosen; again, after a step that failed, does no harm."""
        self.mode = next_mode(self.mode, self.last, self.ids)

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Channels whose sample the coming row needs. While speaking the text sample would be
        overwritten, so it is not drawn."""
        if self.mode == "audio":
            return ("audio",)
        return CHANNELS if self.sampling.ignored_audio == "sample" else ("text",)

    def legal(self, channel: Channel) -> int:
        """How many ids may be drawn. The mask of the published loop hides the audio ids above the
        end of speech always, and the end of speech itself while step < min_new; both are the last
        ids, so masking is cutting."""
        if channel == "text":
            return self.ids.text_size
        return self.ids.eosp + (self.step >= self.sampling.min_new)

    def accept(self, text: int | None, audio: int | None) -> Row:
        """Composes and appends the next row from the ids chosen, None where `channels` did not ask
        for one; decides whether it was the last."""
        row = compose(
            self.mode,
            self.ids.modality_pad if text is None else text,
            self.ids.audio_pad if audio is None else audio,
            self.ids,
        )
        self.waiting.append(row)
        self.new_rows.append(row)
        self.last = row
        for channel, seen in self.seen.items():
            seen[row[CHANNELS.index(channel)]] = True
        if ends_reply(row, self.ids):
            self.stop = "stop"
        elif len(self.new_rows) == self.sampling.max_new:
            self.stop = "length"
        elif len(self.table) + len(self.waiting) == self.longest:
            self.stop = "context"
        return row
