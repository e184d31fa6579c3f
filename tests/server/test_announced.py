"""A server says at start how many conversations it holds; it holds them and refuses the next."""

import asyncio
import json
from contextlib import AsyncExitStack

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from mosslive.config.folders import shipped_folder
from tests.server.processes import Process, listen, started
from tests.server.rig import WAIT_S, run

pytestmark = pytest.mark.alone

CALLERS = 4  # at most; further sessions are silent
TURNS = 2
REPLY_S = "3"
OWN_S = 0.05  # of silence, which a caller causes when it waits for a core itself


async def fill(served: Process, sessions: int, inside: AsyncExitStack) -> None:
    """Waits for the callers, then opens silent sessions until there are so many."""
    async with asyncio.timeout(WAIT_S):
        while await served.metric("mosslive_sessions_live") < min(CALLERS, sessions):
            await asyncio.sleep(0.1)
    for _ in range(sessions - CALLERS):
        await inside.enter_async_context(connect(served.ws))


def test_the_bundled_model_is_held_as_announced() -> None:
    """As many outside callers as the server announces, speaking in real time all at once, hear no
    gap; one more is refused at the door with 429, with the reason and when to try again."""

    async def test() -> None:
        lengths = ("--min-reply-s", REPLY_S, "--max-reply-s", REPLY_S)
        async with (
            started("mosslive", "serve", "--port", "0", *lengths) as served,
            AsyncExitStack() as inside,
        ):
            (ready,) = served.logged("ready")
            announced = ready["capacity"]["conversations"]
            held = max(1, announced)  # one is always let in
            assert await served.metric("mosslive_capacity_conversations") == announced
            health = (await served.get("/health")).json()
            assert health["capacity"]["conversations"] == announced
            question = str(shipped_folder() / "question.flac")
            callers = [
                asyncio.create_task(listen(served, question, str(TURNS)))
                for _ in range(min(held, CALLERS))
            ]
            await fill(served, held, inside)
            with pytest.raises(InvalidStatus) as caught:
                await inside.enter_async_context(connect(served.ws))
            refused = caught.value.response
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            error = json.loads(refused.body)["error"]
            assert error["code"] == "overloaded"
            assert f"holds {announced} conversation" in error["message"]
            heard = [await caller for caller in callers]
            assert all(one["sound_s"] > 0.9 * TURNS * float(REPLY_S) for one in heard)
            if announced:  # else the machine is too slow for a single conversation
                assert await served.metric("mosslive_underruns_total") == 0, heard
                assert max(one["silence_s"] for one in heard) < OWN_S, heard

    run(test())
