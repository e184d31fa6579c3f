"""One spoken turn of the user: sound → codes → rows, while the user speaks.

Each code becomes a row of the conversation at once, so prefill runs during the turn. The end of the
turn makes the codes exact; if a code changes, the rows are cut there and the rest is computed
again. Runs on the event loop; encoding runs on the codec's thread. Does not know when turns begin
or end.
"""

import asyncio
from collections.abc import Sequence

import torch
from torch import Tensor

from mosslive.config import SECONDS_PER_CODE
from mosslive.rows import Row
from mosslive.talk.clock import Clock
from mosslive.talk.codec_service import CodecService
from mosslive.talk.codec_streams import EncodeStream
from mosslive.talk.dialogue import CLOSING_ROWS, Dialogue
from mosslive.talk.timing import Stopwatch

# The deadline for the codes of new sound: after the sound of a reply that would run dry, before
# that of a reply well ahead. On a CPU later than work that others wait for (`URGENT_S`); on a GPU
# with time for companions: two codes, and a step.
_SLACK_S = 0.2


class UserTurn:
    def __init__(
        self,
        dialogue: Dialogue,
        codec: CodecService,
        rate_hz: int,
        clock: Clock,
        *,
        reply_rows: int,
        turn: int = 0,
    ) -> None:
        """`turn`: its number. `reply_rows`: rows that are kept free for the reply."""
        self._dialogue, self._codec, self._clock = dialogue, codec, clock
        self._rate_hz, self._reserve, self._turn = rate_hz, reply_rows + CLOSING_ROWS, turn
        self._encoder = EncodeStream(codec, rate_hz)
        self._packets: list[Tensor] = []  # not encoded yet
        self._waiting = 0  # samples in them
        self._changed = asyncio.Event()
        self._opened = asyncio.Event()
        self._stopwatch: Stopwatch | None = None  # from the end of the turn on
        self._codes: list[int] = []  # that have rows in the dialogue
        self.failed = False  # set by the caller of `run`; the turn gets no reply
        ids = dialogue.ids
        self._opening: list[Row] = [*dialogue.format.header("user"), (ids.sosp, ids.audio_pad)]
        self._closing: list[Row] = [(ids.modality_pad, ids.eosp), *dialogue.format.footer()]

    def feed(self, wave: Tensor) -> None:
        if self.failed:
            return
        self._packets.append(wave)
        self._waiting += len(wave)
        if self._waiting >= SECONDS_PER_CODE * self._rate_hz:  # less gives no code
            self._changed.set()

    def end(self, stopwatch: Stopwatch) -> None:
        """No more sound comes. `stopwatch`: of the reply."""
        self._stopwatch = stopwatch
        self._encoder.end()
        self._changed.set()

    async def run(self) -> None:
        """Returns when the dialogue has the turn, closed. If it fails, the turn stays open."""
        try:
            await self._run()
        finally:
            self._encoder.close()

    async def _run(self) -> None:
        dialogue = self._dialogue
        dialogue.append(self._opening, self._reserve)
        self._opened.set()
        cost_s = 0.0
        while self._stopwatch is None:
            await self._changed.wait()
            self._changed.clear()
            if self._stopwatch is None:
                done = await self._encoder.push(self._take(), self._clock.now() + _SLACK_S)
                cost_s += done.cost_s
                self._write(done.value)
        finished = await self._encoder.finish(self._take(), self._clock.now())
        turn = finished.value
        revised = 0
        if turn.first_revised is not None and turn.first_revised < len(self._codes):
            revised = len(self._codes) - turn.first_revised
            self._keep(turn.first_revised)
        self._write(turn.codes[len(self._codes) :])
        dialogue.append(self._closing)
        dialogue.close_turn("user", "speech", self._turn)
        self._stopwatch.mark("heard", self._clock.now())
        self._stopwatch.set(
            hearing_s=cost_s + finished.cost_s,
            finish_s=finished.cost_s,
            codes_heard=len(turn.codes),
            codes_revised=revised,
        )

    async def branch(self, stopwatch: Stopwatch, due: float) -> Dialogue:
        """A branch of the dialogue in which the turn ends here. Its codes are those of a turn that
        ends here, even if later sound changes them. `due`: it is not needed before this moment."""
        peeked = self._encoder.peek(self._waiting_sound(), due)
        try:
            await self._opened.wait()
            codes = await peeked
        finally:
            peeked.cancel()
        branch = self._dialogue.branch()
        try:
            pairs = enumerate(zip(self._codes, codes, strict=False))
            same = min(len(self._codes), len(codes))
            same = next((index for index, (one, other) in pairs if one != other), same)
            branch.cut(len(self._opening) + same)
            branch.append([*self._rows(codes[same:]), *self._closing])
            branch.close_turn("user", "speech", self._turn)
        except BaseException:
            branch.close()
            raise
        stopwatch.mark("heard", self._clock.now())
        stopwatch.set(codes_heard=len(codes), codes_revised=len(self._codes) - same)
        return branch

    def _take(self) -> Tensor:
        wave = self._waiting_sound()
        self._packets, self._waiting = [], 0
        return wave

    def _waiting_sound(self) -> Tensor:
        return torch.cat(self._packets) if self._packets else torch.zeros(0)

    def _write(self, codes: list[int]) -> None:
        if codes:
            self._dialogue.append(self._rows(codes), self._reserve)
            self._codes += codes

    def _keep(self, codes: int) -> None:
        self._dialogue.cut(len(self._opening) + codes)
        del self._codes[codes:]

    def _rows(self, codes: Sequence[int]) -> list[Row]:
        return [(self._dialogue.ids.modality_pad, code) for code in codes]
