"""The prompts of the server are those the model was trained with, for each kind of task."""

from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from mosslive.codec import Voice
from mosslive.rows import DRIVER_SYSTEM, READ_ALOUD_SYSTEM, WRITE_DOWN_SYSTEM, Row, Turn
from mosslive.server.backend import Backend
from mosslive.server.one_shot import transcribe_turn
from mosslive.server.realtime.session import Client
from mosslive.talk import Talk, TalkSettings
from mosslive.talk.dialogue import HistoryTurn
from recipes.bundled.vocabulary import TASK_SYSTEM
from tests.faults.containers import contained
from tests.server import bench as benches
from tests.server.bench import Bench, bench
from tests.server.rig import RATE, WAIT_S, Parts, run, serving, spoken, wav


def system_rows(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Row, ...]]:
    """A list that grows by the rows of the first turn of every later reply."""
    first: list[tuple[Row, ...]] = []
    talk = backend.talk

    def recording(
        settings: TalkSettings, voice: Voice | None, turns: Sequence[HistoryTurn] = ()
    ) -> Talk:
        first.append(tuple(turns[0].rows))
        return talk(settings, voice, turns)

    monkeypatch.setattr(backend, "talk", recording)
    return first


def system(backend: Backend, text: str) -> tuple[Row, ...]:
    return tuple(backend.engine.format.turn(Turn("system", text=text)))


def test_prompts_are_those_of_the_training() -> None:
    """The model knows a task by its wording, so the recipe and the server share one text."""
    assert TASK_SYSTEM["transcribe"] == WRITE_DOWN_SYSTEM
    assert TASK_SYSTEM["read"] == READ_ALOUD_SYSTEM


def test_reading_aloud(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """`/v1/audio/speech` uses the training prompt for reading aloud; the client's instructions
    follow it."""

    async def test() -> None:
        async with serving(parts) as served:
            first = system_rows(served.backend, monkeypatch)
            async with httpx.AsyncClient(base_url=served.http, timeout=WAIT_S) as http:
                for more in ({}, {"instructions": "Slowly."}):
                    asked = {"input": "Hello", "response_format": "pcm", **more}
                    assert (await http.post("/v1/audio/speech", json=asked)).status_code == 200
            manner = f"{READ_ALOUD_SYSTEM} Slowly."
            assert first == [system(served.backend, text) for text in (READ_ALOUD_SYSTEM, manner)]

    run(test())


def test_transcribing(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transcript uses the training prompt for transcription."""

    async def test() -> None:
        async with serving(parts) as served:
            first = system_rows(served.backend, monkeypatch)
            rows = served.backend.engine.format.turn(Turn("user", codes=[1, 2, 3]))
            await transcribe_turn(served.backend, HistoryTurn("user", "speech", tuple(rows)))
            assert first == [system(served.backend, WRITE_DOWN_SYSTEM)]

    run(test())


TEXT = {"type": "realtime", "output_modalities": ["text"]}
AUDIO = {"type": "realtime", "output_modalities": ["audio"]}


async def instructions_of(on: Bench) -> str:
    """The instructions of the session, which are also those of the conversation."""
    text = on.session.config.instructions
    (first,) = [one for one in await on.session.talk.settled() if one.role == "system"]
    assert tuple(first.rows) == system(on.session.backend, text)
    return text


def test_instructions_follow_the_kind_of_reply(parts: Parts) -> None:
    """Default instructions follow the modality of the session, also for a session of an ephemeral
    key; instructions of the client or the operator stay."""

    async def test(backend: Backend, chosen: str | None) -> None:
        spoken, written = (chosen or DRIVER_SYSTEM[kind] for kind in ("speech", "text"))
        async with bench(backend) as on:
            assert await instructions_of(on) == spoken
            for update, text in (
                (TEXT, written),
                ({"type": "realtime"}, written),
                (AUDIO, spoken),
            ):
                await on.send("session.update", session=update)
                assert await instructions_of(on) == text
                assert on.of("session.updated")[-1]["session"]["instructions"] == text
            await on.send("session.update", session=TEXT | {"instructions": "Be kind."})
            await on.send("session.update", session=AUDIO)
            assert await instructions_of(on) == "Be kind."
        async with bench(backend, Client("client", session=TEXT)) as on:
            assert await instructions_of(on) == written

    for chosen in (None, "By the operator."):
        with benches.backend(parts, instructions=chosen) as backend:
            run(test(backend, chosen))


def test_a_server_without_a_voice_asks_for_text(parts: Parts) -> None:
    """Without a voice, sessions and ephemeral keys default to text and report it."""

    async def test() -> None:
        changes: dict[str, Any] = {"silent": True, "instructions": None}
        async with serving(parts, **changes) as served, served.session() as peer:
            begun = peer.events[0]["session"]
            async with httpx.AsyncClient(base_url=served.http, timeout=WAIT_S) as http:
                with_ephemeral_key = (
                    await http.post("/v1/realtime/client_secrets", json={})
                ).json()["session"]
            for shown in (begun, with_ephemeral_key):
                assert shown["output_modalities"] == ["text"]
                assert shown["instructions"] == DRIVER_SYSTEM["text"]

    run(test())


FORMAT, GRANULARITY = "response_format", "timestamp_granularities[]"


def test_transcriptions(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """`audio.transcriptions` of the openai package returns the text of any common audio format,
    whole and as it is written, prompts the model as it was trained, and names unsupported
    parameters in the error."""

    async def test() -> None:
        async with serving(parts) as served:
            first = system_rows(served.backend, monkeypatch)
            openai = AsyncOpenAI(api_key="unused", base_url=f"{served.http}/v1")
            ask = openai.audio.transcriptions.create
            written = await ask(model="any", file=("x.wav", wav(0.4)))
            assert written.text
            assert first == [system(served.backend, WRITE_DOWN_SYSTEM)]
            flac = ("x.flac", wav(0.4, "FLAC"))
            plain: Any = await ask(model="any", file=flac, response_format="text")
            assert plain == f"{written.text}\n"  # the same seed and sound, the same words
            wave = spoken(0.4)
            for kind in ("M4A", "WEBM"):
                assert (await ask(model="any", file=("x", contained(kind, wave, RATE)))).text
            seen = [one async for one in await ask(model="any", file=flac, stream=True)]
            assert "".join(one.delta for one in seen[:-1]) == written.text  # type: ignore
            last: Any = seen[-1]
            assert (last.type, last.text) == ("transcript.text.done", written.text)
            assert last.usage.output_tokens > 0
            verbose: Any = await ask(
                model="any", file=flac, response_format="verbose_json", language="en"
            )
            assert (verbose.text, verbose.language) == (written.text, "en")
            assert verbose.duration == pytest.approx(0.4, abs=0.01)
            assert verbose.segments is None  # there are no times
            async with httpx.AsyncClient(base_url=served.http, timeout=WAIT_S) as http:
                for file, more, param in (
                    (b"no sound", {}, "file"),
                    (wav(), {"response_format": "srt"}, "response_format"),
                    (wav(), {"response_format": "vtt"}, "response_format"),
                    (wav(), {"stream": "maybe"}, "stream"),
                    (wav(), {"stream": "true", "response_format": "verbose_json"}, FORMAT),
                    (wav(), {GRANULARITY: "word"}, GRANULARITY),
                    (wav(), {"include[]": "logprobs"}, "include[]"),
                    (None, {"model": "any"}, "file"),
                ):
                    files = {"file": ("x", file)} if file else None
                    path = "/v1/audio/transcriptions"
                    refused = await http.post(path, files=files, data=more)
                    assert refused.status_code == 400
                    assert refused.json()["error"]["param"] == param
                assert served.server_state.requests.taken == 0

    run(test())
