"""The state that all endpoints share: settings, keys, slots, metrics, and the loaded backend.

States: loading → ready → draining. Used on the event loop only. Does not know protocols or the web
framework.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Literal

from mosslive.engine.health import Problem
from mosslive.server.access import AccessCheck
from mosslive.server.admission import RETRY_S, Admission
from mosslive.server.api_errors import ApiError
from mosslive.server.backend import Backend
from mosslive.server.capacity import Capacity, Promise
from mosslive.server.keys import KeyStore
from mosslive.server.metrics import Metrics
from mosslive.server.overload import is_overloaded
from mosslive.server.reply_store import ReplyStore
from mosslive.server.settings import ServerSettings
from mosslive.server.slots import Slots
from mosslive.talk.cpu_threads import usable_cores

State = Literal["loading", "ready", "draining"]
SHUTTING_DOWN = "the server is shutting down"
DEVICE_LOST = "the server's device failed; the server ends"

_log = logging.getLogger("mosslive.server")


class ServerState:
    def __init__(
        self,
        settings: ServerSettings,
        load: Callable[[], Awaitable[Backend]],
        keys: KeyStore | None = None,
    ) -> None:
        """`load`: loads the model; awaited after the server listens, so that `/health` answers."""
        self.settings = settings
        self.keys = keys or KeyStore(settings.api_keys)
        self.access = AccessCheck(settings, self.keys)
        self.metrics = Metrics()
        self.replies = ReplyStore()  # spoken ones of chat completions
        # Without keys all clients are one owner, so only the total limit applies.
        per_key = settings.max_sessions_per_key if self.keys.needed else settings.max_sessions
        most = settings.max_requests
        self.slots = Slots("sessions", settings.max_sessions, per_key, self.check)
        self.requests = Slots("requests", most, most, self.check)
        self.draining = asyncio.Event()
        self.ended = asyncio.Event()  # sessions that are still open must close now
        self.end_reason = SHUTTING_DOWN  # what clients of open sessions are told
        self.on_device_lost: Callable[[str], object] | None = None  # called on another thread
        self.telling: asyncio.Task[None] | None = None  # clients, that the device is lost
        self._load = load
        self._backend: Backend | None = None
        self._admission: Admission | None = None

    @property
    def state(self) -> State:
        if self.draining.is_set():
            return "draining"
        return "ready" if self._backend else "loading"

    @property
    def loaded(self) -> bool:
        return self._backend is not None

    @property
    def backend(self) -> Backend:
        if self._backend is None:
            code = "loading"
            message = "The server is still loading the model; try again in a few seconds."
            raise ApiError(message, code, kind="server_error", status=503)
        return self._backend

    def problem(self) -> Problem | None:
        """Why the loaded model cannot serve; None if it can."""
        parts = self._backend.parts() if self._backend else {}
        problems = [problem for part in parts.values() if (problem := part.problem())]
        return max(problems, key=lambda problem: problem.final, default=None)

    def capacity(self) -> Capacity | None:
        """How many conversations the server holds at present; None: nothing was measured, as in a
        server without sound."""
        return self._admission.capacity() if self._admission else None

    def check(self, speaks: bool = True) -> None:
        """Raises `ApiError` if no new session or request can be served. `speaks`: it may produce
        sound.

        A part does not work, the server holds no further conversation, or it is overloaded. A
        server without sessions and requests accepts one.
        """
        if problem := self.problem():
            raise ApiError(
                f"{problem.message}; try again later",
                "server_failed",
                kind="server_error",
                status=503,
            )
        codec = self._backend.codec if self._backend else None
        active = self.slots.taken + self.requests.taken
        if not (active and codec) or self.settings.admit_overload:
            return
        inside = self.slots.speaking + self.requests.speaking
        if speaks and self._admission and (reason := self._admission.refusal(inside)):
            raise ApiError(reason, "overloaded", kind="server_error", status=429, retry_s=RETRY_S)
        if is_overloaded(codec.production.samples, time.monotonic()):
            raise ApiError(
                f"The server is overloaded by {active} sessions and requests; try again in 1 s.",
                "overloaded",
                kind="server_error",
                status=429,
            )

    def has_spare_room(self, speculating: int) -> bool:
        """Whether a session may begin a speculative reply beside so many others: each counts as a
        further conversation, so that nobody else notices it."""
        codec = self._backend.codec if self._backend else None
        if codec is None or self.draining.is_set():
            return False
        if self._admission:
            inside = self.slots.speaking + self.requests.speaking
            if inside + speculating >= self._admission.capacity().conversations:
                return False
        return not is_overloaded(codec.production.samples, time.monotonic())

    async def open(self) -> None:
        """Loads the backend and applies its limits; the server is ready afterwards."""
        backend = await self._load()
        for part in backend.parts().values():
            part.on_device_lost = self.on_device_lost
        self.metrics.watch(backend.engine.stats, _gpu_bytes, backend.parts(), backend.stage_seconds)
        codec = backend.codec
        self.metrics.watch_held(
            lambda: len(asyncio.all_tasks()),
            lambda: (codec.open_turns, codec.open_replies) if codec else (0, 0),
        )
        limits = backend.limits
        self.slots.lower(limits.sessions)
        self.requests.lower(limits.requests)
        if backend.times:
            most = limits.sessions + limits.requests
            promise = Promise(self.settings.promise_ttfa_ms / 1000, _threads(backend))
            self._admission = Admission(backend.times, backend.costs, most, promise)
            self.metrics.watch_capacity(self._admission.capacity)
        backend.room.fits = self.has_spare_room
        self.metrics.watch_speculation(backend.room)
        self._backend = backend
        if limits.sessions < self.settings.max_sessions:
            _log.warning(
                "the page pool has room for %d sessions and %d requests at once; max_sessions is "
                "%d and max_requests is %d",
                *(limits.sessions, limits.requests),
                *(self.settings.max_sessions, self.settings.max_requests),
            )
        if not backend.speaks:
            _log.warning(
                "no voice: the server replies in text only; set --voice"
                if backend.codec
                else "no codec: the server accepts and produces text only; set --codec"
            )
        held = {"capacity": self._admission.at_start.document()} if self._admission else {}
        _log.info("ready", extra={"model": self.settings.name} | limits.document() | held)

    async def drain(self, most_s: float | None = None) -> None:
        """Refuses new work, waits up to `most_s` (default: `drain_s`) for running work, then ends
        all sessions. Idempotent."""
        if self.draining.is_set():
            return
        self.draining.set()
        self.slots.closed = self.requests.closed = True
        _log.info("draining", extra={"sessions": self.slots.taken})
        try:
            async with asyncio.timeout(self.settings.drain_s if most_s is None else most_s):
                await self.slots.emptied()
                await self.requests.emptied()
        except TimeoutError:
            _log.warning("closing sessions that did not finish", extra={"left": self.slots.taken})
        self.ended.set()

    async def close(self) -> None:
        """Ends all sessions and closes the backend."""
        self.ended.set()
        if self._backend:
            await self._backend.close()


def _threads(backend: Backend) -> int:
    """How many of the engine's and the codec's threads compute at the same time."""
    on_gpu = backend.codec is not None and backend.codec.codec.device.type == "cuda"
    return 1 if on_gpu else min(2, usable_cores())


def _gpu_bytes() -> int | None:
    import torch

    if not torch.cuda.is_available():
        return None
    free, total = torch.cuda.mem_get_info()
    return int(total - free)
