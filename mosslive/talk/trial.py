"""A reply begun at a pause, before it is known that the user has finished.

It works in a branch of the dialogue and says nothing. Nobody can want it before the moment at which
the turn would be over; its work is due then, and goes behind all that is due before. Either the
turn turns out to be over, and the branch becomes the conversation; or the user goes on, and branch,
pages, tasks and sound go.
"""

from collections.abc import Awaitable, Callable

from mosslive.rows import Reply
from mosslive.talk.answer import Answer
from mosslive.talk.dialogue import Dialogue
from mosslive.talk.floor import Floor, Task
from mosslive.talk.listening import Listening

Give = Callable[[Answer, Callable[[], Awaitable[None]]], Awaitable[None]]


class Trial:
    def __init__(self, listening: Listening, answer: Answer, due: float) -> None:
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


class Trials:
    """At most one trial at a time, and the task that runs it."""

    def __init__(self, floor: Floor, give: Give) -> None:
        """`give(answer, run)` runs what an answer does, and sees to what fails."""
        self._floor, self._give = floor, give
        self._current: tuple[Trial, Task] | None = None

    def begin(self, trial: Trial) -> None:
        async def run() -> None:
            try:
                await trial.run()
            except Exception:
                if trial.adopted:
                    raise
                # Nobody was promised anything: the turn's end takes the ordinary way, and should
                # that fail too, the user is told then.

        task = self._floor.beside(lambda: self._give(trial.answer, run))
        self._current = trial, task

    def take(self, reply: Reply) -> tuple[Trial, Task] | None:
        """The one to adopt, if there is one of that kind; it is on trial no more."""
        if self._current is None:
            return None
        trial, _ = self._current
        if not trial.ready or trial.answer.kind != reply:
            return None
        taken, self._current = self._current, None
        return taken

    def drop(self) -> None:
        """There is no reply on trial any more."""
        if self._current is not None:
            trial, task = self._current
            self._current = None
            trial.answer.stop()
            task.cancel()
