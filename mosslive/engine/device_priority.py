"""Priority among the threads that share a device: while one has urgent work, the others yield.

Two threads that keep a device busy slow each other down, even if one of them is far ahead of its
listener. On a GPU the priorities of CUDA streams do most of it: there only first sounds are urgent
for the codec, and only the language model waits for them. Each thread joins as a `DeviceUser`.
Before every piece of work it states whether that work is urgent, and it waits if its own work is
not urgent and another user's is. No user waits longer than `max_wait_s` at a time, so no user can
block another.

| own work urgent | another user urgent | waited          | result |
|-----------------|---------------------|-----------------|--------|
| yes             | any                 | any             | run    |
| no              | no                  | any             | run    |
| no              | yes                 | max_wait_s      | run    |
| no              | yes                 | less than that  | wait   |

Knows nothing of what is computed. A user passes in how it waits and how another thread wakes it.
Invariant: when a user's urgent work ends, every user that waits is woken.
"""

import threading
import time
from collections.abc import Callable

# Shorter than a row of speech (80 ms): a user that waits before every row still keeps up.
MAX_WAIT_S = 0.05


def may_run(urgent: bool, others_urgent: bool, waited_s: float, max_wait_s: float) -> bool:
    return urgent or not others_urgent or waited_s >= max_wait_s


class DevicePriority:
    def __init__(
        self, max_wait_s: float = MAX_WAIT_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.max_wait_s, self.clock = max_wait_s, clock
        self.lock = threading.Lock()
        self.users: list[DeviceUser] = []

    def join(self, wake: Callable[[], None]) -> "DeviceUser":
        """Adds a user of the device. `wake` ends its current wait (`wait` of `yield_device`), or
        its next one. Other threads call it."""
        user = DeviceUser(self, wake)
        with self.lock:
            self.users.append(user)
        return user


class DeviceUser:
    """One user of the device. One thread makes all calls of one user."""

    def __init__(self, priority: DevicePriority, wake: Callable[[], None]) -> None:
        self._priority, self._wake = priority, wake
        self._urgent = self._waiting = False

    @property
    def others_urgent(self) -> bool:
        """Whether another user has urgent work."""
        # Without the lock: the list is replaced, or appended to, atomically.
        return any(other._urgent for other in self._priority.users if other is not self)

    def set_urgent(self, urgent: bool) -> None:
        """States whether this user's work is urgent, from now until the next call. An idle user is
        not urgent."""
        if urgent == self._urgent:
            return
        with self._priority.lock:
            self._urgent = urgent
            others = [other for other in self._priority.users if other is not self]
        if not urgent:
            for other in others:
                if other._waiting:
                    other._wake()

    def yield_device(
        self, urgent: Callable[[], bool | None], wait: Callable[[float], object]
    ) -> None:
        """Returns when this user may start its next work.

        `urgent` returns whether that work is urgent, or None if there is nothing to do that could
        slow another user down. It is called again after each `wait`. `wait(seconds)` returns after
        at most that time, earlier if new work arrives or `wake` is called."""
        priority = self._priority
        began = priority.clock()
        try:
            while True:
                urgent_now = urgent()
                self.set_urgent(bool(urgent_now))
                with priority.lock:  # from here on, a user whose urgent work ends calls `wake`
                    self._waiting = True
                waited_s = priority.clock() - began
                if urgent_now is None or may_run(
                    urgent_now, self.others_urgent, waited_s, priority.max_wait_s
                ):
                    return
                wait(priority.max_wait_s - waited_s)
        finally:
            self._waiting = False

    def leave(self) -> None:
        """Removes this user. Idempotent."""
        self.set_urgent(False)
        with self._priority.lock:
            self._priority.users = [one for one in self._priority.users if one is not self]
