"""The served engine: many live conversations on one model, from any number of event loops.

Rows in, rows out; it knows nothing of audio. The thread "mosslive-engine" runs the model. See
docs/engine.md.
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
from mosslive.engine.graph_stepper import engine_stream
from mosslive.engine.health import Health
from mosslive.engine.load import load_stepper
from mosslive.engine.settings import EngineSettings
from mosslive.engine.state import EngineState
from mosslive.engine.step_costs import StepCosts
from mosslive.engine.stepper import Stepper
from mosslive.rows import END_OF_TEXT, PromptFormat, RowIds, TextTokenizer


@dataclass(frozen=True)
class EngineStats:
    """A snapshot; counters start with the engine."""

    conversations: int  # open
    replies: int  # active
    speaking: int  # active speech replies
    queued_rows: int  # appended, not computed yet
    pages: int
    free_pages: int  # neither taken nor reserved
    steps: int
    rows_made: int
    missed_deadlines: int  # speech rows computed after an underrun
    decode_step_s: float  # estimate for the active replies (at least one)
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
        """`threaded=False`: no thread; the owner of the engine calls `loop.step()`. `priority`:
        shared with other users of the device (default: a new one, which they may join)."""
        self.config = stepper.config
        self.tokenizer = tokenizer
        self.ids = RowIds.from_config(self.config, tokenizer.id_of(END_OF_TEXT))
        self.format = PromptFormat(tokenizer, self.ids)
        self.settings = settings or EngineSettings()
        context_rows = self.config.max_position_embeddings
        self._state = EngineState(stepper.pool, self.ids, context_rows, self.settings, clock)
        self._client = EngineClient(self._state)
        self.priority = priority or DevicePriority()
        self.loop = EngineLoop(stepper, self._state, self.priority)
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name="mosslive-engine", daemon=True)
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

    def _run(self) -> None:
        with engine_stream(self.loop.stepper):
            self.loop.run()

    def open(self) -> Conversation:
        """Returns a new, empty conversation. Raises `EngineFull` ("conversations", "closed")."""
        return Conversation(self._client, self._client.open())

    def rows_each(self, conversations: int) -> int:
        """Returns the rows that each of `conversations` may hold; 0 if the pool is too small."""
        return rows_each(self._state.pool, conversations, self.settings)

    def most_conversations(self, rows: int) -> int:
        """Returns how many conversations of `rows` rows fit into the pool."""
        return most_conversations(self._state.pool, rows, self.settings)

    def stats(self) -> EngineStats:
        state, loop = self._state, self.loop
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
                steps=loop.steps,
                rows_made=loop.rows_made,
                missed_deadlines=loop.missed,
                decode_step_s=state.decode_costs.seconds(max(1, replies), state.clock()),
                refusals=dict(state.refusals),
            )

    def stage_seconds(self) -> dict[str, float]:
        """See `stage_seconds.py`."""
        return {"prefill": self.loop.prefill_s, "decode": self.loop.decode_s}

    @property
    def costs(self) -> dict[str, StepCosts]:
        """Measured times of steps: "decode" by replies, "prefill" by rows."""
        return {"decode": self._state.decode_costs, "prefill": self.loop.limits.prefill}

    @property
    def health(self) -> Health:
        return self.loop.health

    def unavailable_reason(self) -> str | None:
        """Returns why no reply could start now although none is active; None if one could start,
        or if some are active."""
        return self._client.unavailable_reason()

    @property
    def device(self) -> EngineLoop:
        """Former name of `loop`."""
        return self.loop

    @property
    def courtesy(self) -> DevicePriority:
        """Former name of `priority`."""
        return self.priority

    async def close(self) -> None:
        """Ends every reply with `EngineFull` ("closed"), frees all pages and ends the thread."""
        self._client.close_all()
        if self._thread:
            await asyncio.to_thread(self._thread.join)
        else:
            self.loop.step()
            self.loop.device_user.leave()

    async def __aenter__(self) -> "Engine":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
