"""One spoken turn of the user: sound → codes → rows, while it is spoken.

Listening is prefill: each code becomes a row of the conversation at once. When the turn ends the
codes are made exact; where that changes one, the rows are cut there and the rest is run again.
Knows nothing of when turns begin or end.
"""

import asyncio
from collections.abc import Sequence

import torch
from torch import Tensor

from mosslive.config import SECONDS_PER_CODE
from mosslive.rows import Row
from mosslive.talk.clock import Clock
from mosslive.talk.codec_streams import EncodeStream
from mosslive.talk.codec_worker import URGENT_S, CodecWorker
from mosslive.talk.dialogue import CLOSING_ROWS, Dialogue
from mosslive.talk.timing import Stopwatch

# When the codes of new sound are wanted: later than the sound of a reply that would run dry, and
# earlier than that of one well ahead. A little later than what others on the device must wait for.
_SLACK_S = URGENT_S + 0.02


class UserTurn:
    def __init__(
        self,
        dialogue: Dialogue,
        codec: CodecWorker,
        rate_hz: int,
        clock: Clock,
        *,
        reply_rows: int,
        turn: int = 0,
        keep_sound: bool = False,
    ) -> None:
        """`turn`: its number. `reply_rows`: room that is left for an answer. `keep_sound`: needed
        by `branch`."""
        self._dialogue, self._codec, self._clock = dialogue, codec, clock
        self._rate_hz, self._reserve, self._turn = rate_hz, reply_rows + CLOSING_ROWS, turn
        self._listen_task = EncodeStream(codec, rate_hz)
        self._came: list[Tensor] = []  # not heard yet
        self._waiting = 0  # samples of it
        self._kept: list[Tensor] | None = [] if keep_sound else None
        self._news = asyncio.Event()
        self._begun = asyncio.Event()
        self._stopwatch: Stopwatch | None = None  # from the end of the turn on
        self._codes: list[int] = []  # those whose rows stand in the dialogue
        self.failed = False  # set by who runs it: there is nothing to answer
        ids = dialogue.ids
        self._opening: list[Row] = [*dialogue.format.header("user"), (ids.sosp, ids.audio_pad)]
        self._closing: list[Row] = [(ids.modality_pad, ids.eosp), *dialogue.format.footer()]

    def feed(self, wave: Tensor) -> None:
        if self.failed:
            return
        self._came.append(wave)
        self._waiting += len(wave)
        if self._kept is not None:
            self._kept.append(wave)
        if self._waiting >= SECONDS_PER_CODE * self._rate_hz:  # less gives no code
            self._news.set()

    def end(self, stopwatch: Stopwatch) -> None:
        """No more sound comes. The watch is that of the answer."""
        self._stopwatch = stopwatch
        self._news.set()

    async def run(self) -> None:
        """Until the turn stands in the dialogue, closed. If it fails the turn is left open."""
        try:
            await self._run()
        finally:
            self._listen_task.close()

    async def _run(self) -> None:
        dialogue = self._dialogue
        dialogue.append(self._opening, self._reserve)
        self._begun.set()
        cost_s = 0.0
        while self._stopwatch is None:
            await self._news.wait()
            self._news.clear()
            if self._stopwatch is None:
                done = await self._listen_task.push(self._take(), self._clock.now() + _SLACK_S)
                cost_s += done.cost_s
                self._write(done.value)
        finished = await self._listen_task.finish(self._take(), self._clock.now())
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

    @property
    def can_branch(self) -> bool:
        return self._kept is not None and not self.failed

    async def branch(self, stopwatch: Stopwatch, due: float) -> Dialogue:
        """The conversation as if the turn had ended here, in pages of its own. Its codes are those
        of such a turn, also where sound still to come will change them. `due`: nobody can want it
        before this moment."""
        assert self._kept is not None, "made without keep_sound"
        wave = torch.cat(self._kept)
        await self._begun.wait()
        codes = await self._codec.encode(wave, self._rate_hz, due)
        twin = self._dialogue.branch()
        try:
            pairs = enumerate(zip(self._codes, codes, strict=False))
            same = min(len(self._codes), len(codes))
            same = next((index for index, (one, other) in pairs if one != other), same)
            twin.cut(len(self._opening) + same)
            twin.append([*self._rows(codes[same:]), *self._closing])
            twin.close_turn("user", "speech", self._turn)
        except BaseException:
            twin.close()
            raise
        stopwatch.mark("heard", self._clock.now())
        stopwatch.set(codes_heard=len(codes), codes_revised=len(self._codes) - same)
        return twin

    def _take(self) -> Tensor:
        wave = torch.cat(self._came) if self._came else torch.zeros(0)
        self._came, self._waiting = [], 0
        return wave

    def _write(self, codes: list[int]) -> None:
        if codes:
            self._dialogue.append(self._rows(codes), self._reserve)
            self._codes += codes

    def _keep(self, codes: int) -> None:
        self._dialogue.cut(len(self._opening) + codes)
        del self._codes[codes:]

    def _rows(self, codes: Sequence[int]) -> list[Row]:
        return [(self._dialogue.ids.modality_pad, code) for code in codes]
