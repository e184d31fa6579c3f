"""Calls of `mosslive bench capacity`: over real sockets, in process, and by a scripted line."""

import asyncio
import json
import time
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import pytest
from typer.testing import CliRunner
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from mosslive.bench.capacity.caller import SAMPLES_PER_CODE, Caller
from mosslive.bench.capacity.line import CallFailed, CallRefused, Ear, TurnEnds
from mosslive.bench.capacity.load import Load
from mosslive.bench.capacity.measure import measure_capacity
from mosslive.bench.capacity.outcome import Outcome
from mosslive.bench.capacity.questions import Frames
from mosslive.bench.capacity.settings import CapacitySettings
from mosslive.bench.capacity.socket_line import SocketLine
from mosslive.bench.subject import Subject
from mosslive.cli.app import app
from tests.server.processes import faulty

pytestmark = pytest.mark.alone

COMMITTED = TurnEnds(detected=False)
ONE_TURN = Load(
    question_s=(0.5, 0.5),
    reply_s=(0.8, 0.8),
    turns=1.0,
    interrupted=0.0,
    left=0.0,
    pause_s=0.0,
    between_s=0.0,
    questions=1,
)


class ScriptedLine:
    """Answers a committed turn by pieces of sound, in codes, each after a wait."""

    def __init__(
        self, pieces: list[tuple[float, float]], end: str = "completed", refuse: int = 0
    ) -> None:
        self._pieces, self._end, self._refuse = pieces, end, refuse
        self._ear: Ear | None = None
        self._answer: asyncio.Task[None] | None = None
        self.sent: list[float] = []  # when packets were
        self.interrupted: list[str] = []

    async def open(self, ear: Ear) -> None:
        if self._refuse:
            self._refuse -= 1
            raise CallRefused("busy", 0.01)
        self._ear = ear

    async def limit(self, codes: int) -> None: ...

    async def send(self, question: int, packet: int) -> None:
        self.sent.append(time.monotonic())

    async def send_silence(self) -> None: ...

    async def commit(self) -> None:
        assert self._ear is not None
        self._answer = asyncio.create_task(self._speak(self._ear))

    async def interrupt(self, reply: str, active: bool, heard_s: float) -> None:
        self.interrupted.append(reply)

    async def close(self) -> None:
        if self._answer:
            self._answer.cancel()

    async def _speak(self, ear: Ear) -> None:
        ear.begun("a")
        for wait_s, codes in self._pieces:
            await asyncio.sleep(wait_s)
            ear.sound("a", round(codes * SAMPLES_PER_CODE))
        ear.ended("a", self._end, codes=sum(codes for _, codes in self._pieces).__ceil__())


def call(line: ScriptedLine, load: Load = ONE_TURN, packets: int = 3) -> Outcome:
    """One call of one question."""

    async def test() -> Outcome:
        caller = Caller(0, load, lambda: line, [packets], COMMITTED)
        await caller.run(time.monotonic(), 0.0, 0.02)
        return caller.outcome

    return asyncio.run(test())


def test_a_caller_speaks_in_real_time_and_hears_gaps() -> None:
    """Packets are 20 ms apart, the time to first audio begins with the last, and sound that comes
    after all earlier sound was played ends a gap."""
    line = ScriptedLine([(0.1, 1), (0.0, 1), (0.3, 5)])  # 160 ms of sound, then 300 ms of waiting
    (heard,) = call(line).replies
    assert line.sent[-1] - line.sent[0] == pytest.approx(0.04, abs=0.02)
    assert heard.ttfa_s == pytest.approx(0.1, abs=0.05)
    assert heard.status == "heard"
    assert heard.gaps == 1
    assert heard.silence_s == pytest.approx(0.14, abs=0.05)
    assert heard.samples == 7 * SAMPLES_PER_CODE


def test_wrong_replies_fail() -> None:
    """A reply of the wrong length, one without sound and one that the server stops are failures."""
    for line, fault in (
        (ScriptedLine([(0.0, 1.5)]), "2880 samples, 3840 expected"),
        (ScriptedLine([]), "no sound"),
        (ScriptedLine([(0.0, 1)], end="cancelled"), "the server stopped the reply"),
        (ScriptedLine([(0.0, 1)], end="failed"), "the reply ended as failed"),
    ):
        (heard,) = call(line).replies
        assert heard.status == "failed"
        assert fault in heard.fault


def test_a_refused_caller_calls_again() -> None:
    """A refusal is counted as one and not as a failure, and the caller comes back."""
    line = ScriptedLine([(0.0, 1)], refuse=1)
    load = replace(ONE_TURN, seed=1)
    outcome = Outcome()

    async def test() -> None:
        caller = Caller(0, load, lambda: line, [2], COMMITTED)
        await caller.run(time.monotonic(), 0.0, 0.2)
        outcome.add(caller.outcome)

    asyncio.run(test())
    assert (outcome.refused, outcome.faults) == (1, [])
    assert {one.status for one in outcome.replies} == {"heard"}


def test_a_caller_who_hangs_up() -> None:
    """A reply that the caller does not want to hear to its end is not a failure."""
    (heard,) = call(ScriptedLine([(0.0, 100)]), replace(ONE_TURN, left=1.0)).replies
    assert heard.status == "interrupted"


def test_denials_at_the_door() -> None:
    """429 and 503 are refusals with the server's time to wait; other answers are failures."""

    async def test() -> None:
        def deny(connection: ServerConnection, request: Request) -> Response:
            status = HTTPStatus(int(request.path.strip("/")))
            return Response(status.value, status.phrase, Headers({"Retry-After": "7"}), b"no")

        async def nothing(connection: ServerConnection) -> None: ...

        async with serve(nothing, "127.0.0.1", 0, process_request=deny) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            for status in (429, 503, 401):
                line = SocketLine(f"ws://127.0.0.1:{port}/{status}", Frames([], ""), COMMITTED)
                caller = Caller(0, ONE_TURN, lambda: line, [1], COMMITTED)  # noqa: B023
                with pytest.raises(CallRefused if status != 401 else CallFailed) as refused:
                    await line.open(caller)
                if isinstance(refused.value, CallRefused):
                    assert refused.value.retry_s == 7

    asyncio.run(test())


def test_no_server() -> None:
    """An address where nobody listens raises an error that names it."""
    settings = CapacitySettings(url="ws://127.0.0.1:1/v1/realtime", levels=(1,), load=ONE_TURN)
    with pytest.raises(CallFailed, match=r"127\.0\.0\.1:1/v1/realtime"):
        measure_capacity(settings)


def test_callers_and_the_server_count_the_same_gaps(nano_folder: Path, tmp_path: Path) -> None:
    """On a server whose rows take longer than they sound, callers in other processes hear gaps, and
    `mosslive_underruns_total` has the same number and length of them."""

    async def serving() -> None:
        slow = {"on": 0.06, "reply_s": 3.2}
        async with faulty(nano_folder, tmp_path / "switch", "slow-step", **slow) as served:  # type: ignore[arg-type]
            load = replace(ONE_TURN, reply_s=(3.2, 3.2))
            settings = CapacitySettings(url=served.ws, levels=(2,), seconds=1.0, load=load)
            measured = await asyncio.to_thread(measure_capacity, settings)
            (level,) = measured.levels
            assert level.failed == 0, level.faults
            assert level.replies >= 2
            assert level.gaps >= 2
            assert level.server_gaps == level.gaps == level.socket_gaps
            assert level.server_gap_s == pytest.approx(level.gap_s, rel=0.2, abs=0.05)
            assert not level.kept
            assert level.stage_shares["decode"] > 0

    asyncio.run(serving())


def test_talk_is_called_with_turn_detection() -> None:
    """In process, random weights: Silero detects the end of a question, the silence is not part of
    the time to first audio, and the promise is kept."""
    settings = CapacitySettings(
        subject=Subject("nano", "cpu"),
        precision="fp32",
        codec_precision="fp32",
        levels=(1,),
        seconds=1.0,
        sockets=0.0,
        ends=TurnEnds(detected=True, silence_ms=300),
        load=replace(ONE_TURN, question_s=(1.0, 1.0)),
    )
    (level,) = measure_capacity(settings).levels
    assert (level.failed, level.unasked) == (0, 0), level.faults
    assert level.replies >= 1
    assert level.reply_s == pytest.approx(0.8)
    assert level.socket_callers == 0
    assert 0 < level.ttfa_ms["p50"] < 2000 if level.ttfa_ms else level.replies


def test_the_bundled_model_on_a_cpu(tmp_path: Path) -> None:
    """The command serves the bundled model, calls it over a socket and in process, and writes the
    table, the JSON line and the page."""
    page = tmp_path / "capacity.html"
    options = "bench capacity --conversations 2 --seconds 4 --question-s 1 --reply-s 2 --turns 1"
    run = CliRunner().invoke(app, [*options.split(), "--ttfa-ms", "60000", "--html", str(page)])
    assert run.exit_code == 0, run.output
    document = json.loads(run.stdout.splitlines()[-1])
    (level,) = document["levels"]
    assert level["failed"] == 0, level["faults"]
    assert level["replies"] >= 2
    assert level["socket_callers"] == 1
    assert level["server_gaps"] == level["socket_gaps"]
    assert "<svg" in page.read_text(encoding="utf-8")
