"""The idle timeout of turn detection."""

import asyncio
from typing import Any

import numpy as np
import pytest

from mosslive.server.backend import Backend
from mosslive.server.realtime.session import Client
from tests.server.bench import Bench, bench
from tests.server.grammar import check, check_types
from tests.server.rig import RATE, pcm, run, spoken, turn, until

pytestmark = pytest.mark.alone

TRIGGERED = "input_audio_buffer.timeout_triggered"


def idling(timeout_ms: int | None, **more: Any) -> dict[str, Any]:
    detection = {"type": "server_vad", "idle_timeout_ms": timeout_ms, **more}
    return {
        "type": "realtime",
        "max_output_tokens": 5,
        "audio": {"input": {"turn_detection": detection}},
    }


async def one_turn(on: Bench, timeout_ms: int, **more: Any) -> None:
    """One turn with a reply of 0.4 s."""
    await on.send("session.update", session=idling(timeout_ms, **more))
    await on.send("input_audio_buffer.append", audio=pcm(turn()))


def counting(on: Bench) -> bool:
    return on.session.idle._timer is not None


def test_silence_is_answered(served: Backend) -> None:
    """Counted from the end of playback, the idle timeout commits the silence as it came and answers
    it, and so again after the next reply."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with bench(served) as on:
            await one_turn(on, 300)
            await on.until("response.output_audio.delta")
            begun = loop.time()
            await on.until("response.done")
            await on.send("input_audio_buffer.append", audio=pcm(np.zeros(RATE // 5, np.float32)))
            triggered = await on.until(TRIGGERED)
            assert loop.time() - begun > 0.6
            assert triggered["audio_end_ms"] == 1400
            assert triggered["audio_start_ms"] == 1100
            committed = await on.until("input_audio_buffer.committed")
            assert committed["item_id"] == triggered["item_id"]
            await on.until("response.done")
            await on.until(TRIGGERED)
            await on.until("response.done")
            roles = [one.role for one in await on.session.talk.settled()]
            assert roles == ["system", *["user", "assistant"] * 3]
            check_types(on.events)
            check(on.events)

    run(test())


def test_speech_and_responses_stop_the_idle_timer(served: Backend) -> None:
    """Speech, another response and unsetting the timeout each stop the idle timer."""

    async def test() -> None:
        async with bench(served) as on:
            await one_turn(on, 300)
            await on.until("response.done")
            assert counting(on)
            await on.send("input_audio_buffer.append", audio=pcm(spoken(0.3)))
            await on.until("input_audio_buffer.speech_started")
            assert not counting(on)
            await on.send("input_audio_buffer.append", audio=pcm(turn(0.1)))
            await on.until("response.done")
            assert counting(on)
            await on.send("response.create")
            await until(lambda: not counting(on))
            await on.until("response.done")
            await on.send("session.update", session=idling(None))
            assert not counting(on)
            assert on.events[-1]["session"]["audio"]["input"]["turn_detection"] == {
                "type": "server_vad",
                "threshold": 0.5,
                "prefix_padding_ms": 300,
                "silence_duration_ms": 500,
                "create_response": True,
                "interrupt_response": True,
                "idle_timeout_ms": None,
            }
            await on.send("session.update", session=idling(200))
            assert counting(on)
            assert not on.of(TRIGGERED)
        assert not counting(on)  # the session is closed

    run(test())


def test_no_idle_response_without_create_response(served: Backend) -> None:
    """If the end of a turn creates no response, the idle timeout creates none."""

    async def test() -> None:
        async with bench(served) as on:
            await one_turn(on, 100, create_response=False)
            await on.until("input_audio_buffer.committed")
            await on.send("response.create")
            await on.until("response.done")
            assert not counting(on)

    run(test())


def test_beta_clients_are_answered_too(served: Backend) -> None:
    """A beta client gets the idle response without the timeout event, which beta does not have."""

    async def test() -> None:
        async with bench(served, Client("client", beta=True, model="gpt-realtime")) as on:
            detection = {"type": "server_vad", "idle_timeout_ms": 100}
            short = {"turn_detection": detection, "max_response_output_tokens": 5}
            await on.send("session.update", session=short)
            await on.send("input_audio_buffer.append", audio=pcm(turn()))
            await on.until("response.done")
            await on.until("input_audio_buffer.committed")
            await on.until("response.done")
            check_types(on.events, beta=True)

    run(test())


@pytest.mark.parametrize("timeout_ms", [0, 99, 30_001, "5000"])
def test_timeouts_that_are_refused(served: Backend, timeout_ms: Any) -> None:
    """An invalid timeout is refused and changes nothing."""

    async def test() -> None:
        async with bench(served) as on:
            await on.send("session.update", session=idling(timeout_ms))
            assert on.events[-1]["error"]["param"].endswith("turn_detection.idle_timeout_ms")

    run(test())
