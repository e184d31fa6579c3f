"""Which ids each reply's history holds, on the device: what the repetition penalty asks for.

A table of lines, one line per reply that wants one; line 0 is everybody's who does not. A line is
lent, not owned: when there are more replies than lines, the one used longest ago goes to another
reply and is made anew if its former owner comes back. Knows nothing of steps.
"""

from collections import OrderedDict

import torch
from torch import Tensor

from mosslive.engine.request import Request
from mosslive.rows import CHANNELS, Channel

_NOBODY = 0


class SeenIds:
    def __init__(self, lines: int, sizes: dict[Channel, int], device: torch.device) -> None:
        self.seen: dict[Channel, Tensor] = {
            channel: torch.zeros(lines + 1, sizes[channel], dtype=torch.bool, device=device)
            for channel in CHANNELS
        }
        self._device = device
        self._free = list(range(lines, _NOBODY, -1))
        self._lent: OrderedDict[int, int] = OrderedDict()  # id of request → line, longest ago first

    def line(self, request: Request) -> int:
        """The request's line, which holds all rows but perhaps the newest."""
        if request.sampling.repetition_penalty == 1:
            return _NOBODY
        key = id(request)
        if key in self._lent:
            self._lent.move_to_end(key)
        else:
            line = self._free.pop() if self._free else self._lent.popitem(last=False)[1]
            self._lent[key] = line
            rows = [*request.table.rows, *request.waiting]
            for index, channel in enumerate(CHANNELS):
                ids = torch.tensor([row[index] for row in rows], device=self._device)
                self.seen[channel][line] = False
                self.seen[channel][line].index_fill_(0, ids, True)
        return self._lent[key]

    def place(self, channel: Channel, line: int, number: int) -> int:
        """Where an id of a line stands among all."""
        return line * self.seen[channel].shape[1] + number

    def note(self, channel: Channel, places: Tensor) -> None:
        """The ids at these places join the history of their lines; int64 [B]."""
        self.seen[channel].view(-1).index_fill_(0, places, True)

    def release(self, request: Request) -> None:
        if (line := self._lent.pop(id(request), None)) is not None:
            self._free.append(line)
