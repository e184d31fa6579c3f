"""What the owner of a conversation holds: append, reply, truncate, fork, close.

Everything but waiting is an ordinary call that returns at once: it is checked, refused or written
down, and the device thread follows within one step. Only `settled` and the rows of a reply are
awaited. Letting go of a reply ends it, and letting go of a conversation closes it.
"""

import asyncio
from types import TracebackType
from typing import Any

from mosslive.config import Sampling, refuse
from mosslive.engine.client import EngineClient
from mosslive.engine.sequence import ActiveReply, ReplyStop, SequenceState, Waiter
from mosslive.rows import Row, checked_rows


class Conversation:
    """A growing list of rows. Made by `Engine.open` and `fork`; safe to use from any thread."""

    def __init__(self, client: EngineClient, sequence: SequenceState) -> None:
        self._client = client
        self._sequence = sequence

    def __len__(self) -> int:
        return len(self._sequence.rows)

    def __bool__(self) -> bool:
        return True  # an empty conversation is one too

    @property
    def rows(self) -> list[Row]:
        """All rows, as of now: appended, and made by replies. None once it is closed."""
        return self._sequence.rows[:]

    def append(self, rows: Any) -> None:
        """Rows heard, [n, 2]. They are computed while you go on. Raises `EngineFull` ("pages",
        "context", "closed"), `Busy` while a reply is being made, `RowsError`; nothing is appended
        then."""
        self._client.append(self._sequence, self._checked(rows))

    def reply(self, sampling: Sampling | None = None, prefix: Any = None) -> "ReplyStream":
        """Begins a reply after the last row, or after the rows of `prefix`, which are appended
        first. Raises as `append` does, and `EngineFull` ("deadlines") if speech would stutter."""
        if sampling is not None and not isinstance(sampling, Sampling):
            raise refuse("sampling", sampling, "a mosslive.Sampling, or None")
        first = [] if prefix is None else self._checked(prefix)
        return ReplyStream(
            self, self._client, self._client.reply(self._sequence, sampling or Sampling(), first)
        )

    def truncate(self, length: int) -> None:
        """Forgets all rows from `length` on; a reply being made ends as interrupted."""
        self._client.truncate(self._sequence, length)

    def rewrite(self, length: int, rows: Any, check: bool = True) -> None:
        """Keeps the first `length` rows and appends `rows`, which may be none, in one call. Raises
        as `append` does, and nothing is appended or forgotten then. Never raises `EngineFull`
        ("pages") if the conversation shares no pages and does not become longer. `check=False`:
        for rows that a conversation of this engine has held; they are valid."""
        checked = self._checked(rows) if check and len(rows) else list(rows)
        self._client.rewrite(self._sequence, length, checked)

    def interrupt(self) -> None:
        """Ends the reply being made, if any: no row is added after this call."""
        self._client.interrupt(self._sequence)

    def fork(self) -> "Conversation":
        """A second conversation with the same rows; pages are shared, nothing is computed twice.
        Also while a reply is being made: the fork has the rows made so far."""
        return Conversation(self._client, self._client.fork(self._sequence))

    async def settled(self) -> None:
        """Until all rows appended are computed, and pages given up by `truncate` or `close` are
        free. Raises what went wrong with them."""
        while waiter := self._client.settle(self._sequence, new_waiter):
            await waiter.news

    def close(self) -> None:
        """Ends a reply being made and gives all pages back. Again is fine."""
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
        # Nothing but a queue made for it may be touched here: a finaliser can run anywhere.
        self._client.state.inbox.put(self._sequence)

    def _checked(self, rows: Any) -> list[Row]:
        return checked_rows(rows, self._client.state.ids, self._client.state.longest)


class ReplyStream:
    """An async iterator over the rows of one reply, for one reader at a time.

    The reader may fall behind by `EngineSettings.ahead_rows`; then the reply rests until half of
    them are read. Nothing is dropped. Cancelling the task that waits for a row ends the reply.
    """

    def __init__(
        self, conversation: Conversation, client: EngineClient, reply: ActiveReply
    ) -> None:
        self._conversation = conversation  # kept open as long as somebody reads
        self._client = client
        self._active = reply

    @property
    def rows(self) -> list[Row]:
        """Rows made so far, read or not."""
        return self._active.rows[:]

    @property
    def stop(self) -> ReplyStop | None:
        """Why it ended: "stop" (the model ended its turn), "length" (max_new), "context" (no more
        positions), "pages" (no page was left for it), "interrupted"; None while it goes on."""
        return self._active.stop

    def __aiter__(self) -> "ReplyStream":
        return self

    async def __anext__(self) -> Row:
        while isinstance(row := self._client.next_row(self._active, new_waiter), Waiter):
            try:
                await row.news
            except asyncio.CancelledError:
                self.cancel()
                raise
        if row is None:
            raise StopAsyncIteration
        return row

    def cancel(self) -> None:
        """Ends it now: no row is added to the conversation after this call. Those that were stay,
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
