"""A reply begun at a pause, before it is known that the user has finished.

It works in a branch of the dialogue and says nothing. Either the turn turns out to be over, and the
branch becomes the conversation; or the user goes on, and branch, pages, tasks and sound go.
"""

from mosslive.talk.answer import Answer
from mosslive.talk.dialogue import Dialogue
from mosslive.talk.listening import Listening


class Trial:
    def __init__(self, listening: Listening, answer: Answer) -> None:
        self.answer = answer
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
            self._branch = await self._listening.branch(self.answer.stopwatch)
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
