"""Calibration at start, and the door: what is refused when no further conversation fits."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import torch

from mosslive import Engine
from mosslive.server.calibration import calibrate
from mosslive.server.capacity import STAGES
from mosslive.server.step_times import StepTimes
from mosslive.talk import CodecService, TalkSettings
from tests.server.auth import denied
from tests.server.rig import WAIT_S, Parts, run, serving, wav
from tests.talk.toy import TOY_VOICE, Samples, ToyBatch, ToyCodec

SLOW = {stage: StepTimes({1: 1.0}) for stage in STAGES}
CHUNK_S = 0.02


class SlowBatch(ToyBatch):
    def step(self, replies: Sequence[Any]) -> dict[Any, Samples]:
        time.sleep(CHUNK_S * len(replies))
        return super().step(replies)


def test_every_stage_is_measured_at_start(nano_folder: Path) -> None:
    """Calibration measures steps of several sizes of all stages, on a CPU and in the order of a
    GPU, and leaves nothing behind."""

    async def test(device: str, most: int, sizes: set[int]) -> None:
        codec = ToyCodec()
        codec.speaking = SlowBatch()
        codec.device = torch.device("cpu")
        async with Engine.load(nano_folder) as engine:
            worker = CodecService(codec)
            codec.device = torch.device(device)  # after the worker has chosen its stream
            try:
                times = await calibrate(engine, worker, TOY_VOICE, TalkSettings(), most)
                assert times is not None
                assert set(times) == set(STAGES)
                for size in sizes:
                    seconds = times["render"].seconds(size)
                    assert CHUNK_S * size <= seconds < 10 * CHUNK_S * size
                assert all(times[stage].seconds(1) > 0 for stage in STAGES)
                async with asyncio.timeout(WAIT_S):
                    while engine.stats().conversations or worker.open_replies or worker.open_turns:
                        await asyncio.sleep(0.01)
            finally:
                await worker.close()

    run(test("cpu", 64, {1, 2}))
    run(test("cuda", 5, {1, 4, 5}))


def test_a_conversation_too_many_is_refused_at_the_door(parts: Parts) -> None:
    """A server that holds none lets one in; a second session and requests for sound get 429, a
    request for text does not; when the first has left, another may come."""

    async def test() -> None:
        async with (
            serving(parts, times=SLOW, admit_overload=False) as served,
            httpx.AsyncClient(base_url=served.http, timeout=WAIT_S) as http,
        ):
            for _ in range(2):
                async with served.session():
                    assert await denied(served) == (429, "overloaded")
                    asked = {"input": "hello", "voice": "default"}
                    answer = await http.post("/v1/audio/speech", json=asked)
                    assert answer.status_code == 429
                    assert int(answer.headers["retry-after"]) >= 1
                    assert "holds 0 conversations" in answer.json()["error"]["message"]
                    chat: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}
                    spoken = chat | {"modalities": ["text", "audio"]}
                    answer = await http.post("/v1/chat/completions", json=spoken)
                    assert answer.status_code == 429
                    answer = await http.post("/v1/chat/completions", json=chat | {"max_tokens": 2})
                    assert answer.status_code == 200
                    sound = {"file": ("a.wav", wav())}
                    answer = await http.post("/v1/audio/transcriptions", files=sound)
                    assert answer.status_code == 200
                await served.server_state.slots.emptied()
            health = (await http.get("/health")).json()
            assert health["capacity"]["conversations"] == 0
            assert "mosslive_capacity_conversations 0.0" in (await http.get("/metrics")).text

    run(test())


def test_overload_may_be_admitted(parts: Parts) -> None:
    """With `admit_overload` the door is open, whatever fits."""

    async def test() -> None:
        async with serving(parts, times=SLOW) as served, served.session(), served.session():
            held = served.server_state.capacity()
            assert held is not None
            assert held.conversations == 0

    run(test())
