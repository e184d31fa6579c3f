"""`/v1/realtime/calls` and `/v1/realtime/ice_servers`: start and end calls over WebRTC.

HTTP handlers on the event loop, and `Calls`, which keeps the running calls. Does not know what
happens inside a call.
"""

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mosslive.errors import MossliveError
from mosslive.server.access import wants_beta
from mosslive.server.api_errors import ApiError, as_api_error
from mosslive.server.realtime.beta_events import session_from_beta
from mosslive.server.realtime.config import with_intent
from mosslive.server.realtime.session import Client
from mosslive.server.requests import bearer_of, state_of
from mosslive.server.server_state import ServerState
from mosslive.server.webrtc.call import Call
from mosslive.server.webrtc.offer import ice_server, merge, read_call, without_formats


class Calls:
    """The running calls, one task each."""

    def __init__(self, server_state: ServerState) -> None:
        self.ice = [ice_server(text) for text in server_state.settings.ice_servers]
        self._calls: dict[str, Call] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, call: Call, slot: ExitStack) -> None:
        """Starts the task of a call. When the call ends, it closes `slot`."""

        async def run() -> None:
            with slot:
                try:
                    await call.run()
                finally:
                    del self._calls[call.id]

        self._calls[call.id] = call
        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def find(self, call_id: str, owner: str) -> Call:
        call = self._calls.get(call_id)
        if call is None or call.owner != owner:  # hides calls of other keys
            raise ApiError(f"call {call_id[:80]!r} does not exist", "call_not_found", status=404)
        return call

    async def close(self) -> None:
        """Ends all calls and waits for their tasks."""
        for call in self._calls.values():
            call.hang_up()
        if self._tasks:
            await asyncio.wait(self._tasks)


def calls_of(request: Request) -> Calls:
    calls: Calls = request.app.state.calls
    return calls


async def create(request: Request) -> Response:
    """Takes an SDP offer and starts a call. Returns the SDP answer."""
    server_state, bearer, calls = state_of(request), bearer_of(request), calls_of(request)
    offer, given = await read_call(request)
    beta = wants_beta(request.headers, ())
    given = session_from_beta(given) if beta else given
    intent = request.query_params.get("intent")
    requested = with_intent(merge(bearer.session, given), intent) or {}
    model = request.query_params.get("model") or requested.get("model")
    client = Client(bearer.owner, beta, model if isinstance(model, str) else None)
    client = replace(client, session=without_formats(requested) or None)
    with ExitStack() as slot:
        slot.enter_context(server_state.slots.take(bearer.owner))
        try:
            call = Call(server_state, client, calls.ice)
        except MossliveError as error:
            raise as_api_error(error) from None
        try:
            answer = await call.answer(offer)
        except BaseException:
            await call.close()
            raise
        calls.start(call, slot.pop_all())
    where = {"location": f"/v1/realtime/calls/{call.id}"}
    return Response(answer, 201, where, media_type="application/sdp")


async def hang_up(request: Request) -> Response:
    calls_of(request).find(request.path_params["call"], bearer_of(request).owner).hang_up()
    return Response(status_code=200)


async def ice_servers(request: Request) -> Response:
    """The ICE servers, as `RTCPeerConnection` takes them. Needs a key: TURN passwords are among
    them."""
    shown: list[dict[str, Any]] = []
    for one in calls_of(request).ice:
        shown.append({"urls": one.urls})
        if one.username:
            shown[-1] |= {"username": one.username, "credential": one.credential}
    return JSONResponse({"iceServers": shown})
