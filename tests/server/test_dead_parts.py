"""A server with a broken part reports it, refuses new clients, and recovers if possible."""

import asyncio
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from mosslive.engine.health import MOST_FAILURES
from tests.server.processes import Process, faulty
from tests.server.rig import run, until


async def assert_refuses_clients(served: Process) -> None:
    """New sessions and requests get 503 and a reason."""
    answer = await served.speak()
    assert answer.status_code == 503, answer.text
    assert answer.json()["error"]["code"] == "server_failed"
    assert "retry-after" in answer.headers
    with pytest.raises(InvalidStatus) as caught:
        async with connect(served.ws):
            pass
    assert caught.value.response.status_code == 503
    assert b"injected" in caught.value.response.body


def test_a_thread_that_has_ended(nano_folder: Path, tmp_path: Path) -> None:
    """Readiness and liveness fail for good, clients are refused, one log line gives the reason."""

    async def test() -> None:
        async with faulty(nano_folder, tmp_path / "switch", "thread-ends") as served:
            assert (await served.speak()).status_code == 200
            served.on()
            failed = await served.speak()
            assert failed.status_code == 503
            assert failed.json()["error"]["type"] == "server_error"
            for path in ("/health", "/health/live"):
                answer = await served.get(path)
                assert answer.status_code == 503
                assert answer.json()["status"] == "failed"
                assert "the codec's thread has ended: SystemExit" in answer.json()["reason"]
            await assert_refuses_clients(served)
            assert await served.metric("mosslive_part_up") == 1  # of two
            assert await served.metric("mosslive_part_failures_total") == 1
            await until(lambda: bool(served.logged("the codec's thread has ended")))
            served.off()
            await asyncio.sleep(0.1)
            assert (await served.get("/health")).status_code == 503
            reported = [line for line in served.log if line["logger"] == "mosslive.health"]
            assert len(reported) == 1

    run(test())


@pytest.mark.parametrize("fault", ["step-fails", "render-fails"])
def test_a_part_that_fails_every_time(nano_folder: Path, tmp_path: Path, fault: str) -> None:
    """One failure ends one reply. After several in a row the server refuses new clients until an
    open session succeeds."""

    async def test() -> None:
        async with (
            faulty(nano_folder, tmp_path / "switch", fault) as served,
            served.session() as peer,
        ):
            served.on()
            assert (await served.ask(peer))["status"] == "failed"
            served.off()
            assert (await served.ask(peer))["status"] == "incomplete"  # as long as it may be
            assert (await served.get("/health")).status_code == 200
            served.on()
            for _ in range(MOST_FAILURES):
                failed = await served.speak()
                assert failed.status_code == 500
                assert failed.json()["error"]["code"] == "reply_failed"
            answer = await served.get("/health")
            assert answer.status_code == 503
            assert f"failed {MOST_FAILURES} times in a row" in answer.json()["reason"]
            assert (await served.get("/health/live")).status_code == 200
            await assert_refuses_clients(served)
            assert await served.metric("mosslive_part_up") == 1  # of two
            served.off()
            assert (await served.ask(peer))["status"] == "incomplete"
            assert (await served.get("/health")).json() == {"status": "ok"}
            assert await served.metric("mosslive_part_up") == 2
            assert (await served.speak()).status_code == 200

    run(test())
