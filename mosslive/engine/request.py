"""One request: its rows, its settings, and the arithmetic of its next row.

Everything random or remembered belongs to the request itself, so what runs beside it in a batch
cannot change its reply.
"""

from typing import Literal

import torch
from torch import Tensor

from mosslive.cache import OutOfPages, PagePool, PageTable
from mosslive.config import Sampling
from mosslive.kernels import check_logits, draw, greedy, penalise, uniform
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
    """Not shared between threads. `rows` is the whole history, prompt first."""

    def __init__(
        self,
        prompt: list[Row],
        sampling: Sampling,
        ids: RowIds,
        pool: PagePool,
        device: torch.device,
    ) -> None:
        self.rows = list(prompt)
        self.prompt_rows = len(prompt)
        self.sampling = sampling
        self.table = PageTable(pool)
        self.computed = 0  # rows of the table that went through the trunk
        self.stop: Stop | None = None  # why the reply ended; None while it goes on
        self.refusal: OutOfPages | None = None  # with stop == "pages": what was lacking
        self.mode: Mode = first_mode(prompt[-1], ids)
        self._ids = ids
        self._step = 0  # counts from 1, as min_new and max_new do
        # Which ids each channel's history holds: the repetition penalty asks only for that.
        self._seen: dict[Channel, Tensor] = {}
        if sampling.repetition_penalty != 1:
            for index, channel in enumerate(CHANNELS):
                size = (ids.text_size, ids.audio_size)[index]
                seen = torch.zeros(size, dtype=torch.bool, device=device)
                seen[[row[index] for row in prompt]] = True
                self._seen[channel] = seen

    @property
    def new_rows(self) -> list[Row]:
        return self.rows[self.prompt_rows :]

    def begin_step(self) -> None:
        self._step += 1
        self.mode = next_mode(self.mode, self.rows[-1], self._ids)

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Channels whose sample the coming row needs. While speaking the text sample would be
        overwritten, so it is not drawn."""
        if self.mode == "audio":
            return ("audio",)
        return CHANNELS if self.sampling.ignored_audio == "sample" else ("text",)

    def finish_step(self, logits: dict[Channel, Tensor], longest: int) -> Row:
        """Draws, composes and appends the next row; decides whether it was the last."""
        audio = self._choose("audio", logits) if "audio" in logits else self._ids.audio_pad
        text = self._choose("text", logits) if "text" in logits else self._ids.modality_pad
        row = compose(self.mode, text, audio, self._ids)
        self.rows.append(row)
        for index, channel in enumerate(CHANNELS):
            if channel in self._seen:
                self._seen[channel][row[index]] = True
        if ends_reply(row, self._ids):
            self.stop = "stop"
        elif self._step == self.sampling.max_new:
            self.stop = "length"
        elif len(self.rows) == longest:
            self.stop = "context"
        return row

    def _choose(self, channel: Channel, given: dict[Channel, Tensor]) -> int:
        sampling = self.sampling
        legal = self._legal(channel)
        logits = given[channel][:legal]
        check_logits(logits)
        if channel in self._seen:
            logits = penalise(logits, self._seen[channel][:legal], sampling.repetition_penalty)
        if sampling.greedy:
            return greedy(logits)
        number = uniform(sampling.seed, self._step, CHANNELS.index(channel))
        return draw(logits, sampling.temperature, sampling.top_k, sampling.top_p, number)

    def _legal(self, channel: Channel) -> int:
        """How many ids may be drawn. The mask of the published loop hides the audio ids above the
        end of speech always, and the end of speech itself while step < min_new; both are the last
        ids, so masking is cutting."""
        if channel == "text":
            return self._ids.text_size
        return self._ids.eosp + (self._step >= self.sampling.min_new)
