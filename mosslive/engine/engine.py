"""The served engine: many live conversations on one model, from any number of event loops.

Rows in, rows out; of audio it knows nothing. One thread owns the device. See docs/engine.md.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from mosslive.engine.allowance import most_conversations, rows_each
from mosslive.engine.client import EngineClient
from mosslive.engine.conversation import Conversation
from mosslive.engine.device_priority import DevicePriority
from mosslive.engine.engine_loop import EngineLoop
from mosslive.engine.errors import Reason
from mosslive.engine.health import Health
from mosslive.engine.load import load_stepper
from mosslive.engine.settings import EngineSettings
from mosslive.engine.state import EngineState
from mosslive.engine.stepper import Stepper
from mosslive.rows import END_OF_TEXT, PromptFormat, RowIds, TextTokenizer


@dataclass(frozen=True)
class EngineStats:
    """As of now; counts are since the engine began."""

    conversations: int  # open
    replies: int  # being made
    speaking: int  # of these, speech
    queued_rows: int  # appended and not computed yet
    pages: int
    free_pages: int  # neither taken nor promised
    steps: int
    rows_made: int
    missed_deadlines: int  # rows that came after their listener had heard everything
    decode_step_s: float  # running estimate for as many replies as are being made (at least one)
    refusals: dict[Reason, int]


class Engine:
    """`Engine.load(folder)`, then `open()` conversations; at the end `await close()`, or use it as
    an async context manager."""

    def __init__(
        self,
        stepper: Stepper,
        tokenizer: TextTokenizer,
        settings: EngineSettings | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        threaded: bool = True,
        priority: DevicePriority | None = None,
    ) -> None:
        """`threaded=False`: no thread; whoever made the engine calls `device.step()`. `priority`:
        of all who use the device; default: a new one, which others may join."""
        self.config = stepper.config
        self.tokenizer = tokenizer
        self.ids = RowIds.from_config(self.config, tokenizer.id_of(END_OF_TEXT))
        self.format = PromptFormat(tokenizer, self.ids)
        self.settings = settings or EngineSettings()
        longest = self.config.max_position_embeddings
        self._state = EngineState(stepper.pool, self.ids, longest, self.settings, clock)
        self._client = EngineClient(self._state)
        self.priority = priority or DevicePriority()
        self.device = EngineLoop(stepper, self._state, self.priority)
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self.device.run, name="mosslive", daemon=True)
            self._thread.start()

    @classmethod
    def load(
        cls,
        path: str | Path,
        device: str = "cpu",
        dtype: str | None = None,
        *,
        settings: EngineSettings | None = None,
        priority: DevicePriority | None = None,
        **options: Any,
    ) -> "Engine":
        """Reads an engine folder, which is checked, or a model folder in the published layout.
        Options: those of `load_stepper`."""
        stepper, tokenizer = load_stepper(path, device, dtype, **options)
        return cls(stepper, tokenizer, settings, priority=priority)

    def open(self) -> Conversation:
        """A new, empty conversation. Raises `EngineFull` ("conversations", "closed")."""
        return Conversation(self._client, self._client.open())

    def rows_each(self, conversations: int) -> int:
        """Rows that each of so many conversations may hold; 0 if the pool is too small."""
        return rows_each(self._state.pool, conversations, self.settings)

    def most_conversations(self, rows: int) -> int:
        """How many conversations of so many rows find pages at once."""
        return most_conversations(self._state.pool, rows, self.settings)

    def stats(self) -> EngineStats:
        state, device = self._state, self.device
        with state:
            replies = state.count_replies()
            return EngineStats(
                conversations=len(state.sequences),
                replies=replies,
                speaking=state.count_speaking(),
                queued_rows=sum(
                    len(sequence.rows) - sequence.computed
                    for sequence in state.active.values()
                    if sequence.has_pending
                ),
                pages=state.pool.total,
                free_pages=state.free_pages,
                steps=device.steps,
                rows_made=device.rows_made,
                missed_deadlines=device.missed,
                decode_step_s=state.decode.seconds(max(1, replies), state.clock()),
                refusals=dict(state.refusals),
            )

    @property
    def health(self) -> Health:
        return self.device.health

    def why_none(self) -> str | None:
        """Why not even one reply could begin now; None if one could, or if replies are being
        made."""
        return self._client.why_none()

    async def close(self) -> None:
        """Ends every reply with `EngineFull` ("closed"), gives all pages back, ends the thread."""
        self._client.close_all()
        if self._thread:
            await asyncio.to_thread(self._thread.join)
        else:
            self.device.step()
            self.device.device_user.leave()

    async def __aenter__(self) -> "Engine":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
