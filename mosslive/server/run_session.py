"""Holding a session until somebody leaves, whatever carries it, and knowing why.

Its tasks run side by side; whichever ends first ends all. Knows no transport: a transport brings
its own tasks and says goodbye in its own way.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from mosslive.server.realtime.session import RealtimeSession
from mosslive.server.realtime.talk_events import TalkEventForwarder
from mosslive.server.server_state import ServerState

# As WebSockets number them; others have no better numbers.
NORMAL, GOING_AWAY, POLICY, INTERNAL = 1000, 1001, 1008, 1011


class SessionEnd(Exception):
    """Why we end a session."""

    def __init__(self, code: int, reason: str) -> None:
        self.code, self.reason = code, reason
        super().__init__(reason)


CLIENT_LEFT = "the client left"


async def run_session(
    server_state: ServerState,
    session: RealtimeSession,
    *works: Coroutine[Any, Any, None],
    delivered: Callable[[], Awaitable[None]],
    gone: tuple[type[Exception], ...] = (),
) -> SessionEnd:
    """Until somebody leaves, and why. `works`: the transport's; one that returns, or raises one of
    `gone`, means that the client left. `delivered`: until the client has all it was sent."""
    session.open()
    all_works = (
        *works,
        TalkEventForwarder(session).run(),
        _until(session.over, SessionEnd(INTERNAL, "the conversation failed")),
        _until(server_state.ended, SessionEnd(GOING_AWAY, "the server is shutting down")),
        _drained(server_state, session, delivered),
    )
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(work) for work in all_works]
    try:
        done, _ = await asyncio.wait(
            tasks, timeout=server_state.settings.max_session_s, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    if not done:
        leave = SessionEnd(POLICY, "the session has lasted as long as it may")
    else:
        # Several may end at once, the others because of the one that had a reason.
        told = sorted(done, key=lambda task: not isinstance(task.exception(), SessionEnd))
        leave = _why(told[0], session, gone)
    if leave.code in (POLICY, INTERNAL):
        server_state.metrics.dropped.labels(leave.reason).inc()
    return leave


def _why(
    task: "asyncio.Task[None]", session: RealtimeSession, gone: tuple[type[Exception], ...]
) -> SessionEnd:
    error = task.exception()
    if isinstance(error, SessionEnd):
        return error
    if error is None or isinstance(error, gone):
        return SessionEnd(NORMAL, CLIENT_LEFT)
    session.log.error("a session failed", exc_info=error)
    return SessionEnd(INTERNAL, "internal error")


async def _until(event: asyncio.Event, leave: SessionEnd) -> None:
    await event.wait()
    raise leave


async def _drained(
    server_state: ServerState, session: RealtimeSession, delivered: Callable[[], Awaitable[None]]
) -> None:
    """When the server ends, a session lasts until its responses are over and sent."""
    await server_state.draining.wait()
    await session.until(lambda: not session.busy)
    await delivered()
    raise SessionEnd(GOING_AWAY, "the server is shutting down")
