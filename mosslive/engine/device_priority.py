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


class DevicePriority:
    def __init__(
        self, patience_s: float = PATIENCE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.patience_s, self.clock = patience_s, clock
        self.lock = threading.Lock()
        self.users: list[DeviceUser] = []

    def join(self, wake: Callable[[], None]) -> "DeviceUser":
        """Adds a user of the device. `wake` ends its waiting (`rest` of `yield_device`), now or
        the next time; other threads call it."""
        device_user = DeviceUser(self, wake)
        with self.lock:
            self.users.append(device_user)
        return device_user


class DeviceUser:
    """One user of the device; its calls are made on one thread."""

    def __init__(self, priority: DevicePriority, wake: Callable[[], None]) -> None:
        self._courtesy, self._wake = priority, wake
        self._urgent = self._waiting = False

    @property
    def asked(self) -> bool:
        """Whether another is in a hurry."""
        # Without the lock: a list is replaced or appended to in one go.
        return any(other._urgent for other in self._courtesy.users if other is not self)

    def say(self, urgent: bool) -> None:
        """Whether what it does now, until it says otherwise, is in a hurry. False also if it does
        nothing."""
        if urgent == self._urgent:
            return
        with self._courtesy.lock:
            self._urgent = urgent
            others = [other for other in self._courtesy.users if other is not self]
        if not urgent:
            for other in others:
                if other._waiting:
                    other._wake()

    def yield_device(
        self, urgent: Callable[[], bool | None], rest: Callable[[float], object]
    ) -> None:
        """Before its next work: returns when it may begin. `urgent`: whether it is in a hurry, None
        if there is nothing that could disturb anybody; asked again after each `rest`, which waits
        at most so many seconds for news, that is for work that comes or for the bell."""
        priority = self._courtesy
        began = priority.clock()
        try:
            while True:
                urgent_now = urgent()
                self.say(bool(urgent_now))
                with priority.lock:  # from here on, whoever stops hurrying rings
                    self._waiting = True
                waited_s = priority.clock() - began
                if urgent_now is None or may_go(
                    urgent_now, self.asked, waited_s, priority.patience_s
                ):
                    return
                rest(priority.patience_s - waited_s)
        finally:
            self._waiting = False

    def leave(self) -> None:
        """It uses the device no more. Again is fine."""
        self.say(False)
        with self._courtesy.lock:
            self._courtesy.users = [one for one in self._courtesy.users if one is not self]
