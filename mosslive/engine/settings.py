"""Settings of the served engine: how far ahead speech is kept, who may wait, what is refused.

Numbers only; what they do is written where they are used, in `schedule` and `books`.
"""

from dataclasses import dataclass

from mosslive.config import SECONDS_PER_CODE, refuse
from mosslive.config.files import is_positive_number


@dataclass(frozen=True)
class EngineSettings:
    """Times in seconds, lengths in rows (12.5 a second of speech)."""

    max_conversations: int = 1024  # open at once
    max_speaking: int = 256  # speech replies being made at once
    buffer_rows: int = 4  # lead over the listener's ear that speech is kept at
    first_rows: int = 8  # of a stretch of speech, for which the device's other users wait
    ahead_rows: int = 50  # rows a reply may be ahead of its reader before it rests
    headroom_rows: int = 125  # room to grow, per reply being made, that new work must leave free
    deadline_margin: float = 0.8  # of a row's 80 ms: the longest step that admission plans for
    gather_s: float = 0.24  # rows heard wait so long for company while somebody speaks
    text_wait_s: float = 0.5  # between two text rows before text is as urgent as speech
    patience_s: float = 0.5  # rows overdue by this are run even if speech then runs dry
    least_rows: int = 16  # how many of them in one step
    # What a step is thought to cost until it has been measured: milliseconds, and per row.
    decode_guess_ms: tuple[float, float] = (3.0, 0.02)
    prefill_guess_ms: tuple[float, float] = (3.0, 0.02)

    def __post_init__(self) -> None:
        for name in ("max_conversations", "max_speaking", "ahead_rows", "least_rows"):
            self._integer(name, 1)
        for name in ("buffer_rows", "first_rows", "headroom_rows"):
            self._integer(name, 0)
        for name in ("gather_s", "text_wait_s", "patience_s"):
            value = getattr(self, name)
            if value != 0 and not is_positive_number(value):
                raise refuse(name, value, "0 or more seconds")
        margin = self.deadline_margin
        if not is_positive_number(margin) or margin > 1:
            raise refuse("deadline_margin", margin, "above 0 and at most 1")
        for name in ("decode_guess_ms", "prefill_guess_ms"):
            value = getattr(self, name)
            if (
                not isinstance(value, tuple)
                or len(value) != 2
                or not all(map(is_positive_number, value))
            ):
                raise refuse(name, value, "two numbers above 0: ms, and ms per row")

    def _integer(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if type(value) is not int or value < least:
            raise refuse(name, value, f"an integer, {least} or more")

    @property
    def longest_step_s(self) -> float:
        return self.deadline_margin * SECONDS_PER_CODE
