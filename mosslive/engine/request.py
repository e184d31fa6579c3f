"""The sampling state of one reply: its settings, mode and rows, and how a new row changes them.

All randomness and memory of a reply is in its request, so the other requests of a batch cannot
change it. A request does not sample: the sampler (`sample`, or a GPU kernel) reads the attributes
below and passes the ids to `accept`. The cost of a step does not grow with the history.
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
    """Not shared between threads. Its history is `table.rows` followed by `pending`."""

    def __init__(
        self,
        rows: list[Row],
        sampling: Sampling,
        ids: RowIds,
        table: PageTable,
        context_rows: int,
    ) -> None:
        """`rows`: the rows after those of the table, which are all through the trunk.
        `context_rows`: the most rows of table and `pending` together."""
        self.table = table
        self.pending = list(rows)  # not through the trunk yet; during a reply only the newest row
        self.sampling = sampling
        self.ids = ids
        self.context_rows = context_rows
        self.last: Row = rows[-1] if rows else table.rows[-1]
        self.mode: Mode = first_mode(self.last, ids)
        self.new_rows: list[Row] = []
        self.stop: Stop | None = None  # why the reply ended; None while active
        self.refusal: OutOfPages | None = None  # set with stop "pages"
        # Which ids each channel's history contains, bool [V]. `sample` fills it if the repetition
        # penalty is on; a sampler with its own tables (`seen_ids`) leaves it empty.
        self.seen: dict[Channel, Tensor] = {}

    def adopt(self) -> None:
        """Shares pages that already contain the first rows. Does nothing after the first row."""
        if not len(self.table):
            del self.pending[: self.table.adopt(self.pending)]

    @property
    def row_number(self) -> int:
        """Number of the next row, from 1, as min_new and max_new count."""
        return len(self.new_rows) + 1

    @property
    def upcoming_mode(self) -> Mode:
        return next_mode(self.mode, self.last, self.ids)

    def begin_step(self) -> None:
        """Called before the next row is sampled. Idempotent, so a failed step can be repeated."""
        self.mode = next_mode(self.mode, self.last, self.ids)

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Channels that are sampled for the next row. In audio mode a text sample would be
        overwritten, so none is taken."""
        if self.mode == "audio":
            return ("audio",)
        return CHANNELS if self.sampling.ignored_audio == "sample" else ("text",)

    def legal(self, channel: Channel) -> int:
        """Returns how many ids, from 0, may be sampled. The mask of the published loop always hides
        the audio ids above the end of speech, and the end of speech itself while row_number <
        min_new. Both are the last ids, so the ids that remain are a prefix."""
        if channel == "text":
            return self.ids.text_size
        return self.ids.eosp + (self.row_number >= self.sampling.min_new)

    def accept(self, text: int | None, audio: int | None) -> Row:
        """Composes and appends the next row from sampled ids, and sets `stop` if it is the last.
        An id is None if `channels` does not name its channel."""
        row = compose(
            self.mode,
            self.ids.modality_pad if text is None else text,
            self.ids.audio_pad if audio is None else audio,
            self.ids,
        )
        self.pending.append(row)
        self.new_rows.append(row)
        self.last = row
        for channel, seen in self.seen.items():
            seen[row[CHANNELS.index(channel)]] = True
        if ends_reply(row, self.ids):
            self.stop = "stop"
        elif len(self.new_rows) == self.sampling.max_new:
            self.stop = "length"
        elif len(self.table) + len(self.pending) == self.context_rows:
            self.stop = "context"
        return row
