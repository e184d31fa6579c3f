"""Chat completions: transcripts, references to earlier replies, and options that are refused."""

from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from mosslive.server import chat_request
from mosslive.server.api_errors import ApiError
from mosslive.server.chat_options import NEUTRAL, check_options
from mosslive.talk.dialogue import HistoryTurn
from tests.server.rig import WAIT_S, Parts, run, serving, wav
from tests.server.test_asking import system_rows
from tests.server.test_http import audio_part

USER: Any = {"role": "user", "content": "Hello"}
SPOKEN: Any = {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}


def test_a_conversation_by_reference(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spoken reply has a transcript, whole and streamed; its id stands for it in the next request
    of the same key until it expires, and every other id is refused by name."""

    async def test() -> None:
        keys: dict[str, Any] = {
            "api_keys": ("the-first-key", "the-second-key"),
            "transcripts": True,
        }
        async with serving(parts, **keys) as served:
            openai = AsyncOpenAI(
                api_key="the-first-key", base_url=f"{served.http}/v1", max_retries=0
            )
            ask = openai.chat.completions.create
            question: Any = {"role": "user", "content": [audio_part(wav())]}
            first = (await ask(model="moss", messages=[question], **SPOKEN)).choices[0].message
            assert first.audio is not None
            assert first.audio.transcript
            assert first.audio.expires_at > served.server_state.replies._clock() + 3000
            stream: Any = await ask(
                model="moss",
                messages=[question],
                stream=True,
                **SPOKEN | {"audio": {"voice": "alloy", "format": "pcm16"}},
            )
            deltas = [chunk.choices[0].delta.audio async for chunk in stream]
            said = "".join(one.transcript or "" for one in deltas)
            assert said == first.audio.transcript  # the same seed, the same reply

            turns: list[list[HistoryTurn]] = []
            talk = served.backend.talk

            def recording(settings: Any, voice: Any, given: Any = ()) -> Any:
                turns.append(list(given))
                return talk(settings, voice, given)

            monkeypatch.setattr(served.backend, "talk", recording)
            # Both forms that programs send: only the id, and the message as it came.
            by_id: Any = {"role": "assistant", "audio": {"id": first.audio.id}}
            for message in (by_id, first.model_dump()):
                await ask(model="moss", messages=[question, message, USER], max_tokens=3)
                (_, _, answered, _) = turns[-1]
                assert (answered.role, answered.kind) == ("assistant", "speech")
                (owner,) = served.server_state.replies._keys
                stored = served.server_state.replies.get(first.audio.id, owner, "x")
                assert answered.rows == stored.rows
            with monkeypatch.context() as bounded:
                bounded.setattr(chat_request, "_MOST_ROWS", 2 * len(stored.rows))
                with pytest.raises(BadRequestError, match="leave out the oldest"):
                    await ask(model="moss", messages=[by_id, by_id, by_id, USER], max_tokens=3)
            other = AsyncOpenAI(
                api_key="the-second-key", base_url=f"{served.http}/v1", max_retries=0
            )
            with pytest.raises(NotFoundError, match=first.audio.id):
                await other.chat.completions.create(model="moss", messages=[by_id, USER])
            served.server_state.replies._clock = lambda: first.audio.expires_at
            with pytest.raises(NotFoundError, match=first.audio.id):
                await ask(model="moss", messages=[by_id, USER])

    run(test())


REFUSED: list[tuple[str, Any]] = [
    ("tools", [{"type": "function", "function": {"name": "f"}}]),
    ("tool_choice", "required"),
    ("functions", [{"name": "f"}]),
    ("function_call", {"name": "f"}),
    ("response_format", {"type": "json_object"}),
    ("logprobs", True),
    ("top_logprobs", 2),
    ("logit_bias", {"5": 1}),
    ("frequency_penalty", 0.5),
    ("presence_penalty", -1),
    ("stop", "\n"),
    ("stop", ["\n"]),
    ("n", 2),
    ("reasoning_effort", "high"),
    ("store", True),
    ("web_search_options", {}),
    ("temprature", 0.5),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_options_that_are_refused(name: str, value: Any) -> None:
    """An option without effect is refused by its name, not ignored."""
    with pytest.raises(ApiError, match=name) as refused:
        check_options({"messages": [], name: value})
    assert (refused.value.status, refused.value.param) == (400, name)


def test_neutral_options_are_accepted(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients may send every option with the value that asks for nothing, and the options that this
    server has; over HTTP a refused one is an error of the openai package."""
    for name, values in NEUTRAL.items():
        for value in (None, *values):
            check_options({name: value})

    async def test() -> None:
        async with serving(parts) as served:
            prompts = system_rows(served.backend, monkeypatch)
            neutral = {name: values[0] for name, values in NEUTRAL.items() if values}
            body = {"messages": [USER], "max_tokens": 3, "user": "x", "metadata": {}, "n": 1}
            async with httpx.AsyncClient(base_url=served.http, timeout=WAIT_S) as http:

                async def text(**more: Any) -> str:
                    answer = await http.post("/v1/chat/completions", json=body | more)
                    assert answer.status_code == 200, answer.text
                    return str(answer.json()["choices"][0]["message"]["content"])

                assert await text(**neutral) == await text()
                assert await text(seed=1, max_tokens=20) == await text(seed=1, max_tokens=20)
                assert await text(seed=1, max_tokens=20) != await text(seed=-2, max_tokens=20)
                assert await text(top_p=0, seed=1) == await text(top_p=0, seed=2)
                called = {"role": "assistant", "content": "", "tool_calls": [{"id": "c"}]}
                answer = await http.post("/v1/chat/completions", json={"messages": [called]})
                assert answer.json()["error"]["param"] == "messages[0].tool_calls"
            openai = AsyncOpenAI(api_key="unused", base_url=f"{served.http}/v1", max_retries=0)
            function: Any = {"type": "function", "function": {"name": "f"}}
            asked = len(prompts)
            with pytest.raises(BadRequestError, match="tools is not supported"):
                await openai.chat.completions.create(model="x", messages=[USER], tools=[function])
            assert len(prompts) == asked  # nothing was computed

    run(test())
