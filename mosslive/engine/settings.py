"""Settings of the served engine: limits, buffers and waiting times.

Numbers and their checks only. `scheduler` and `client` apply them.
"""

from dataclasses import dataclass

from mosslive.config import SECONDS_PER_CODE, refuse
from mosslive.config.files import is_positive_number


@dataclass(frozen=True)
class EngineSettings:
    """Times are in seconds, lengths in rows (12.5 rows are one second of speech)."""

    max_conversations: int = 1024  # open at once
    max_speaking: int = 256  # active speech replies
    buffer_rows: int = 4  # rows that speech is kept ahead of its playout
    # Speech that is so far ahead of its playout waits for the first rows of others. The codec needs
    # 8 rows for the first sound, 5 for each further 0.4 s, and time to render them.
    spare_rows: int = 18
    first_rows: int = 8  # first rows of a stretch of speech, before its listener hears anything
    # Small steps of speech that is ahead are spread out if enough replies speak (`rest_from`): the
    # model reads all weights for one row or for sixteen (`rest_below`). With 32 ms a reply still
    # gets its rows 2.5 times as fast as they are played.
    rest_s: float = 0.032
    rest_from: int = 4
    rest_below: int = 16
    ahead_rows: int = 50  # unread rows at which a reply pauses
    headroom_rows: int = 125  # per active reply, kept free by admission for its growth
    deadline_margin: float = 0.8  # longest step that admission accepts, as a share of a row's 80 ms
    admit_slow_steps: bool = False  # accept speech replies even if steps take longer
    gather_s: float = 0.24  # appended rows wait this long for a larger batch while a reply speaks
    text_wait_s: float = 0.5  # after a text row, until the next one is as urgent as speech
    patience_s: float = 0.5  # prefill overdue by this runs even if speech underruns
    least_rows: int = 16  # rows of such overdue prefill per step
    # Estimated cost of a step before the first measurement: milliseconds, and milliseconds per row.
    decode_guess_ms: tuple[float, float] = (3.0, 0.02)
    prefill_guess_ms: tuple[float, float] = (3.0, 0.02)

    def __post_init__(self) -> None:
        for name in (
            "max_conversations",
            "max_speaking",
            "rest_from",
            "rest_below",
            "ahead_rows",
            "least_rows",
        ):
            self._integer(name, 1)
        for name in ("buffer_rows", "spare_rows", "first_rows", "headroom_rows"):
            self._integer(name, 0)
        for name in ("rest_s", "gather_s", "text_wait_s", "patience_s"):
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
