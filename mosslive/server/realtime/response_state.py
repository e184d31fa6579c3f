"""Which response writes to the conversation, and which responses are made by tasks.

Used on the event loop of the session only. Knows response ids and turn numbers. Sends no event,
starts no task and does not call `Talk`: it asks for `replying` only.

At any time a session is in one phase:

| phase    | the response that writes to the conversation                          | replying |
|----------|-----------------------------------------------------------------------|----------|
| NONE     | none                                                                  | no       |
| EXPECTED | none yet: the user's turn is over and `Talk` prepares the reply       | yes      |
| ACTIVE   | a reply of `Talk` (or its transcript) is sent                         | any      |
| ONE_SHOT | a reply with a context of its own is sent; a task makes it            | any      |
| ENDING   | none: `response.done` is sent, `Talk` still plays the end of the sound | yes      |

Methods make the transitions. A call in another phase is a bug of ours and fails an assertion:

| method             | legal in                  | phase afterwards                            |
|--------------------|---------------------------|---------------------------------------------|
| `expect`           | every phase               | EXPECTED, or unchanged while one is sent    |
| `begin`            | NONE, EXPECTED, ENDING    | ACTIVE                                      |
| `begin_one_shot`   | NONE                      | ONE_SHOT                                    |
| `end`              | every phase, after `done` | NONE, EXPECTED or ENDING; unchanged if the  |
|                    |                           | response no longer writes                   |
| `cancel_by_client` | ACTIVE                    | ACTIVE, until `Talk` reports the interrupt  |
| `use_voice`        | ACTIVE                    | ACTIVE; the voice cannot change any more    |
"""

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import Literal

from mosslive.server.realtime.response_output import ResponseEvents

CancelReason = Literal["client_cancelled", "turn_detected"]


class Phase(Enum):
    NONE = auto()
    EXPECTED = auto()
    ACTIVE = auto()
    ONE_SHOT = auto()
    ENDING = auto()


class ResponseState:
    def __init__(self, replying: Callable[[], bool]) -> None:
        """`replying`: whether `Talk` prepares or plays a reply."""
        self._voice_used = False
        self._replying = replying
        self._active: ResponseEvents | None = None
        self._one_shot = False  # whether a task makes the active response
        self._latest_turn = 0  # of the active response, or else of the last one; 0: of a task
        self._expected_turn = 0  # the latest turn of the user
        self._awaited_turn: int | None = None  # the same, until its response begins
        self._client_cancels = False
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by response id

    @property
    def phase(self) -> Phase:
        if self._active:
            return Phase.ONE_SHOT if self._one_shot else Phase.ACTIVE
        if not self._replying():
            return Phase.NONE
        return Phase.EXPECTED if self._expected_turn > self._latest_turn else Phase.ENDING

    @property
    def active(self) -> ResponseEvents | None:
        """The response that writes to the conversation."""
        return self._active

    @property
    def expected_turn(self) -> int:
        """The latest turn of the user."""
        return self._expected_turn

    def awaits(self, turn: int) -> bool:
        """Whether this turn of the user is over and no response to it has begun."""
        return turn == self._awaited_turn

    def of_turn(self, turn: int) -> ResponseEvents | None:
        """The active response if it sends the reply to this turn."""
        return self._active if self._latest_turn == turn else None

    def turn_of(self, response_id: str) -> int | None:
        """The turn of an active reply of `Talk`; None for every other response."""
        known = self._active is not None and self._active.id == response_id
        return self._latest_turn if known and self.phase is Phase.ACTIVE else None

    def is_latest(self, turn: int) -> bool:
        """Whether no later response has begun. True also after the response is done."""
        return turn == self._latest_turn

    @property
    def voice_used(self) -> bool:
        """Whether `Talk` has produced sound, so that the voice cannot change any more."""
        return self._voice_used

    # Transitions.

    def expect(self, turn: int) -> None:
        """The user's turn is over."""
        self._expected_turn = self._awaited_turn = turn

    def begin(self, response: ResponseEvents, turn: int) -> None:
        """`Talk` replies to this turn."""
        assert self._active is None, "one response at a time writes to the conversation"
        self._active, self._latest_turn, self._one_shot = response, turn, False
        self._awaited_turn = None

    def begin_one_shot(self, response: ResponseEvents) -> None:
        """A task is going to make the reply; `add_task` follows."""
        assert self.phase is Phase.NONE, "a one-shot reply waits until Talk does not reply"
        self._active, self._latest_turn, self._one_shot = response, 0, True

    def end(self, response: ResponseEvents) -> None:
        """The response is done. No effect if it does not write to the conversation any more."""
        assert response.over, "a response ends after response.done"
        if self._active is response:
            self._active = None

    def cancel_by_client(self) -> None:
        """The next interruption that `Talk` reports is the client's."""
        assert self.phase is Phase.ACTIVE, "only a reply of Talk is interrupted"
        self._client_cancels = True

    def use_voice(self) -> None:
        """`Talk` has produced sound of the active response."""
        assert self.phase is Phase.ACTIVE, "Talk's sound belongs to an active response"
        self._voice_used = True

    def take_cancel_reason(self) -> CancelReason:
        """Why `Talk` has interrupted its reply."""
        reason: CancelReason = "client_cancelled" if self._client_cancels else "turn_detected"
        self._client_cancels = False
        return reason

    # Tasks: of responses outside the conversation, and of one-shot replies inside it.

    @property
    def tasks(self) -> int:
        return len(self._tasks)

    def add_task(self, response_id: str, task: "asyncio.Task[None]") -> None:
        assert response_id not in self._tasks, "one task makes one response"
        self._tasks[response_id] = task

    def remove_task(self, response_id: str) -> None:
        del self._tasks[response_id]

    def cancel_task(self, response_id: str | None) -> bool:
        """Cancels the task that makes this response. False: no task makes it."""
        task = self._tasks.get(response_id) if response_id is not None else None
        if task:
            task.cancel()
        return task is not None
