"""The model that is shipped holds a conversation: later questions are answered like the first.

It was trained on short dialogues. With a longer history its answers are noise, so its folder
states how much of one it can use, and the server and `chat` trim conversations to that.
"""

import asyncio
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch

from mosslive.checkpoint.capabilities import folder_capabilities
from mosslive.checkpoint.generation import folder_sampling
from mosslive.codec import Sound, load_codec
from mosslive.config.folders import find_parts
from mosslive.engine import Engine
from mosslive.engine.load import load_stepper
from mosslive.rows import READ_ALOUD_SYSTEM, ReplyKind
from mosslive.server.backend import Backend
from mosslive.server.one_shot import one_shot_reply, turn_of
from mosslive.server.settings import ServerSettings
from mosslive.server.voice_store import VoiceStore
from mosslive.talk import CodecService
from mosslive.talk.events import AudioChunk, ReplyDone, TalkFault

ANSWERS = {
    "What is the capital of Germany?": "The capital of Germany is Berlin.",
    "What is two plus three?": "Two plus three is five.",
    "Which day comes after Monday?": "After Monday comes Tuesday.",
    "What color is grass?": "Grass is green.",
    "What is the capital of France?": "The capital of France is Paris.",
    "What is four plus five?": "Four plus five is nine.",
    "What color is snow?": "Snow is white.",
    "Which month comes after June?": "After June comes July.",
}
# Questions that the model hears rightly when it reads them aloud itself.
HEARD = {
    "What is the capital of Germany?": "The capital of Germany is Berlin.",
    "Which day comes after Monday?": "After Monday comes Tuesday.",
    "What is the opposite of hot?": "The opposite of hot is cold.",
    "How many legs does a dog have?": "The dog has four legs.",
    "How are you?": "I am fine, thank you.",
    "What is the capital of Spain?": "The capital of Spain is Madrid.",
    "What does a dog say?": "The dog says woof.",
    "What is the capital of Italy?": "The capital of Italy is Rome.",
}


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the networks are small
    parts = find_parts("bundled")
    assert parts.codec is not None
    assert parts.voice is not None
    codec, capabilities = load_codec(parts.codec), folder_capabilities(parts.model)
    made = Backend(
        # Its clock stands still: it never refuses speech because the machine is slow.
        Engine(*load_stepper(parts.model), clock=lambda: 0.0),
        CodecService(codec),
        VoiceStore(codec.voice(parts.voice), [], 1),
        ServerSettings(max_sessions=2, max_requests=1),
        default_sampling=folder_sampling(parts.model),
        capabilities=capabilities,
    )
    yield made
    asyncio.run(made.close())
    torch.set_num_threads(before)


async def spoken(backend: Backend, text: str) -> Sound:
    """The model reads the question aloud, in the voice it was trained on."""
    turns = [
        await turn_of(backend, "system", READ_ALOUD_SYSTEM),
        await turn_of(backend, "user", text),
    ]
    assert backend.voices.default is not None
    settings = backend.task_settings("speech")
    events = one_shot_reply(backend, turns, settings, backend.voices.default.voice)
    pieces = [event.pcm async for event in events if isinstance(event, AudioChunk)]
    wave = np.concatenate([*pieces, np.zeros(backend.rate_hz // 5, np.float32)])
    return Sound(torch.from_numpy(wave), backend.rate_hz)


async def replies(
    backend: Backend, reply: ReplyKind, questions: Sequence[str | Sound]
) -> list[tuple[str, tuple[int, ...]]]:
    """Text and codes of each reply, in one conversation with the server's settings."""
    assert backend.voices.default is not None
    settings = backend.talk_settings(reply, backend.instructions(reply), backend.sampling())
    talk = backend.talk(settings, backend.voices.default.voice)
    events, given = talk.events(), []
    for question in questions:
        if isinstance(question, str):
            talk.push_text(question)
        else:
            talk.push_audio(question.wave, question.rate_hz)
            talk.commit()
        async for event in events:
            assert not isinstance(event, TalkFault), event
            if isinstance(event, ReplyDone):
                last = (await talk.settled())[-1]
                given.append((event.text, tuple(row[1] for row in last.rows)))
                break
    await backend.end(talk)
    return given


def test_eight_written_turns(backend: Backend) -> None:
    """Typed questions of one conversation all get their answers in writing."""
    given = asyncio.run(replies(backend, "text", list(ANSWERS)))
    assert [text for text, _ in given] == list(ANSWERS.values())


def test_eight_spoken_turns(backend: Backend) -> None:
    """Spoken questions of one conversation are answered in writing by the right words, and aloud by
    the very codes that the same question gets as the first one."""

    async def test() -> None:
        questions = [await spoken(backend, text) for text in HEARD]
        written = await replies(backend, "text", questions)
        assert [text for text, _ in written] == list(HEARD.values())
        aloud = await replies(backend, "speech", questions)
        for turn in (3, 5, 7):
            (first,) = await replies(backend, "speech", [questions[turn]])
            assert aloud[turn] == first, f"turn {turn + 1}"

    asyncio.run(test())


def test_a_name_just_told_survives(backend: Backend) -> None:
    """After other questions, a name is remembered for the next one."""
    asked = [*list(ANSWERS)[:2], "My name is Adam.", "What is my name?"]
    given = asyncio.run(replies(backend, "text", asked))
    assert given[-1][0] == "Your name is Adam."
