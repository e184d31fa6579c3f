"""Users of one device who let each other go first: while one is in a hurry, others hold back.

Two threads that keep a GPU busy at the same time slow each other down, also where one of them is
far ahead of its listeners. Each joins, says before every piece of work whether it is in a hurry,
and waits if it is not and another is. Nobody waits longer than the patience, so none can stall
another, whatever it does. Knows nothing of what is computed, and of threads only that one who waits
has a bell. Invariant: whoever waits is rung when the hurry of another ends.

| in a hurry | another is | waited    |       |
|------------|------------|-----------|-------|
| yes        | any        | any       | goes  |
| no         | no         | any       | goes  |
| no         | yes        | too long  | goes  |
| no         | yes        | not yet   | waits |
"""

import threading
import time
from collections.abc import Callable

# Shorter than a row of speech (80 ms): who is held back before every row still keeps up.
PATIENCE_S = 0.05


def may_go(urgent: bool, others_urgent: bool, waited_s: float, patience_s: float) -> bool:
    return urgent or not others_urgent or waited_s >= patience_s


class Courtesy:
    def __init__(
        self, patience_s: float = PATIENCE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.patience_s, self.clock = patience_s, clock
        self.lock = threading.Lock()
        self.guests: list[Guest] = []

    def join(self, bell: Callable[[], None]) -> "Guest":
        """A new user of the device. `bell` ends its waiting (`rest` of `give_way`), now or the next
        time; it is called from other threads."""
        guest = Guest(self, bell)
        with self.lock:
            self.guests.append(guest)
        return guest


class Guest:
    """One user of the device; its calls are made on one thread."""

    def __init__(self, courtesy: Courtesy, bell: Callable[[], None]) -> None:
        self._courtesy, self._bell = courtesy, bell
        self._urgent = self._waiting = False

    @property
    def asked(self) -> bool:
        """Whether another is in a hurry."""
        # Without the lock: a list is replaced or appended to in one go.
        return any(other._urgent for other in self._courtesy.guests if other is not self)

    def say(self, urgent: bool) -> None:
        """Whether what it does now, until it says otherwise, is in a hurry. False also if it does
        nothing."""
        if urgent == self._urgent:
            return
        with self._courtesy.lock:
            self._urgent = urgent
            others = [other for other in self._courtesy.guests if other is not self]
        if not urgent:
            for other in others:
                if other._waiting:
                    other._bell()

    def give_way(self, urgent: Callable[[], bool | None], rest: Callable[[float], object]) -> None:
        """Before its next work: returns when it may begin. `urgent`: whether it is in a hurry, None
        if there is nothing that could disturb anybody; asked again after each `rest`, which waits
        at most so many seconds for news, that is for work that comes or for the bell."""
        courtesy = self._courtesy
        began = courtesy.clock()
        try:
            while True:
                hurry = urgent()
                self.say(bool(hurry))
                with courtesy.lock:  # from here on, whoever stops hurrying rings
                    self._waiting = True
                waited_s = courtesy.clock() - began
                if hurry is None or may_go(hurry, self.asked, waited_s, courtesy.patience_s):
                    return
                rest(courtesy.patience_s - waited_s)
        finally:
            self._waiting = False

    def leave(self) -> None:
        """It uses the device no more. Again is fine."""
        self.say(False)
        with self._courtesy.lock:
            self._courtesy.guests = [one for one in self._courtesy.guests if one is not self]
