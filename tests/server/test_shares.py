"""A long conversation is trimmed to its share of the pages; others can start, and go on."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest

from mosslive import Engine
from mosslive.config.capabilities import Capabilities
from mosslive.server.limits import limits_of
from mosslive.server.settings import ServerSettings
from tests.server import rig
from tests.server.doors import denied
from tests.server.rig import CODES, Event, Parts, run, serving, settings, spoken

ROWS = 16 * (2 * (256 // 16 + 9) + 25)  # three conversations of 256 rows, with their overhead
TURN_S = 5.0  # 63 rows
LONG_S = 25.0  # 313 rows, beyond the share


def answered(done: Event) -> None:
    """A reply of random weights goes on until it is as long as allowed."""
    response = done["response"]
    assert response["status"] in ("completed", "incomplete"), response
    assert response["usage"]["output_tokens"] >= CODES, response


@contextmanager
def small_pool() -> Iterator[None]:
    """Engines of the rig have few pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "load", partial(Engine.load, kv_rows=ROWS))
        yield


def test_a_long_session_leaves_pages_to_others(parts: Parts) -> None:
    """One client speaks for more rows than the pool has. Every turn is answered, another session
    starts meanwhile and is answered too, and the free pages never fall below the others' share."""

    async def test() -> None:
        options: dict[str, Any] = {"max_sessions": 2, "max_requests": 1, "max_turn_s": 60.0}
        async with serving(parts, **options) as served:
            engine = served.backend.engine
            lowest = engine.stats().pages
            async with served.session() as long:
                await long.manual()
                for turn in range(ROWS * 8 // 100 // int(TURN_S) + 2):
                    answered(await long.ask(spoken(TURN_S, turn)))
                    lowest = min(lowest, engine.stats().free_pages)
                async with served.session() as other:
                    await other.manual()
                    for turn in range(3):
                        answered(await other.ask(spoken(TURN_S, turn)))
                        answered(await long.ask(spoken(TURN_S, turn)))
                assert [event for event in long.events if event["type"] == "error"] == []
            assert lowest >= engine.stats().pages // 3

    with small_pool():
        run(test())


def test_a_turn_longer_than_the_share_is_refused_and_the_session_goes_on(parts: Parts) -> None:
    """The error says how long a turn may be; the next, shorter turn is answered."""

    async def test() -> None:
        options: dict[str, Any] = {"max_sessions": 2, "max_requests": 1, "max_turn_s": 60.0}
        async with serving(parts, **options) as served, served.session() as peer:
            await peer.manual()
            await peer.say(spoken(LONG_S))
            await peer.send("input_audio_buffer.commit")
            error = await peer.api_error()
            assert "the turn is too long" in error["message"], error
            assert "s of speech)" in error["message"]
            answered(await peer.ask(spoken(1.0)))

    with small_pool():
        run(test())


def test_a_small_pool_holds_fewer_sessions(parts: Parts) -> None:
    """Sessions beyond those that find pages are refused at the door, with the number allowed."""

    async def test() -> None:
        few = serving(parts, max_sessions=8, max_requests=4)
        async with few as served, served.session(), served.session():
            assert await denied(served) == (429, "too_many_sessions")

    with small_pool():
        run(test())


def test_limits_follow_from_pool_model_and_settings(parts: Parts) -> None:
    """The smallest of the three counts; more than the model was taught is refused by name."""
    engine = Engine.load(parts.lm)
    few, taught = settings(max_sessions=2, max_requests=2), Capabilities(context_rows=240)
    most = engine.rows_each(4)
    assert limits_of(engine, few, Capabilities()).context_rows == most
    assert limits_of(engine, few, taught).context_rows == 240
    small = settings(max_sessions=2, max_requests=2, context_rows=100)
    assert limits_of(engine, small, taught).context_rows == 100
    with pytest.raises(ValueError, match="context_rows is 400; allowed: 64 to 240"):
        limits_of(engine, ServerSettings(context_rows=400), taught)


def test_a_model_with_one_voice_takes_no_other(parts: Parts) -> None:
    """An upload is refused with a reason, and the list of voices says so before."""

    async def test() -> None:
        async with serving(parts) as served, httpx.AsyncClient(base_url=served.http) as http:
            assert (await http.get("/v1/voices")).json()["uploads"] is True
            served.backend.capabilities = Capabilities(voices=False, modes=("speech-to-speech",))
            assert (await http.get("/v1/voices")).json()["uploads"] is False
            files = {"file": ("a.wav", rig.wav(1.0))}
            answer = await http.post("/v1/voices", data={"name": "mine"}, files=files)
            assert (answer.status_code, answer.json()["error"]["code"]) == (
                409,
                "voices_not_supported",
            )
            written = {"messages": [{"role": "user", "content": "Hi"}]}
            answer = await http.post("/v1/chat/completions", json=written)
            assert answer.status_code == 400
            assert "was not trained for text-to-text" in answer.json()["error"]["message"]

    run(test())
