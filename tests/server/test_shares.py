"""A long conversation is trimmed to its share of the pages, so other sessions find pages."""

from typing import Any

import httpx

from mosslive import Engine
from mosslive.config.capabilities import Capabilities
from mosslive.server.limits import limits_of
from tests.server import rig
from tests.server.auth import denied
from tests.server.rig import CODES, Event, Parts, run, serving, settings, spoken

ROWS = 16 * (2 * (256 // 16 + 9) + 25)  # three conversations of 256 rows, with their overhead
TURN_S = 12.0  # 150 rows
LONG_S = 25.0  # 313 rows, beyond the share


def answered(done: Event) -> None:
    """A reply of random weights continues up to the maximum length."""
    response = done["response"]
    assert response["status"] in ("completed", "incomplete"), response
    assert response["usage"]["output_tokens"] >= CODES, response


def test_a_long_session_leaves_pages_to_others(parts: Parts) -> None:
    """One client speaks for more rows than the pool has. Every turn is answered, another session
    starts meanwhile and is answered too, and the free pages never fall below the others' share."""

    async def test() -> None:
        options: dict[str, Any] = {"max_sessions": 2, "max_requests": 1, "max_turn_s": 60.0}
        async with serving(parts, kv_rows=ROWS, **options) as served:
            engine = served.backend.engine
            lowest = engine.stats().pages
            async with served.session() as long:
                await long.manual()
                for turn in range(ROWS * 8 // 100 // int(TURN_S) + 2):
                    answered(await long.ask(spoken(TURN_S, turn)))
                    lowest = min(lowest, engine.stats().free_pages)
                async with served.session() as other:
                    await other.manual()
                    for turn in range(2):
                        answered(await other.ask(spoken(TURN_S, turn)))
                        answered(await long.ask(spoken(TURN_S, turn)))
                assert [event for event in long.events if event["type"] == "error"] == []
            assert lowest >= engine.stats().pages // 3

    run(test())


def test_a_turn_longer_than_the_share_is_refused_and_the_session_goes_on(parts: Parts) -> None:
    """The error states the maximum length of a turn; the next, shorter turn is answered."""

    async def test() -> None:
        options: dict[str, Any] = {"max_sessions": 2, "max_requests": 1, "max_turn_s": 60.0}
        async with serving(parts, kv_rows=ROWS, **options) as served, served.session() as peer:
            await peer.manual()
            await peer.say(spoken(LONG_S))
            await peer.send("input_audio_buffer.commit")
            error = await peer.api_error()
            assert "the turn is too long" in error["message"], error
            assert "s of speech)" in error["message"]
            answered(await peer.ask(spoken(1.0)))

    run(test())


def test_long_instructions_cannot_take_the_pages_of_others(parts: Parts) -> None:
    """`session.update` with instructions beyond the session's share is refused, and its pages stay
    free for others."""

    async def test() -> None:
        options: dict[str, Any] = {"max_sessions": 2, "max_requests": 1, "max_turn_s": 60.0}
        async with serving(parts, kv_rows=ROWS, **options) as served, served.session() as peer:
            await peer.manual()
            free = served.backend.engine.stats().free_pages
            await peer.send("session.update", session={"instructions": "word " * 400})
            error = await peer.api_error()
            assert error["code"] == "engine_full_context", error
            assert served.backend.engine.stats().free_pages >= free - 1
            answered(await peer.ask(spoken(1.0)))

    run(test())


def test_a_small_pool_allows_fewer_sessions(parts: Parts) -> None:
    """Sessions beyond the number that the pool has pages for get 429."""

    async def test() -> None:
        few = serving(parts, kv_rows=ROWS, max_sessions=8, max_requests=4)
        async with few as served, served.session(), served.session():
            assert await denied(served) == (429, "too_many_sessions")

    run(test())


def test_limits_follow_from_pool_model_and_settings(parts: Parts) -> None:
    """The smallest limit applies; the user's wins over the model's."""
    engine = Engine.load(parts.lm)
    few, trained = settings(max_sessions=2, max_requests=2), Capabilities(context_rows=240)
    most = engine.rows_each(4)
    assert limits_of(engine, few, Capabilities()).context_rows == most
    assert limits_of(engine, few, trained).context_rows == 240
    small = settings(max_sessions=2, max_requests=2, context_rows=100)
    assert limits_of(engine, small, trained).context_rows == 100
    large = settings(max_sessions=2, max_requests=2, context_rows=400)
    assert limits_of(engine, large, trained).context_rows == 400


def test_a_model_with_one_voice_refuses_uploads(parts: Parts) -> None:
    """An upload gets an error with a reason, and the list of voices reports it beforehand."""

    async def test() -> None:
        async with serving(parts) as served, httpx.AsyncClient(base_url=served.http) as http:
            assert (await http.get("/v1/voices")).json()["uploads"] is True
            served.backend.capabilities = Capabilities(voices=False, modes=("speech-to-speech",))
            assert (await http.get("/v1/voices")).json()["uploads"] is False
            (model,) = (await http.get("/v1/models")).json()["data"]
            assert model["capabilities"] == {
                "context_rows": served.backend.limits.context_rows,
                "modes": ["speech-to-speech"],
                "languages": [],
                "voices": False,
                "transcripts": False,
            }
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
