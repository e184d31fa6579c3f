"""A server that was slow once accepts replies again, and load has its own error code."""

import asyncio
import signal
from pathlib import Path

from tests.server.processes import Process, faulty
from tests.server.rig import run


async def stopped(served: Process) -> None:
    """Waits until the process has stopped itself."""
    stat = Path(f"/proc/{served.process.pid}/stat")
    while stat.read_text().rsplit(")", 1)[1].split()[0] != "T":
        await asyncio.sleep(0.01)


def test_one_pause_of_the_process_refuses_nothing(nano_folder: Path, tmp_path: Path) -> None:
    """After the whole process was stopped for two seconds, replies are accepted as before."""

    async def test() -> None:
        # A reply has 20 rows: the pause is in the last step but one.
        async with faulty(nano_folder, tmp_path / "switch", "pause", on=19) as served:
            speaking = asyncio.create_task(served.speak())
            await stopped(served)
            await asyncio.sleep(2)
            served.process.send_signal(signal.SIGCONT)
            assert (await speaking).status_code == 200
            for _ in range(3):
                answer = await served.speak()
                assert answer.status_code == 200, answer.text
            assert (await served.get("/health")).json() == {"status": "ok"}
            assert (await served.ask())["status"] == "incomplete"  # as long as it may be

    run(test())


def test_a_server_too_slow_for_one_reply_recovers(nano_folder: Path, tmp_path: Path) -> None:
    """A reply that the engine cannot make in time gets 503 with Retry-After and its own code, and
    /health gives the reason; once the measurement is old, or the machine fast, replies are
    accepted."""

    async def test() -> None:
        async with (
            faulty(nano_folder, tmp_path / "switch", "slow-step", on=0.1) as served,
            served.session() as peer,
        ):
            assert (await served.speak()).status_code == 200  # there are no measurements yet
            health, answer = await served.get("/health"), await served.speak()
            assert health.status_code == 503
            assert health.json()["status"] == "overloaded"
            assert "1 speech replies at once would take" in health.json()["reason"]
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.json()["error"]["code"] == "engine_full_deadlines"
            assert answer.json()["error"]["type"] == "server_error"
            done = await served.ask(peer)
            assert done["status"] == "failed"
            error = done["status_details"]["error"]
            assert (error["type"], error["code"]) == ("server_error", "engine_full_deadlines")
            served.off()
            await asyncio.sleep(2.2)
            assert (await served.get("/health")).json() == {"status": "ok"}
            for _ in range(2):
                assert (await served.speak()).status_code == 200

    run(test())
