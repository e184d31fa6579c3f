"""`/v1/realtime/calls`: a call begins, is hung up; and the ICE servers a browser needs for it."""

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
from mosslive.server.realtime.session import Client
from mosslive.server.requests import bearer_of, state_of
from mosslive.server.server_state import ServerState
from mosslive.server.webrtc.call import Call
from mosslive.server.webrtc.offer import ice_server, over, read_call, without_formats


class Calls:
    """The calls that are being held."""

    def __init__(self, server_state: ServerState) -> None:
        self.ice = [ice_server(text) for text in server_state.settings.ice_servers]
        self._held: dict[str, Call] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def hold(self, call: Call, seat: ExitStack) -> None:
        """From now on it lasts until somebody leaves; `seat` is closed then."""

        async def run() -> None:
            with seat:
                try:
                    await call.run()
                finally:
                    del self._held[call.id]

        self._held[call.id] = call
        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def find(self, call_id: str, owner: str) -> Call:
        call = self._held.get(call_id)
        if call is None or call.owner != owner:  # of others one does not even learn that they are
            raise ApiError(f"there is no call {call_id[:80]!r}", "call_not_found", status=404)
        return call

    async def close(self) -> None:
        for call in self._held.values():
            call.hang_up()
        if self._tasks:
            await asyncio.wait(self._tasks)


def calls_of(request: Request) -> Calls:
    calls: Calls = request.app.state.calls
    return calls


async def create(request: Request) -> Response:
    server_state, bearer, calls = state_of(request), bearer_of(request), calls_of(request)
    offer, given = await read_call(request)
    beta = wants_beta(request.headers, ())
    given = session_from_beta(given) if beta else given
    asked = over(bearer.session, given)
    model = request.query_params.get("model") or asked.get("model")
    client = Client(bearer.owner, beta, model if isinstance(model, str) else None)
    client = replace(client, session=without_formats(asked) or None)
    with ExitStack() as seat:
        seat.enter_context(server_state.slots.take(bearer.owner))
        try:
            call = Call(server_state, client, calls.ice)
        except MossliveError as error:
            raise as_api_error(error) from None
        try:
            answer = await call.answer(offer)
        except BaseException:
            await call.close()
            raise
        calls.hold(call, seat.pop_all())
    where = {"location": f"/v1/realtime/calls/{call.id}"}
    return Response(answer, 201, where, media_type="application/sdp")


async def hang_up(request: Request) -> Response:
    calls_of(request).find(request.path_params["call"], bearer_of(request).owner).hang_up()
    return Response(status_code=200)


async def ice_servers(request: Request) -> Response:
    """As browsers want them. Behind the key, for a relay's password is among them."""
    shown: list[dict[str, Any]] = []
    for one in calls_of(request).ice:
        shown.append({"urls": one.urls})
        if one.username:
            shown[-1] |= {"username": one.username, "credential": one.credential}
    return JSONResponse({"iceServers": shown})
