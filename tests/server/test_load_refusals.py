"""A server that was slow once is tried again, and what it refuses for load it refuses as such."""

import asyncio
import signal
from pathlib import Path

from tests.server.processes import Process, faulty
from tests.server.rig import run


async def stopped(served: Process) -> None:
    """Until the process has stopped itself."""
    stat = Path(f"/proc/{served.process.pid}/stat")
    while stat.read_text().rsplit(")", 1)[1].split()[0] != "T":
        await asyncio.sleep(0.01)


def test_one_pause_of_the_process_refuses_nothing(nano_folder: Path, tmp_path: Path) -> None:
    """After two seconds in which the whole process stood still, replies are made as before."""

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


def test_a_server_too_slow_for_one_says_so_and_is_tried_again(
    nano_folder: Path, tmp_path: Path
) -> None:
    """Load is refused with 503 and Retry-After, on the wire as a server error with its own code;
    /health gives the reason; when the measurement is old, or the machine fast, all is well."""

    async def test() -> None:
        async with (
            faulty(nano_folder, tmp_path / "switch", "slow-step", on=0.1) as served,
            served.session() as peer,
        ):
            assert (await served.speak()).status_code == 200  # nobody has measured anything
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
