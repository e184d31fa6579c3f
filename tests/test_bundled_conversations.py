"""The model that is shipped holds a conversation with a client of the server: later questions are
answered like the first.

It was trained on short dialogues. With a longer history its answers are noise, so its folder
states how much of one it can use, and the server and `chat` trim conversations to that.
"""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray
from websockets.asyncio.client import connect

from mosslive.checkpoint.capabilities import folder_capabilities
from mosslive.checkpoint.generation import folder_sampling
from mosslive.codec import load_codec
from mosslive.config.folders import find_parts
from mosslive.engine import Engine
from mosslive.engine.load import load_stepper
from mosslive.server.backend import Backend
from mosslive.server.run import make_server
from mosslive.server.settings import ServerSettings
from mosslive.server.voice_store import VoiceStore
from mosslive.talk import CodecService
from tests.server.rig import RATE, WAIT_S, Peer, Served, until

Wave = NDArray[np.float32]

ANSWERS = {
    "What is the capital of Germany?": "The capital of Germany is Berlin.",
    "What is two plus three?": "Two plus three is five.",
    "Which day comes after Monday?": "After Monday comes Tuesday.",
    "What color is grass?": "Grass is green.",
    "What is the opposite of hot?": "The opposite of hot is cold.",
    "What is four plus five?": "Four plus five is nine.",
    "What color is snow?": "Snow is white.",
    "Which month comes after June?": "After June comes July.",
}
# The same questions, said by flite's voice rms, one of those that the model was trained on.
SPOKEN = (
    "capital-of-germany",
    "two-plus-three",
    "day-after-monday",
    "color-of-grass",
    "opposite-of-hot",
    "four-plus-five",
    "color-of-snow",
    "month-after-june",
)
FOLDER = Path(__file__).parent / "golden" / "questions"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A server with the bundled model, as `mosslive serve` starts it, on a thread of its own."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the networks are small
    settings = ServerSettings(port=0, fronts=0, max_sessions=2, max_requests=1, admit_overload=True)
    made: list[Backend] = []

    async def load() -> Backend:
        parts = find_parts("bundled")
        assert parts.codec is not None
        assert parts.voice is not None
        codec = load_codec(parts.codec)
        made.append(
            Backend(
                # Its clock stands still: it never refuses speech because the machine is slow.
                Engine(*load_stepper(parts.model), clock=lambda: 0.0),
                CodecService(codec),
                VoiceStore(codec.voice(parts.voice), [], 1),
                settings,
                default_sampling=folder_sampling(parts.model),
                capabilities=folder_capabilities(parts.model),
            )
        )
        return made[0]

    server, state = make_server(settings, load)
    thread = threading.Thread(target=lambda: asyncio.run(server._serve()))
    thread.start()
    try:
        asyncio.run(until(lambda: state.state == "ready" or not thread.is_alive()))
        yield Served(state, server.port, made[0], None)
    finally:
        server.should_exit = True
        thread.join(WAIT_S)
        torch.set_num_threads(before)


async def converse(served: Served, reply: str, questions: Sequence[str | Wave]) -> list[str]:
    """The words of each reply in one session; of a spoken one, the transcript that is sent by
    default."""
    session = {
        "type": "realtime",
        "output_modalities": [reply],
        "audio": {"input": {"turn_detection": None}},
    }
    given = []
    async with connect(served.ws, max_size=None) as socket:
        peer = Peer(socket)
        await peer.send("session.update", session=session)
        for question in questions:
            if isinstance(question, str):
                content = [{"type": "input_text", "text": question}]
                item = {"type": "message", "role": "user", "content": content}
                await peer.send("conversation.item.create", item=item)
            else:
                await peer.say(question)
                await peer.send("input_audio_buffer.commit")
            await peer.send("response.create")
            done = await peer.until("response.done")
            (item,) = done["response"]["output"]
            (part,) = item["content"]
            given.append(part["text"] if reply == "text" else part["transcript"])
    return given


def test_eight_written_turns(served: Served) -> None:
    """Typed questions of one conversation all get their answers in writing."""
    given = asyncio.run(converse(served, "text", list(ANSWERS)))
    assert given == list(ANSWERS.values())


def test_eight_spoken_turns(served: Served) -> None:
    """Spoken questions of one conversation all get their answers, in writing and aloud. Transcripts
    of spoken answers may differ in case, and one in a word: the model hears itself imperfectly."""
    sounds = [soundfile.read(FOLDER / f"{name}.opus", dtype="float32") for name in SPOKEN]
    assert {rate_hz for _, rate_hz in sounds} == {RATE}
    questions = [wave for wave, _ in sounds]
    assert asyncio.run(converse(served, "text", questions)) == list(ANSWERS.values())
    aloud = asyncio.run(converse(served, "audio", questions))
    pairs = zip(aloud, ANSWERS.values(), strict=True)
    assert sum(given.lower() == right.lower() for given, right in pairs) >= 7, aloud


def test_a_name_just_told_survives(served: Served) -> None:
    """After other questions, a name is remembered for the next one."""
    asked = [*list(ANSWERS)[:2], "My name is Adam.", "What is my name?"]
    given = asyncio.run(converse(served, "text", asked))
    assert given[-1] == "Your name is Adam."
