"""The handles of callers: `Conversation` (append, reply, truncate, fork, close) and `ReplyStream`.

All calls return at once, except the two that are awaited: `settled` and the rows of a reply. A call
is checked, then refused or recorded; the engine thread carries it out within one step. Dropping the
last reference to a reply ends it. Dropping the last reference to a conversation closes it.
"""

import asyncio
from types import TracebackType
from typing import Any

from mosslive.config import Sampling, refuse
from mosslive.engine.client import EngineClient
from mosslive.engine.sequence import ActiveReply, ReplyStop, SequenceState, Waiter
from mosslive.rows import Row, checked_rows


class Conversation:
    """A growing list of rows, created by `Engine.open` or `fork`. Thread-safe."""

    def __init__(self, client: EngineClient, sequence: SequenceState) -> None:
        self._client = client
        self._sequence = sequence

    def __len__(self) -> int:
        return len(self._sequence.rows)

    def __bool__(self) -> bool:
        return True  # also without rows

    @property
    def rows(self) -> list[Row]:
        """All rows so far: appended rows and rows of replies. Empty once it is closed."""
        return self._sequence.rows[:]

    def append(self, rows: Any) -> None:
        """Appends rows [n, 2]; the engine thread computes them later. Raises `EngineFull` ("pages",
        "context", "closed"), `RowsError`, and `Busy` while a reply is active; then nothing is
        appended."""
        self._client.append(self._sequence, self._checked(rows))

    def reply(
        self, sampling: Sampling | None = None, prefix: Any = None, speculative: bool = False
    ) -> "ReplyStream":
        """Starts a reply after the last row, or after the rows of `prefix`, which it appends first.
        Raises the errors of `append`, and `EngineFull` ("deadlines") if speech would underrun.
        `speculative`: until `ReplyStream.adopt` it gives way to all others."""
        if sampling is not None and not isinstance(sampling, Sampling):
            raise refuse("sampling", sampling, "a mosslive.Sampling, or None")
        first = [] if prefix is None else self._checked(prefix)
        sampling = sampling or Sampling()
        reply = self._client.reply(self._sequence, sampling, first, speculative)
        return ReplyStream(self, self._client, reply)

    def truncate(self, length: int) -> None:
        """Drops all rows from `length` on. An active reply ends as "interrupted"."""
        self._client.truncate(self._sequence, length)

    def rewrite(self, length: int, rows: Any, check: bool = True) -> None:
        """Keeps the first `length` rows and appends `rows`, which may be empty, in one call. Raises
        the errors of `append`; then no row is appended or dropped. Never raises `EngineFull`
        ("pages") if the conversation shares no pages and does not become longer. `check=False`:
        for rows that were in a conversation of this engine, which are valid."""
        checked = self._checked(rows) if check and len(rows) else list(rows)
        self._client.rewrite(self._sequence, length, checked)

    def interrupt(self) -> None:
        """Ends the active reply, if any. No row is added after this call."""
        self._client.interrupt(self._sequence)

    def fork(self) -> "Conversation":
        """Returns a second conversation with the same rows. Both share pages; no row is computed
        twice. During a reply the fork gets the rows so far."""
        return Conversation(self._client, self._client.fork(self._sequence))

    async def settled(self) -> None:
        """Waits until all appended rows are computed and the pages dropped by `truncate` or `close`
        are free. Raises an error if rows could not be computed."""
        while waiter := self._client.settle(self._sequence, new_waiter):
            await waiter.future

    def close(self) -> None:
        """Ends an active reply and frees all pages. Idempotent."""
        self._client.close(self._sequence)

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # A finaliser can run anywhere, so it may use only this reentrant queue.
        self._client.state.inbox.put(self._sequence)

    def _checked(self, rows: Any) -> list[Row]:
        return checked_rows(rows, self._client.state.ids, self._client.state.context_rows)


class ReplyStream:
    """An async iterator over the rows of one reply, for one reader at a time.

    At `EngineSettings.ahead_rows` unread rows the reply pauses until half of them are read. No row
    is dropped. Cancelling the task that waits for a row ends the reply.
    """

    def __init__(
        self, conversation: Conversation, client: EngineClient, reply: ActiveReply
    ) -> None:
        self._conversation = conversation  # keeps it open as long as this object lives
        self._client = client
        self._active = reply

    @property
    def rows(self) -> list[Row]:
        """All rows so far, read or not."""
        return self._active.rows[:]

    @property
    def stop(self) -> ReplyStop | None:
        """Why it ended: "stop" (the model ended its turn), "length" (max_new), "context" (no more
        positions), "pages" (no free page for its next row), "interrupted"; None while active."""
        return self._active.stop

    def __aiter__(self) -> "ReplyStream":
        return self

    async def __anext__(self) -> Row:
        while isinstance(row := self._client.next_row(self._active, new_waiter), Waiter):
            try:
                await row.future
            except asyncio.CancelledError:
                self.cancel()
                raise
        if row is None:
            raise StopAsyncIteration
        return row

    def adopt(self) -> None:
        """A speculative reply is one like any other from now on. Idempotent."""
        self._client.adopt(self._active)

    def cancel(self) -> None:
        """Ends the reply. No row is added to the conversation after this call; earlier rows stay
        until they are truncated."""
        self._client.cancel(self._active)

    async def aclose(self) -> None:
        self.cancel()

    def __del__(self) -> None:
        self._active.abandoned = True
        self._client.state.inbox.put(None)


def new_waiter() -> Waiter:
    loop = asyncio.get_running_loop()
    return Waiter(loop, loop.create_future())
