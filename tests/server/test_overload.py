"""Overload: gaps are counted as a listener hears them, and excess clients are refused."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from mosslive.server.gaps import Gaps
from mosslive.server.overload import WINDOW_S, is_overloaded, next_cost
from mosslive.talk.production import Production, Sample
from tests.engine.serving import Clock
from tests.server.caller import Caller
from tests.server.processes import Process, faulty, listen
from tests.server.rig import WAIT_S, run


async def until_refused(served: Process) -> InvalidStatus:
    """Opens sessions until one is refused; accepted sessions are closed at once."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                async with connect(served.ws):
                    await asyncio.sleep(0.1)
            except InvalidStatus as refused:
                return refused


def test_a_client_and_the_server_count_the_same_gaps(nano_folder: Path, tmp_path: Path) -> None:
    """A row of 80 ms takes 55 ms with one reply and 110 with two: two listeners hear gaps, which
    the metrics and the timing of each reply count; other clients get 429 on every transport; an
    idle server accepts clients again at once."""

    async def test() -> None:
        slow: dict[str, Any] = {"on": 0.055, "reply_s": 6.4, "admit_overload": False}
        async with faulty(nano_folder, tmp_path / "switch", "slow-step", **slow) as served:
            listeners = [asyncio.create_task(listen(served)) for _ in range(2)]
            refused = (await until_refused(served)).response
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            assert json.loads(refused.body)["error"]["code"] == "overloaded"
            assert (await served.speak()).status_code == 429
            assert await offer(served) == 429
            assert not any(one.done() for one in listeners)
            heard = [await one for one in listeners]
            assert [one["status"] for one in heard] == ["incomplete"] * 2  # as long as it may be
            assert min(one["gaps"] for one in heard) >= 5
            gaps = sum(one["gaps"] for one in heard)
            silence_s = sum(one["silence_s"] for one in heard)
            assert await served.metric("mosslive_underruns_total") == gaps
            assert [one["reported"] for one in heard] == [[one["gaps"]] for one in heard]
            counted_s = await served.metric("mosslive_underrun_seconds_total")
            assert counted_s == pytest.approx(silence_s, rel=0.1)
            while await served.metric("mosslive_sessions_live"):
                await asyncio.sleep(0.05)
            async with served.session():
                pass

    run(test())


async def offer(served: Process) -> int:
    caller = Caller()
    try:
        http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{served.port}", timeout=WAIT_S)
        async with http:
            kind = {"content-type": "application/sdp"}
            where = "/v1/realtime/calls?model=test"
            sdp = await caller.offer()
            return (await http.post(where, content=sdp, headers=kind)).status_code
    finally:
        await caller.close()


def samples(replies: int, cost: float, at: float = 100.0, count: int = 4) -> list[Sample]:
    return [Sample(at, replies, cost)] * count


@pytest.mark.parametrize(
    ("measured", "cost"),
    [
        ([], None),
        (samples(1, 9.0, count=2), None),  # too few: noise
        (samples(1, 9.0, at=100.0 - WINDOW_S - 1), None),  # too old
        (samples(1, 0.6), 0.6),  # nothing is known of two
        (samples(1, 0.3) + samples(2, 0.6), 0.9),  # as on a CPU: each adds the same cost
        (samples(1, 0.5) + samples(8, 0.5), 0.5),  # as on a GPU: all in one step
        (samples(1, 0.8) + samples(4, 0.5), 0.5),  # more replies never make it faster
        (samples(2, 0.5) + samples(2, 50.0, count=1), 0.5),  # one pause changes nothing
    ],
)
def test_the_cost_of_one_reply_more(measured: list[Sample], cost: float | None) -> None:
    """The cost is extrapolated from the medians with the fewest and the most replies."""
    predicted = next_cost(measured, 100.0)
    assert predicted == (None if cost is None else pytest.approx(cost))
    assert is_overloaded(measured, 100.0) == (cost is not None and cost > 1)


def test_production_is_measured_without_rest_and_without_the_first_sound() -> None:
    """A reply that produced 0.8 s of audio in 1 s, of which it paused 0.6 s, costs 0.5."""
    production = Production()
    reply, other = production.begin(), production.begin()
    reply.made(0.4, 5.0)  # waited for its prompt
    other.rest(True)
    assert production.replies == 1
    other.rest(False)
    reply.rested(0.6)
    reply.made(0.2, 5.5)  # too little to measure
    reply.made(0.6, 6.0)
    assert len(production.samples) == 2  # 0.8 s: two chunks
    assert {(one.at, one.replies) for one in production.samples} == {(6.0, 2)}
    assert production.samples[0].cost == pytest.approx(0.5)
    for one in (reply, other, other):
        one.end()
    assert production.replies == 0


def test_audio_sent_after_everything_was_played_ends_a_gap() -> None:
    """Gaps are counted per reply, and the audio duration follows the response's format."""
    clock, gaps = Clock(), list[float]()
    played = Gaps(gaps.append, clock)
    played.sent("a", 9600, 24_000)
    clock.now += 0.3
    played.sent("a", 9600, 24_000)  # in time: 0.1 s were left
    clock.now += 0.7
    played.sent("b", 9600, 24_000)
    played.sent("a", 9600, 24_000)
    assert gaps == [pytest.approx(0.2)]
    played.end("a")
    clock.now += 9
    played.sent("a", 9600, 24_000)
    assert len(gaps) == 1
    form = {"audio": {"output": {"format": {"type": "audio/pcmu"}}}}
    played.of_event({"type": "response.created", "response": {"id": "c", **form}})
    for wait_s in (0.0, 0.002):
        clock.now += wait_s
        delta = {"type": "response.output_audio.delta", "response_id": "c", "delta": bytes(8)}
        sent = played.of_event(delta)  # 8 bytes: 1 ms
        assert sent is not None
        sent(clock.now)
    assert gaps[1:] == [pytest.approx(0.001)]


def test_gaps_of_a_reply_are_told_when_its_sound_was_sent() -> None:
    """Whoever asks gets the gaps of that reply: when it ends, at once if it has ended, and as far
    as they are known if the client leaves before."""
    clock, told = Clock(), list[tuple[str, int, float]]()
    gaps = Gaps(lambda seconds: None, clock)

    def ask(reply: str) -> None:
        gaps.reports.when_over(reply, lambda heard: told.append((reply, *heard)))

    for reply in ("a", "b", "c"):
        gaps.sent(reply, 24_000, 24_000)
    clock.now += 1.5
    for reply in ("a", "c"):
        gaps.sent(reply, 24_000, 24_000)
    ask("a")
    assert told == []
    gaps.end("a")
    gaps.end("b")
    ask("b")
    ask("c")
    ask("text")
    assert told == [("a", 1, pytest.approx(0.5)), ("b", 0, 0.0)]
    gaps.close()
    assert told[2:] == [("c", 1, pytest.approx(0.5)), ("text", 0, 0.0)]
