"""Clients that all come back at once, as after a restart of the server or of the network."""

import asyncio
from typing import Any

import httpx
from websockets.exceptions import InvalidStatus

from tests.server.rig import Parts, Served, run, serving

CLIENTS, SEATS = 40, 4


async def comes_back(served: Served) -> int:
    """Tries until it is let in, gets an answer and leaves. Returns how often it was refused."""
    refused = 0
    while True:
        try:
            async with served.session() as peer:
                await peer.send("session.update", session={"type": "realtime"})
                await peer.until("session.updated")
                return refused
        except InvalidStatus as error:
            answer = error.response
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) > 0
        refused += 1
        await asyncio.sleep(0.2)


def test_all_clients_come_back_at_once(parts: Parts) -> None:
    """Forty clients on four seats: each is let in or refused with 429, all get in in the end, the
    server answers others meanwhile, and nothing is left behind."""

    async def test() -> None:
        seats: dict[str, Any] = {"max_sessions": SEATS, "max_sessions_per_key": SEATS}
        async with serving(parts, **seats) as served, httpx.AsyncClient() as http:
            storm = asyncio.gather(*(comes_back(served) for _ in range(CLIENTS)))
            while not storm.done():
                assert (await http.get(f"{served.http}/health/live", timeout=5)).status_code == 200
                await asyncio.sleep(0.1)
            assert sum(await storm) > 0
            await served.quiet()

    run(test())
