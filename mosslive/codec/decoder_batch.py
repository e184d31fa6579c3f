"""Many live replies in one batch, each while its codes arrive: codes → mel → samples.

`add` a reply, `push` codes to any, and `step` renders the next chunk of every reply that has a
whole one, at whatever point each is; `finish` or `cancel` a reply at any time. Stores only the
waiting codes: the state of a reply is in its mel source and in the vocoder's stream. Knows neither
sockets nor clocks; the caller decides when to step. Invariants: a reply sounds as it would alone; a
finished reply has returned exactly 1920 samples per code at the published sizes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mosslive.codec.conformer import FRAMES_PER_TOKEN, LOOK_AHEAD
from mosslive.codec.flow_hops import HopCounter
from mosslive.codec.flow_pages import PoolFull
from mosslive.codec.mel_source import MelSource, step_together
from mosslive.codec.vocoder import Vocoder
from mosslive.codec.voice import Voice
from mosslive.errors import MossliveError
from mosslive.kernels.arithmetic import arithmetic

Samples = NDArray[np.float32]
# A voice and a seed → a new mel source, its prompt's length in codes, and the vocoder's noise.
Begin = Callable[[Voice, int], tuple[MelSource, int, torch.Generator]]


@dataclass(eq=False)
class Reply:
    """One reply in progress; created by `DecoderBatch.add`."""

    source: MelSource
    vocoder: Any  # the vocoder's state of this stream
    count: HopCounter
    waiting: list[int] = field(default_factory=list)  # codes not rendered yet
    led_in: bool = False  # the end of the prompt is computed
    made: list[Samples] = field(default_factory=list)  # rendered, but not returned yet
    open: bool = True

    @property
    def hop(self) -> int | None:
        """Codes that can be rendered now. 0: none, but the end of the prompt can be computed, so
        that the first sound need not wait for it. None: more codes must come first."""
        hop = self.count.next_hop()
        if hop is None and self.source.leads_in and not self.led_in and self.count.leads_in():
            return 0
        return hop


class DecoderBatch:
    def __init__(
        self,
        vocoder: Vocoder,
        chunk: int,
        begin: Begin | None = None,
    ) -> None:
        self._vocoder, self._chunk, self._begin = vocoder, chunk, begin
        self._replies: list[Reply] = []

    def add(self, voice: Voice, seed: int = 0) -> Reply:
        """A new reply in this voice. `seed`: of the vocoder's noise."""
        assert self._begin is not None, "this batch was created without voices"
        with arithmetic("fp32"):
            return self.join(*self._begin(voice, seed))

    def join(
        self, source: MelSource, prompt_codes: int, generator: torch.Generator | None
    ) -> Reply:
        vocoder = self._vocoder.open(generator, FRAMES_PER_TOKEN * self._chunk)
        reply = Reply(source, vocoder, HopCounter(prompt_codes, self._chunk))
        self._replies.append(reply)
        return reply

    def push(self, reply: Reply, codes: Sequence[int]) -> None:
        """Adds codes to a reply; the next steps render them. Raises `MossliveError` for a number
        that is not a code and for a reply that gets too long; other replies are not affected."""
        _require_open(reply)
        received = reply.count.received + len(codes)
        reply.source.check(codes, reply.count.prompt + received)
        reply.waiting += [int(code) for code in codes]
        reply.count.received = received

    @property
    def warm_chunks(self) -> int:
        """Chunks of a reply after which its steps have no shape that is new."""
        return self._vocoder.warm_chunks(FRAMES_PER_TOKEN * self._chunk)

    @property
    def ready(self) -> list[Reply]:
        """The replies that the next step renders."""
        return [reply for reply in self._replies if reply.hop is not None]

    def step(self) -> dict[Reply, Samples]:
        """Renders one chunk of every ready reply → the samples it settles, possibly none (see
        `Reply.hop`). If pages are short, the youngest replies wait. Raises `PoolFull` if no reply
        can continue."""
        return self._step(self.ready)

    def finish(self, reply: Reply) -> Samples:
        """Returns the rest of a reply and closes it. After `PoolFull` the reply is still open and
        nothing is lost; call `finish` again when pages are free."""
        self.drain(reply)
        with arithmetic("fp32"):
            bands = self._vocoder.mel_settings.bands
            mel = torch.zeros(bands, 0, device=self._vocoder.device)
            if reply.waiting:
                mel = reply.source.finish(reply.waiting)
            if reply.count.received:
                reply.made += _on_host(self._vocoder.finish([reply.vocoder], [mel]))
        made = take_made(reply)
        self.cancel(reply)
        return made

    def drain(self, reply: Reply) -> None:
        """Renders every whole chunk of one reply and appends the samples to `made`."""
        _require_open(reply)
        while reply.hop is not None:
            reply.made.append(self._step([reply])[reply])

    def cancel(self, reply: Reply) -> None:
        """Frees all memory of a reply at once. Idempotent."""
        if reply.open:
            reply.source.close()
            reply.waiting, reply.made, reply.open = [], [], False
            self._replies.remove(reply)

    def _step(self, replies: list[Reply]) -> dict[Reply, Samples]:
        if not replies:
            return {}
        with arithmetic("fp32"):
            moved, mels = self._mels(replies)
            for reply, mel in zip(moved, mels, strict=True):
                hop = mel.shape[1] // FRAMES_PER_TOKEN
                reply.waiting = reply.waiting[hop:]
                reply.count.rendered += hop
                reply.led_in = True
            waves = self._vocoder.push([reply.vocoder for reply in moved], mels)
        return dict(zip(moved, _on_host(waves), strict=True))

    def _mels(self, replies: list[Reply]) -> tuple[list[Reply], list[Tensor]]:
        """The oldest replies, as many as there are pages for, and their next mel."""
        while True:
            codes = [
                reply.waiting[: hop + LOOK_AHEAD]
                for reply in replies
                if (hop := reply.hop) is not None
            ]
            try:
                return replies, step_together([reply.source for reply in replies], codes)
            except PoolFull:
                if len(replies) == 1:
                    raise
                replies = replies[:-1]


def take_made(reply: Reply) -> Samples:
    made, reply.made = reply.made, []
    return np.concatenate(made) if made else np.zeros(0, dtype=np.float32)


def _require_open(reply: Reply) -> None:
    if not reply.open:
        raise MossliveError("this reply was finished or closed; open another stream")


def _on_host(waves: list[Tensor]) -> list[Samples]:
    """The only place where the host waits for the device."""
    joined: Samples = torch.cat(waves).float().cpu().numpy()
    ends = np.cumsum([len(wave) for wave in waves])
    return np.split(joined, ends[:-1])
