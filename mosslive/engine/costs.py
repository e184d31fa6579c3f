"""How long steps take: running estimates by size, from what was measured.

Sizes are grouped by powers of two, as captured graphs are. A size never seen is judged from the
nearest one that was, in the proportion of a first guess; so a wrong guess is soon put right by a
factor, and only its shape remains. Knows no clock: seconds come in.
"""

_WEIGHT = 0.2  # of the newest measurement


class Costs:
    def __init__(self, guess_ms: tuple[float, float]) -> None:
        """`guess_ms`: milliseconds of a step, and per row in it."""
        self._guess_ms = guess_ms
        self._seconds: dict[int, float] = {}  # by size class

    def observe(self, size: int, seconds: float) -> None:
        known = self._seconds.get(_class_of(size))
        change = 0.0 if known is None else _WEIGHT * (seconds - known)
        self._seconds[_class_of(size)] = seconds if known is None else known + change

    def seconds(self, size: int) -> float:
        """Estimate for a step of so many requests, or rows; nothing for none."""
        if not size:
            return 0.0
        wanted = _class_of(size)
        if not self._seconds:
            return self._guess(wanted)
        nearest = min(self._seconds, key=lambda known: (abs(known - wanted), known))
        proportion = self._guess(wanted) / self._guess(nearest)
        return self._seconds[nearest] * proportion

    def size_within(self, seconds: float, most: int) -> int:
        """The largest size, at most `most`, whose estimate is not above `seconds`; 0 if none. Only
        whole classes and `most` itself are tried: estimates do not tell sizes between apart."""
        size = most
        while size and self.seconds(size) > seconds:
            size = 2 ** (_class_of(size) - 1) if size > 1 else 0
        return size

    def _guess(self, size_class: int) -> float:
        once, each = self._guess_ms
        return (once + each * (1 << size_class)) / 1e3


def _class_of(size: int) -> int:
    """0 for 1, 1 for 2, 2 for 3 and 4, 3 for 5 to 8, and so on."""
    return (size - 1).bit_length()
