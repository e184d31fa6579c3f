"""Random sessions against a real server, and runs that failed once."""

import asyncio
import random
from pathlib import Path

import pytest

from tests.fuzz.generate import Shape, run_of
from tests.fuzz.player_webrtc import missing
from tests.fuzz.runs import Target
from tests.fuzz.script import Run, Session
from tests.fuzz.shrink import as_test, shrink
from tests.fuzz.soak import smaller

SHORT_S = 5.0  # of random sessions
SHRINK_S = 60.0  # for a run that failed


@pytest.mark.alone
def test_random_sessions(nano_folder: Path) -> None:
    """Whatever clients send, whenever they leave, over any transport: sessions answer in time and
    in order, nothing internal shows, and the server holds afterwards what it held before."""
    if why := missing():
        print(f"no calls over WebRTC: {why}")
    shape = Shape(sessions=4, steps=40, webrtc=0.0 if why else 0.05)

    async def test() -> None:
        async with Target("toy", nano_folder, warm_up=2) as target:
            end, seed = asyncio.get_running_loop().time() + SHORT_S, 1000
            while asyncio.get_running_loop().time() < end:
                run = run_of(seed, shape)
                played = await target.play(run)
                if played.failures:
                    print(*played.failures, sep="\n")
                    shorter = await smaller(target, run, played.failures, SHRINK_S)
                    raise AssertionError(as_test(shorter, seed, played.failures))
                seed += 1

    asyncio.run(test())


def replay(folder: Path, *sessions: Session) -> None:
    """Plays a run that failed once."""

    async def test() -> None:
        async with Target("toy", folder, warm_up=2) as target:
            played = await target.play(list(sessions))
            assert not played.failures

    asyncio.run(test())


def test_a_seed_is_a_run() -> None:
    """The same seed gives the same run, and another seed another."""
    shape = Shape(webrtc=0.2)
    assert run_of(7, shape) == run_of(7, shape)
    assert run_of(7, shape) != run_of(8, shape)


def test_a_failing_run_is_shrunk() -> None:
    """Of a long run that fails because of two steps of one session, only these are left, and they
    print as a test."""
    chance = random.Random(0)
    run = [run_of(seed, Shape(sessions=1))[0] for seed in range(5)]
    guilty = ("send", {"type": "guilty"}), ("wait", 0.125)
    steps = list(run[3].steps)
    for step in guilty:
        steps.insert(chance.randrange(len(steps)), step)
    run[3] = Session("websocket", 0.5, tuple(steps))

    async def fails(candidate: Run) -> bool:
        return any(all(step in session.steps for step in guilty) for session in candidate)

    (left,) = asyncio.run(shrink(run, fails))
    assert sorted(left.steps, key=str) == sorted(guilty, key=str)
    assert left.delay_s == 0.0
    text = as_test([left], 7, ["silent: no answer"])
    compile(text, "test", "exec")
    assert "{'type': 'guilty'}" in text
