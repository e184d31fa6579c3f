"""Sound in a front: messages keep their order, and each frame is classified once."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message

from mosslive.server.front.client_events import with_event
from mosslive.server.front.speech_input import SpeechBatch, SpeechInput
from mosslive.talk.vad import Speech
from mosslive.talk.vad_frames import FrameStream
from tests.server.rig import pcm, pcm_bytes, run, until
from tests.talk.rig import LoudVad, frames

WAVE = np.repeat(frames((0.2, False), (0.4, True), (0.2, False)), 3)[::2]  # at 24 kHz
LOUD = {
    "format": "audio/pcm",
    "stream": 1,
    "vad": "tests.talk.rig:LoudVad",
    "soft_below": 0.5,
    "quiet_s": 0.1,
    "loud_from": 0.5,
    "steady_s": 0.1,
    "end_model": None,
    "end_checks": None,
}
TEXT = {"type": "websocket.receive", "text": "x"}


class BrokenVad:
    def probability(self, frame: Any) -> float:
        raise RuntimeError("injected")


def sound(data: bytes) -> Message:
    event = {"type": "input_audio_buffer.append", "audio": data, "speech": None}
    return {"type": "websocket.receive", "event": event}


def expected(wave: Any) -> list[float]:
    stream, vad = FrameStream(24_000), LoudVad()
    stream.push(torch.from_numpy(wave))
    return [vad.probability(stream.take()) for _ in range(stream.waiting)]


def joined(messages: list[Message]) -> list[bytes | str]:
    """The sound between two texts as one."""
    found: list[bytes | str] = [b""]
    for message in messages:
        if "event" not in message:
            found += [message["text"], b""]
        else:
            found[-1] += message["event"]["audio"]
    return found


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9000), st.booleans()), max_size=30))
def test_order_and_results(moves: list[tuple[int, int, bool]]) -> None:
    """However packets of several clients are cut, odd bytes included, all sound and all texts are
    forwarded in order, and the probabilities are those of the whole sound."""

    async def test() -> None:
        batch, data = SpeechBatch(), pcm_bytes(WAVE)
        got: list[list[Message]] = [[], [], []]
        inputs = [SpeechInput(batch, some.append) for some in got]
        heard, sent = [0, 0, 0], list[list[Message]]([[], [], []])
        for one in inputs:
            one.use(LOUD)
        for who, size, text in [*moves, *((who, len(data), True) for who in range(3))]:
            audio = data[heard[who] : heard[who] + size]
            heard[who] += size
            for make in (lambda audio=audio: sound(audio), lambda: TEXT)[: 1 + text]:
                sent[who].append(make())
                count = len(got[who])
                inputs[who].push(make())
                assert len(got[who]) >= count
            if text:
                await asyncio.sleep(0)
        await until(lambda: [joined(some) for some in got] == [joined(some) for some in sent])
        for who in range(3):
            speech = [one["event"]["speech"] for one in got[who] if "event" in one]
            assert {stream for stream, _ in speech} == {1}
            found = [value for _, values in speech for value in values]
            assert found == expected(np.frombuffer(data, "<i2").astype(np.float32) / 32768)

    asyncio.run(test())


def test_only_sound_that_matters_is_sent_at_once() -> None:
    """In silence and within steady speech the core gets larger pieces. The first frames of speech
    and of silence are sent at once."""

    async def test() -> None:
        got: list[Message] = []
        one = SpeechInput(SpeechBatch(), got.append)
        one.use(LOUD)
        counts = []
        for loud in (False, True, False):
            before = len(got)
            for _ in range(50):  # a second in packets of 20 ms
                one.push(sound(pcm_bytes(np.full(480, 0.5 * loud, np.float32))))
                await asyncio.sleep(0.011)  # so that no two packets share a batch
            counts.append(len(got) - before)
        assert counts[0] <= 12
        assert 8 <= counts[1] <= 20
        assert counts[2] <= 14
        speech = [one["event"]["speech"][1] for one in got]
        mixed = [some for some in speech if len(set(some)) > 1]  # with the first different frame
        assert all(some.count(some[-1]) <= 2 for some in mixed)  # and no waiting for more
        one.push(TEXT)
        await until(lambda: got[-1] is TEXT)
        assert sum(len(one["event"]["audio"]) for one in got[:-1]) == 3 * 48_000

    run(test())


def test_long_sound_is_cut() -> None:
    """A packet of many seconds becomes several messages with the same sound, if the VAD is on."""
    one, message = SpeechInput(SpeechBatch(), lambda message: None), sound(bytes(200_001))
    assert list(one.parts(message)) == [message]

    async def test() -> None:
        one.use(LOUD)
        assert joined(list(one.parts(message))) == [bytes(200_001)]
        assert len(list(one.parts(message))) == 5
        assert list(one.parts(TEXT)) == [TEXT]

    run(test())


def test_settings_of_a_session() -> None:
    """A new stream begins with its next sample; without turn detection there is no VAD."""

    async def test() -> None:
        got: list[Message] = []
        one = SpeechInput(SpeechBatch(), got.append)
        data = pcm_bytes(WAVE)
        one.push(sound(data[:100]))  # before any settings
        sent = 1
        for stream in (1, 2, None):
            one.use(LOUD | {"stream": stream})
            one.push(sound(data))
            one.push(TEXT)
            sent += 2
            await until(lambda sent=sent: len(got) == sent)  # type: ignore[misc]
        plain = expected(np.frombuffer(data, "<i2").astype(np.float32) / 32768)
        speech = [one["event"]["speech"] for one in got if "event" in one]
        assert speech == [None, [1, plain], [2, plain], None]

    run(test())


def test_a_vad_that_fails() -> None:
    """Sound goes on to the core, which then classifies it."""

    async def test() -> None:
        got: list[Message] = []
        one = SpeechInput(SpeechBatch(), got.append)
        one.use(LOUD | {"vad": "tests.server.test_speech_input:BrokenVad"})
        for _ in range(3):
            one.push(sound(pcm_bytes(WAVE)))
        await until(lambda: len(got) == 3)
        assert joined(got) == [3 * pcm_bytes(WAVE)]
        one.push(sound(b""))
        assert got[-1]["event"]["speech"] is None
        one.use(LOUD | {"vad": "no:where", "stream": 2})
        one.push(sound(b""))
        assert got[-1]["event"]["speech"] is None

    run(test())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"type":"input_audio_buffer.append"}',
        '{"type":"input_audio_buffer.append","audio":7}',
        '{"type":"input_audio_buffer.append","audio":"*"}',
        '{"type":"input_audio_buffer.append","audio":"AA"}',
        '{"type":"input_audio_buffer.commit"}',
        '{"type":["session.update"]}',
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    """What is not valid sound reaches the core untouched."""

    async def test() -> None:
        message = {"type": "websocket.receive", "text": text}
        assert await with_event(message) == (message, False)

    run(test())


def test_sound_becomes_bytes() -> None:
    """Appended sound is decoded, its id stays, and an update is recognised."""

    async def test() -> None:
        audio = pcm(WAVE)
        fields = {"event_id": "a", "type": "input_audio_buffer.append", "audio": audio}
        text = json.dumps(fields | {"x": 10**30})
        message, update = await with_event({"type": "websocket.receive", "text": text})
        event = {**sound(pcm_bytes(WAVE))["event"], "event_id": "a"}
        assert (message, update) == ({"type": "websocket.receive", "event": event}, False)
        text = '{"type":"session\\u002eupdate"}'
        assert (await with_event({"type": "websocket.receive", "text": text}))[1]

    run(test())


class Sure:
    """An end-of-turn model that is sure."""

    def complete(self, wave: Any) -> float:
        return 0.75


def test_answers_of_the_end_model_go_with_the_sound() -> None:
    """The front asks the model in a pause, on a thread, and a later message has its answer."""

    async def test() -> None:
        got: list[Message] = []
        one = SpeechInput(SpeechBatch(), got.append)
        one.use(
            LOUD
            | {
                "end_model": "tests.server.test_speech_input:Sure",
                "end_checks": [0.5, 0.5, [4, 12], 4, 40],  # as msgpack returns it
            }
        )
        wave = np.repeat(frames((0.4, True), (0.6, False)), 3)[::2]
        for first in range(0, len(wave), 480):
            one.push(sound(pcm_bytes(wave[first : first + 480])))
            await asyncio.sleep(0.011)
        one.push(TEXT)
        await until(lambda: got[-1] is TEXT)
        ends = [end for one in got[:-1] for end in Speech(*one["event"]["speech"]).ends]
        loud = sum(expected(np.frombuffer(pcm_bytes(wave), "<i2").astype(np.float32) / 32768))
        assert [tuple(end) for end in ends] == [
            ((loud + 4) * 512, 0.75),
            ((loud + 12) * 512, 0.75),
        ]

    run(test())
