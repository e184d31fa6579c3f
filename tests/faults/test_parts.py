"""One fault after the other in one running server: what the client is told, and what goes on.

After each fault the same session gets its next reply, another session has lost nothing, and
`/health` is good again. The last fault is the loss of the device, which ends the process.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from mosslive.codec.sound import read_sound
from mosslive.config.folders import shipped_folder
from mosslive.server.last_words import EXIT_STATUS
from mosslive.server.server_state import DEVICE_LOST
from tests.faults.rules import LOST, Rule, What
from tests.faults.server import GOOD, Server, Session
from tests.server.rig import RATE, Event, wav

Ask = Callable[[Session], Event]
# (part, what, call, how the client asks, the code it is told)
FAULTS: list[tuple[str, What, int, Ask, str]] = [
    ("stepper", "memory", 1, Session.ask, "reply_failed"),
    ("logits", "nan", 2, Session.ask, "reply_failed"),
    ("prefill", "gpu-memory", 1, Session.ask_aloud, "listening_failed"),
    ("encoder", "error", 1, Session.ask_aloud, "listening_failed"),
    ("encoder", "nan", 1, Session.ask_aloud, "listening_failed"),
    ("flow", "gpu-memory", 1, Session.ask, "reply_failed"),
    ("flow", "nan", 2, Session.ask, "reply_failed"),
    ("vocoder", "error", 1, Session.ask, "reply_failed"),
    ("vocoder", "nan", 2, Session.ask, "reply_failed"),
    ("tokenizer", "memory", 1, Session.ask, "out_of_memory"),
    ("tokenizer", "error", 1, Session.ask, "internal_error"),
]


def code_of(outcome: Event) -> str:
    """Of a response that failed, or of the error that came instead."""
    error: Event = outcome.get("status_details", {}).get("error") or outcome
    assert error["type"] == "server_error", outcome
    return str(error["code"])


def question() -> Any:
    """Real speech, and the silence that ends the turn."""
    wave, rate_hz = read_sound(shipped_folder() / "question.flac")
    assert rate_hz == RATE
    return np.concatenate((wave.numpy(), np.zeros(RATE, np.float32)))


def check_faults_of_parts(served: Server, other: Session) -> None:
    with served.session() as session:
        for where, what, call, ask, code in FAULTS:
            times = None if where == "stepper" else 1  # a single failure is tried again
            with served.broken(Rule(where, what, call, times)):
                outcome = ask(session)
            assert code_of(outcome) == code, (where, what, outcome)
            if "status" not in outcome:  # `response.create` came after the event that failed
                session.until("response.done")
            assert session.works(), (where, what)
    assert other.works()
    assert served.get("/health").json() == {"status": "ok"}


def check_vad(served: Server) -> None:
    """A turn in which the VAD fails is lost; the next one is heard."""
    with served.session(manual=False) as session:
        wave = question()
        for what in ("error", "nan"):
            with served.broken(Rule("vad", what, 20)):
                session.say(wave[: RATE * 3 // 2])
                assert session.until("error")["error"]["code"] == "listening_failed"
        session.say(wave)
        assert session.until("response.done")["response"]["status"] in GOOD


def check_disk(served: Server) -> None:
    """A full disk is told with 507; what cannot be stored is not there, what cannot be deleted is
    still there."""

    def names() -> list[str]:
        return [one["id"] for one in served.get("/v1/voices").json()["data"]]

    def upload(file: bytes) -> tuple[int, str]:
        form = {"files": {"file": ("x.wav", file)}, "data": {"name": "anna"}}
        answer = served.post("/v1/voices", **form)
        return answer.status_code, answer.json().get("error", {}).get("code", "")

    sound = wav(1.0)
    with served.broken(Rule("voices", "disk", times=None)):
        assert upload(sound) == (507, "voice_not_kept")
    with served.broken(Rule("uploads", "disk", times=None)):
        assert upload(sound + bytes(2 << 20)) == (507, "disk_failed")
    assert names() == ["default"]
    assert upload(sound) == (201, "")
    with served.broken(Rule("deletions", "disk", times=None)):
        answer = served.delete("/v1/voices/anna")
        assert (answer.status_code, answer.json()["error"]["code"]) == (507, "voice_not_deleted")
        assert names() == ["default", "anna"]
    assert served.delete("/v1/voices/anna").status_code == 200


def check_stuck(served: Server, other: Session) -> None:
    """A step that does not end is seen by `/health`, and new clients are refused, until it ends."""
    with served.session() as session:
        with served.broken(Rule("flow", "hang")):
            session.begin()
            served.until(lambda: served.get("/health").status_code == 503)
            assert "runs for" in served.get("/health").json()["reason"]
            assert served.get("/health/live").status_code == 200
            with pytest.raises(InvalidStatus, match="503"), served.session():
                pass
        assert session.outcome()["status"] in GOOD
        assert served.get("/health").status_code == 200
        assert other.works()


def check_pause_and_clock(served: Server, other: Session) -> None:
    """A process that was paused and a clock that jumps a day make nothing fail."""
    with served.session() as session:
        session.begin()
        os.kill(served.process.pid, signal.SIGSTOP)
        time.sleep(1.0)  # longer than a step may take
        os.kill(served.process.pid, signal.SIGCONT)
        assert served.get("/health").status_code == 200
        assert session.outcome()["status"] in GOOD
        for seconds in (86_400.0, -86_400.0):
            with served.broken(Rule("clock", "jump", seconds=seconds)):
                assert session.works()
                assert served.get("/health").status_code == 200
    assert other.works()


def check_device_lost(served: Server, other: Session, where: str, ask: Ask) -> None:
    """All are told, and the process ends within 5 s with one line that says why."""
    with served.session() as session:
        with served.broken(Rule(where, "device")):
            outcome = ask(session)
            began = time.monotonic()
        assert outcome["status"] == "failed"
        assert code_of(outcome) == "server_failed"
        for one in (session, other):
            with pytest.raises(ConnectionClosed) as closed:
                one.until("nothing")
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1001, DEVICE_LOST)
        assert served.process.wait(5) == EXIT_STATUS
        assert time.monotonic() - began < 5
    served.end()
    assert served.log[-1]["level"] == "critical"
    assert served.log[-1]["message"].startswith("the device is lost and the process ends: ")
    assert LOST in served.log[-1]["message"]


def test_faults_on_purpose(folders: dict[str, Any], tmp_path: Path) -> None:
    """Faults of every part are told to those whom they hit and to nobody else, and are over when
    their cause is; the loss of the device ends the process."""
    served = Server(tmp_path / "rules", **folders, voices_dir=str(tmp_path / "voices"))
    try:
        served.ready()
        with served.session() as other:
            assert other.works()
            check_faults_of_parts(served, other)
            check_vad(served)
            check_disk(served)
            check_stuck(served, other)
            check_pause_and_clock(served, other)
            served.until(lambda: served.metric("mosslive_sessions_live") == 1)
            check_device_lost(served, other, "flow", Session.ask)
    finally:
        served.end()
