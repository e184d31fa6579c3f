"""The limits of decoded audio files, and why one is refused. Data only, for every thread."""

from typing import Literal

MOST_CHANNELS = 8
MOST_RATE_HZ = 192_000

Refusal = Literal["unreadable", "too_long", "empty", "not_finite"]


class Refused(Exception):
    def __init__(self, code: Refusal) -> None:
        self.code: Refusal = code
        super().__init__(code)
