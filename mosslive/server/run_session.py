"""Runs a session over any transport until one side ends it, and reports the reason.

The tasks of a session run concurrently on the event loop; the first that ends cancels the others.
Does not know the transport, which brings its own tasks and closes its own connection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from mosslive.server.realtime.session import RealtimeSession
from mosslive.server.realtime.talk_events import TalkEventForwarder
from mosslive.server.server_state import DEVICE_LOST, ServerState

# Close codes of WebSocket (RFC 6455); other transports use the same numbers.
NORMAL, GOING_AWAY, POLICY, INTERNAL = 1000, 1001, 1008, 1011


class SessionEnd(Exception):
    """The reason for the end of a session, with its close code."""

    def __init__(self, code: int, reason: str) -> None:
        self.code, self.reason = code, reason
        super().__init__(reason)


CLIENT_LEFT = "the client left"


async def run_session(
    server_state: ServerState,
    session: RealtimeSession,
    *transport_work: Coroutine[Any, Any, None],
    delivered: Callable[[], Awaitable[None]],
    disconnects: tuple[type[Exception], ...] = (),
) -> SessionEnd:
    """Runs the session and returns why it ended.

    `transport_work`: the client left when one returns or raises one of `disconnects`.
    `delivered`: waits until the client has received everything that was sent.
    """
    session.open()
    all_work = (
        *transport_work,
        TalkEventForwarder(session).run(),
        _failed(server_state, session),
        _ended(server_state),
        _drained(server_state, session, delivered),
    )
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(work) for work in all_work]
    try:
        done, _ = await asyncio.wait(
            tasks, timeout=server_state.settings.max_session_s, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    if not done:
        end = SessionEnd(POLICY, "the session reached its maximum length")
    else:
        # Several may end at once, caused by the one that raised `SessionEnd`.
        by_cause = sorted(done, key=lambda task: not isinstance(task.exception(), SessionEnd))
        end = _end_of(by_cause[0], session, disconnects)
    if end.code in (POLICY, INTERNAL):
        server_state.metrics.dropped.labels(end.reason).inc()
    return end


def _end_of(
    task: "asyncio.Task[None]", session: RealtimeSession, disconnects: tuple[type[Exception], ...]
) -> SessionEnd:
    error = task.exception()
    if isinstance(error, SessionEnd):
        return error
    if error is None or isinstance(error, disconnects):
        return SessionEnd(NORMAL, CLIENT_LEFT)
    session.log.error("session failed", exc_info=error)
    return SessionEnd(INTERNAL, "internal error")


async def _failed(server_state: ServerState, session: RealtimeSession) -> None:
    await session.over.wait()
    if server_state.end_reason == DEVICE_LOST:  # which is why the conversation failed
        raise SessionEnd(GOING_AWAY, DEVICE_LOST)
    raise SessionEnd(INTERNAL, "the conversation failed")


async def _ended(server_state: ServerState) -> None:
    await server_state.ended.wait()
    raise SessionEnd(GOING_AWAY, server_state.end_reason)


async def _drained(
    server_state: ServerState, session: RealtimeSession, delivered: Callable[[], Awaitable[None]]
) -> None:
    """While the server drains, a session lasts until its responses are finished and sent."""
    await server_state.draining.wait()
    await session.until(lambda: not session.busy)
    await delivered()
    raise SessionEnd(GOING_AWAY, server_state.end_reason)
