"""How a conversation tells what failed.

Known errors in their own words, others with their kind. Knows nothing of what is done about it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mosslive.errors import MossliveError
from mosslive.talk.events import Event, Stage, TalkFault


class Faults:
    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit

    def tell(self, turn: int, stage: Stage, error: Exception, fatal: bool = False) -> None:
        known = isinstance(error, MossliveError)
        message = str(error) if known else f"{type(error).__name__}: {error}"
        self._emit(TalkFault(turn, stage, message, fatal, error))

    @contextmanager
    def fatal(self, turn: int) -> Iterator[None]:
        """Where the dialogue itself cannot be changed, the conversation cannot go on."""
        try:
            yield
        except Exception as error:
            self.tell(turn, "memory", error, fatal=True)
