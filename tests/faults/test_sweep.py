"""Every fault in every part, early and late, one at a time and at random: `make test-faults`."""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from websockets.exceptions import ConnectionClosed

from mosslive.server.last_words import EXIT_STATUS
from mosslive.server.server_state import DEVICE_LOST
from tests.faults.rules import LOST, Rule, What
from tests.faults.server import GOOD, Server, Session
from tests.server.rig import wav

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not os.environ.get("LONG_TESTS"), reason="minutes; set LONG_TESTS=1"),
]
STEPS = ("stepper", "prefill", "logits", "encoder", "flow", "vocoder", "tokenizer")
APART = ("device", "exit", "jump", "sleep", "hang")  # have tests of their own
CODES = {
    *("reply_failed", "listening_failed", "memory_failed", "internal_error", "out_of_memory"),
    "disk_failed",
}


@pytest.fixture(scope="module")
def served(folders: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("faults") / "rules", **folders)
    try:
        yield made.ready()
    finally:
        made.end()


def ended_well(session: Session) -> bool:
    """Reads up to the end of the response that was asked for. False: it, or what came before it,
    failed with an error of the server that a client may see."""
    good = True
    while True:
        event = session.until("error", "response.done")
        response = event.get("response", {})
        details = response.get("status_details") or {}
        if error := event.get("error") or details.get("error"):
            assert error["type"] == "server_error", event
            assert error["code"] in CODES, event
            assert "Traceback" not in error["message"]
            good = False
        if event["type"] == "response.done":
            assert response["status"] in (*GOOD, "failed"), event
            return good


@pytest.mark.parametrize("where", STEPS)
@pytest.mark.parametrize("what", [one for one in get_args(What) if one not in APART])
def test_one_fault(served: Server, where: str, what: What) -> None:
    """At one of the first calls or three times: an answer in any case, then a good reply."""
    with served.session() as session, served.session() as other:
        for aloud in (False, True):
            for call, times in ((1, 1), (3, 1), (1, 3)):
                with served.broken(Rule(where, what, call, times)):
                    session.begin_aloud() if aloud else session.begin()
                    ended_well(session)
                assert session.works(), (call, times, aloud)
        assert other.works()
    assert served.get("/health/live").status_code == 200
    served.until(lambda: served.metric("mosslive_sessions_live") == 0)


def test_faults_at_random(served: Server) -> None:
    """Four clients talk while one step in twenty fails: each of their questions is answered or
    failed, no session ends, and nothing is left behind."""
    rules = [Rule(where, "error", times=None, chance=0.05) for where in STEPS]
    outcomes: list[bool] = []

    def talk(seed: int) -> None:
        choose = random.Random(seed)
        with served.session() as session:
            for _ in range(40):
                session.begin_aloud() if choose.random() < 0.5 else session.begin()
                outcomes.append(ended_well(session))

    with served.broken(*rules):
        threads = [threading.Thread(target=talk, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(outcomes) == 160, "a client has ended"
    assert outcomes.count(True) > 20
    assert outcomes.count(False) > 20
    with served.session() as session:
        assert session.works()
    served.until(lambda: served.metric("mosslive_sessions_live") == 0)
    served.until(lambda: served.metric("mosslive_engine_conversations") == 0)
    assert served.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize("fronts", [0, 1])
@pytest.mark.parametrize("where", ["stepper", "prefill", "encoder", "vocoder", "upload"])
def test_the_device_is_lost(
    folders: dict[str, Any], tmp_path: Path, where: str, fronts: int
) -> None:
    """In any part, with and without fronts: all sessions are told, and the process ends."""
    served = Server(tmp_path / "rules", **folders, fronts=fronts)
    try:
        served.ready()
        with served.session() as session, served.session() as other:
            part = "encoder" if where == "upload" else where
            with served.broken(Rule(part, "device")):
                if where == "upload":
                    form = {"files": {"file": ("x.wav", wav(1.0))}, "data": {"name": "anna"}}
                    assert served.post("/v1/voices", **form).status_code == 503
                elif where in ("prefill", "encoder"):
                    session.begin_aloud()
                else:
                    session.begin()
                for one in (session, other):
                    with pytest.raises(ConnectionClosed) as closed:
                        one.until("nothing")
                    assert closed.value.rcvd is not None
                    assert closed.value.rcvd.reason == DEVICE_LOST
            assert served.process.wait(5) == EXIT_STATUS
    finally:
        served.end()
    assert LOST in served.log[-1]["message"]
    assert served.log[-1]["level"] == "critical"


def test_the_event_loop_hangs_too(folders: dict[str, Any], tmp_path: Path) -> None:
    """A lost device ends the process within 5 s even if nothing else moves any more."""
    served = Server(tmp_path / "rules", **folders)
    try:
        served.ready()
        with served.session() as session:
            # The tokenizer of a short text runs on the event loop.
            rules = Rule("stepper", "device", 3), Rule("tokenizer", "sleep", 2, seconds=30.0)
            with served.broken(*rules):
                session.begin()
                session.send("session.update", session={"instructions": "x"})
                session.begin("again")
                began = time.monotonic()
                assert served.process.wait(10) == EXIT_STATUS
                assert time.monotonic() - began < 6
    finally:
        served.end()


def test_a_thread_that_ends(folders: dict[str, Any], tmp_path: Path) -> None:
    """An error that is no loss of the device ends a thread: liveness fails for good."""
    served = Server(tmp_path / "rules", **folders)
    try:
        served.ready()
        with served.broken(Rule("vocoder", "exit")):
            assert served.speak().status_code == 503
        for path in ("/health", "/health/live"):
            answer = served.get(path)
            assert answer.status_code == 503
            assert "has ended: SystemExit" in answer.json()["reason"]
        assert served.process.poll() is None
    finally:
        served.end()


def test_a_front_is_killed(folders: dict[str, Any], tmp_path: Path) -> None:
    """Its sessions are cut off; those of the other front go on, and a new front takes its place."""
    served = Server(tmp_path / "rules", **folders, fronts=2)
    try:
        served.ready()
        served.until(lambda: len(served.logged("front started")) == 2)
        with served.session() as first, served.session() as second:
            first.begin()
            second.begin()
            os.kill(served.logged("front started")[0]["pid"], signal.SIGKILL)
            lost, kept = [], []
            for one in (first, second):
                try:
                    assert one.outcome()["status"] in GOOD
                    kept.append(one)
                except ConnectionClosed:
                    lost.append(one)
            assert len(lost) == len(kept) == 1
            assert kept[0].works()
        served.until(lambda: len(served.logged("front started")) == 3)
        with served.session() as fresh:
            assert fresh.works()
        assert served.metric("mosslive_front_restarts_total") == 1
    finally:
        served.end()
