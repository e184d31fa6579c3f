"""A reply begun at a pause, before it is known that the user has finished.

It works in a branch of the dialogue and says nothing. Nobody can want it before the moment at which
the turn would be over; its work is due then, and goes behind all that is due before. Either the
turn turns out to be over, and the branch becomes the conversation; or the user goes on, and branch,
pages, tasks and sound go.
"""

from collections.abc import Awaitable, Callable

from mosslive.rows import ReplyKind
from mosslive.talk.dialogue import Dialogue
from mosslive.talk.dialogue_queue import DialogueQueue, Task
from mosslive.talk.reply import LiveReply
from mosslive.talk.user_turn import UserTurn

Give = Callable[[LiveReply, Callable[[], Awaitable[None]]], Awaitable[None]]


class SpeculativeReply:
    def __init__(self, listening: UserTurn, answer: LiveReply, due: float) -> None:
        """`due`: the moment at which the turn is over, if the user does not go on."""
        self.answer = answer
        self._due = due
        self.adopted = False
        self.failed = False
        self._listening = listening
        self._branch: Dialogue | None = None

    @property
    def ready(self) -> bool:
        """Whether there is something to adopt."""
        return self.answer.begun and not self.failed

    async def run(self) -> None:
        try:
            self._branch = await self._listening.branch(self.answer.stopwatch, self._due)
            await self.answer.run(self._branch)
        except Exception:
            self.failed = True
            raise
        finally:
            if not self.adopted:
                self._drop()

    def adopt(self) -> Dialogue:
        """The branch, which is the conversation from now on."""
        assert self._branch is not None, "adopted before it was ready"
        self.adopted = True
        return self._branch

    def _drop(self) -> None:
        if self.answer.sound:
            self.answer.sound.drop()
        if self._branch:
            self._branch.close()


class Speculation:
    """At most one trial at a time, and the task that runs it."""

    def __init__(self, queue: DialogueQueue, give: Give) -> None:
        """`give(answer, run)` runs what an answer does, and sees to what fails."""
        self._queue, self._give = queue, give
        self._current: tuple[SpeculativeReply, Task] | None = None

    def begin(self, speculative: SpeculativeReply) -> None:
        async def run() -> None:
            try:
                await speculative.run()
            except Exception:
                if speculative.adopted:
                    raise
                # Nobody was promised anything: the turn's end takes the ordinary way, and should
                # that fail too, the user is told then.

        task = self._queue.run_concurrently(lambda: self._give(speculative.answer, run))
        self._current = speculative, task

    def take(self, reply: ReplyKind) -> tuple[SpeculativeReply, Task] | None:
        """The one to adopt, if there is one of that kind; it is on trial no more."""
        if self._current is None:
            return None
        speculative, _ = self._current
        if not speculative.ready or speculative.answer.kind != reply:
            return None
        taken, self._current = self._current, None
        return taken

    def drop(self) -> None:
        """There is no reply on trial any more."""
        if self._current is not None:
            speculative, task = self._current
            self._current = None
            speculative.answer.stop()
            task.cancel()
