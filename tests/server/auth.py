"""Keys of clients, and how a session is refused or closed."""

import json
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.server.rig import Peer, Served

KEY, OTHER = "first-key-for-tests", "second-key-for-tests"


def bearing(key: str) -> dict[str, Any]:
    return {"additional_headers": {"Authorization": f"Bearer {key}"}}


async def denied(served: Served, **options: Any) -> tuple[int, str]:
    """Status and error code with which a socket is refused."""
    with pytest.raises(InvalidStatus) as caught:
        async with connect(served.ws, **options):
            pass
    response = caught.value.response
    return response.status_code, json.loads(response.body or b"{}")["error"]["code"]


async def closed(peer: Peer) -> tuple[int, str]:
    """Reads until the server closes the socket → its code and reason."""
    frame = None
    try:
        while True:
            await peer.next()
    except ConnectionClosed as end:
        frame = end.rcvd
    assert frame is not None
    return frame.code, frame.reason
