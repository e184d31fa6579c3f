"""A reply that begins at a pause, before it is known that the user has finished.

It runs in a branch of the dialogue and sends no event. It cannot be wanted before the moment at
which the turn would be over, so its work is due then and goes after all work that is due earlier.
If the turn ends, the branch becomes the conversation. If the user continues, the branch, its pages,
tasks and sound are dropped. `SpeculationRoom` decides whether there is room for one at all. Runs on
the event loop. Does not know when a pause begins or ends.
"""

from collections.abc import Awaitable, Callable

from mosslive.rows import ReplyKind
from mosslive.talk.dialogue import Dialogue
from mosslive.talk.dialogue_queue import DialogueQueue, Task
from mosslive.talk.reply import LiveReply
from mosslive.talk.user_turn import UserTurn

RunReply = Callable[[LiveReply, Callable[[], Awaitable[None]]], Awaitable[None]]


class SpeculativeReply:
    def __init__(self, user_turn: UserTurn, reply: LiveReply, due: float) -> None:
        """`due`: the moment at which the turn is over, if the user does not continue."""
        self.reply = reply
        self._due = due
        self.adopted = False
        self.failed = False
        self._user_turn = user_turn
        self._branch: Dialogue | None = None

    @property
    def ready(self) -> bool:
        """Whether it can be adopted."""
        return self.reply.begun and not self.failed

    async def run(self) -> None:
        try:
            self._branch = await self._user_turn.branch(self.reply.stopwatch, self._due)
            await self.reply.run(self._branch)
        except Exception:
            self.failed = True
            raise
        finally:
            if not self.adopted:
                self._drop()

    def adopt(self) -> Dialogue:
        """Returns the branch, which is the conversation from now on."""
        assert self._branch is not None, "adopted before it was ready"
        self.adopted = True
        return self._branch

    def _drop(self) -> None:
        if self.reply.sound:
            self.reply.sound.drop()
        if self._branch:
            self._branch.close()


class SpeculationRoom:
    """How many speculative replies run, of all conversations that share it. They cost what replies
    cost, and some are for nothing, so a busy server has no room for them."""

    def __init__(self, fits: Callable[[int], bool] = lambda running: True) -> None:
        """`fits(running)`: whether one more can run beside so many."""
        self.fits = fits
        self.running = 0  # neither adopted nor dropped
        self.adopted = self.dropped = 0  # so far

    def is_free(self) -> bool:
        return self.fits(self.running)


class Speculation:
    """At most one speculative reply of a conversation at a time, and the task that runs it."""

    def __init__(self, queue: DialogueQueue, run_reply: RunReply, room: SpeculationRoom) -> None:
        """`run_reply(reply, run)` awaits `run()` and handles its errors."""
        self._queue, self._run_reply, self._room = queue, run_reply, room
        self._current: tuple[SpeculativeReply, Task] | None = None

    @property
    def has_room(self) -> bool:
        return self._current is None and self._room.is_free()

    def begin(self, speculative: SpeculativeReply) -> None:
        async def run() -> None:
            try:
                await speculative.run()
            except Exception:
                if speculative.adopted:
                    raise
                # Not reported: at the end of the turn an ordinary reply begins; if that fails too,
                # its fault is reported.

        task = self._queue.run_concurrently(lambda: self._run_reply(speculative.reply, run))
        self._current = speculative, task
        self._room.running += 1

    def take(self, kind: ReplyKind) -> tuple[SpeculativeReply, Task] | None:
        """Removes and returns the speculative reply, if one of that kind is ready."""
        if self._current is None:
            return None
        speculative, _ = self._current
        if not speculative.ready or speculative.reply.kind != kind:
            return None
        taken, self._current = self._current, None
        self._room.running -= 1
        self._room.adopted += 1
        return taken

    def drop(self) -> None:
        """Idempotent."""
        if self._current is not None:
            speculative, task = self._current
            self._current = None
            self._room.running -= 1
            self._room.dropped += 1
            speculative.reply.stop()
            task.cancel()
