"""Replies of Realtime sessions that begin in a pause, and the model behind `semantic_vad`."""

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mosslive.server.backend import Backend
from mosslive.server.server_state import ServerState
from mosslive.talk import AdaptiveSilence, SemanticEnd
from mosslive.talk.production import Production, Sample
from tests.server.bench import bench
from tests.server.grammar import check
from tests.server.rig import CODES, RATE, pcm, run, settings, spoken, until

PAUSE = np.zeros(RATE * 3 // 10, np.float32)  # longer than `pause_s`, shorter than an end


def begun(on: Any) -> bool:
    current = on.session.talk._controller._speculation._current
    return current is not None and current[0].ready


def test_a_reply_begins_in_a_pause_and_is_heard_after_the_turn(
    served: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the pause the client gets no event of the reply; if the turn ends there, it gets the reply
    as usual; if it goes on, the reply is dropped, and nothing of it is sent or counted."""

    monkeypatch.setattr(served, "settings", settings(speculate=True))

    async def test() -> None:
        room = served.room
        before = room.adopted, room.dropped
        async with bench(served) as on:
            # However slow the machine is; `test_room_for_speculation` is about that.
            monkeypatch.setattr(room, "fits", lambda running: True)
            for seed in range(2):
                await on.send("input_audio_buffer.append", audio=pcm(spoken(0.4, seed)))
                await on.send("input_audio_buffer.append", audio=pcm(PAUSE))
                # The first one is dropped when the speech after it is heard, which takes a moment.
                if seed:
                    await until(lambda: room.dropped == before[1] + 1)
                await until(lambda: begun(on))
                assert room.running == 1
                names = {event["type"].partition(".")[0] for event in on.events}
                assert names <= {"session", "conversation", "input_audio_buffer"}
                assert served.codec is not None
                assert served.codec.production.replies == 0
            await on.send("input_audio_buffer.append", audio=pcm(PAUSE))
            done = await on.until("response.done")
            tokens = done["response"]["usage"]["output_token_details"]
            assert tokens["audio_tokens"] == CODES
            assert len(on.of("response.created")) == len(on.of("input_audio_buffer.committed")) == 1
            assert (room.adopted, room.dropped) == (before[0] + 1, before[1] + 1)
            assert room.running == 0
            check(on.events)

    run(test())


def test_semantic_vad_uses_the_model_of_the_server(
    served: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an end-of-turn model `semantic_vad` asks it, else it adapts to pauses only; speculation
    is a setting."""

    class Model:
        def complete(self, wave: Any) -> float:
            return 1.0

    async def rule() -> object:
        async with bench(served) as on:
            vad = {"type": "semantic_vad"}
            session = {"type": "realtime", "audio": {"input": {"turn_detection": vad}}}
            await on.send("session.update", session=session)
            assert on.session.talk.settings.speculate == served.settings.speculate
            turns = on.session.talk.settings.turns
            assert turns is not None
            return turns.end

    assert isinstance(asyncio.run(rule()), AdaptiveSilence)
    monkeypatch.setattr(served, "make_end_model", Model)
    monkeypatch.setattr(served, "settings", settings(speculate=True))
    assert isinstance(asyncio.run(rule()), SemanticEnd)


def test_room_for_speculation() -> None:
    """Each speculative reply needs room for a whole conversation more; an overloaded, a draining
    and a silent server have none."""

    async def test() -> None:
        state: Any = ServerState(settings(), None)  # type: ignore[arg-type]
        assert not state.has_spare_room(0)
        production = Production()
        state._backend = SimpleNamespace(codec=SimpleNamespace(production=production))
        assert state.has_spare_room(10), "nothing was measured"
        held = SimpleNamespace(conversations=4)
        state._admission = SimpleNamespace(capacity=lambda: held)
        state.slots.speaking, state.requests.speaking = 2, 1
        assert state.has_spare_room(0)
        assert not state.has_spare_room(1)
        now = asyncio.get_running_loop().time()
        production.samples.extend([Sample(now, 1, 2.0)] * 3)
        assert not state.has_spare_room(0)
        production.samples.clear()
        state.draining.set()
        assert not state.has_spare_room(0)

    run(test())
