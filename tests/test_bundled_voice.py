"""The shipped model hears, understands and answers.

Other tests run on random weights. Here an answer is right or wrong. The questions are those of the
demo and some of training; `mosslive bench bundled` measures held-out questions.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import mosslive
from mosslive.cli.app import app
from mosslive.cli.demo_talk import ask
from mosslive.codec.sound import Sound, read_sound
from mosslive.config.folders import find_parts, has_bundled, shipped_folder
from mosslive.server.backend import load_backend
from mosslive.server.settings import ServerSettings
from recipes.bundled.exam.asker import Asker

ANSWER = "The capital of Germany is Berlin."
TYPED = {
    "What is the capital of Germany?": ANSWER,
    "what is two plus three": "Two plus three is five.",
    "Which day comes after Monday?": "After Monday comes Tuesday.",
    "What color is grass?": "Grass is green.",
}


@pytest.fixture(scope="module")
def home() -> Path:
    assert has_bundled(), "mosslive/bundled has no model: see recipes/bundled/README.md"
    return shipped_folder()


@pytest.fixture(scope="module")
def question(home: Path) -> Sound:
    return read_sound(home / "question.flac")


@pytest.fixture(scope="module")
def codec(home: Path) -> mosslive.Codec:
    return mosslive.load_codec(home / "codec")


@pytest.fixture(scope="module")
def asker(home: Path) -> Asker:
    return Asker.load(home / "lm")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Uses one thread: the networks are small, and more threads than cores would wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_demo_is_answered_right(question: Sound) -> None:
    """The demo's spoken question gets the right spoken answer, as transcribed by the model
    itself."""
    answer, heard = asyncio.run(ask(find_parts("bundled"), question))
    assert heard == ANSWER
    assert 1.0 < len(answer.sound) / answer.rate_hz < 4.0
    assert 0.01 < float(np.sqrt(np.mean(answer.sound**2))) < 0.5


def test_it_reads_and_writes(asker: Asker) -> None:
    """Typed questions of training get their written answers, with or without capitals."""
    given = asker.ask([[text] for text in TYPED], "text", lambda _: None)
    assert [each.text for each in given] == list(TYPED.values())
    assert not any(each.runaway for each in given)


def test_it_remembers_a_name(asker: Asker) -> None:
    """The second turn is answered from the first."""
    (given,) = asker.ask([["My name is Adam.", "What is my name?"]], "text", lambda _: None)
    assert "Adam" in given.text


def _likeness(one: Tensor, other: Tensor) -> float:
    """Returns the best correlation of two log spectra [bins, 10 ms] over shifts, because a reply
    can begin anywhere within a code."""
    best = -1.0
    for shift in range(-10, 11):
        x, y = one[:, max(0, shift) :], other[:, max(0, -shift) :]
        both = min(x.shape[1], y.shape[1])
        pair = torch.stack((x[:, :both].flatten(), y[:, :both].flatten()))
        best = max(best, float(torch.corrcoef(pair)[0, 1]))
    return best


def test_all_four_modes_agree(
    asker: Asker, codec: mosslive.Codec, question: Sound, home: Path
) -> None:
    """A spoken and a typed question get the same text and the same sound; another question gets
    another sound."""
    heard = codec.encode(question.wave, question.rate_hz)
    typed, *_, other = TYPED
    written = asker.ask([[heard], [typed]], "text", lambda _: None)
    assert [each.text for each in written] == [ANSWER, ANSWER]
    voice, window = codec.voice(home / "voices/default.voice"), torch.hann_window(960)
    spoken = asker.ask([[heard], [typed], [other]], "speech", lambda _: None)
    assert all(12 <= len(said.codes) <= 50 for said in spoken[:2])
    assert abs(len(spoken[0].codes) - len(spoken[1].codes)) <= 1
    spectra = []
    for said in spoken:
        wave = torch.from_numpy(codec.decode(said.codes, voice))
        spectrum = torch.stft(wave, 960, 240, window=window, return_complex=True)
        spectra.append(spectrum[:200].abs().clamp(min=1e-3).log())  # up to 5 kHz
    assert _likeness(spectra[0], spectra[1]) > 0.85  # 0.93; answers about other capitals: 0.67
    assert _likeness(spectra[0], spectra[2]) < 0.7  # 0.44


def test_streaming_hearing_equals_offline(codec: mosslive.Codec, question: Sound) -> None:
    """Streaming and offline encoding give equal codes for packets of any size."""
    whole = codec.encode(question.wave, question.rate_hz)
    rng = np.random.default_rng(7)
    stream = codec.encoder_stream(question.rate_hz)
    at = 0
    while at < len(question.wave):
        step = int(rng.integers(1, 4000))
        stream.push(question.wave[at : at + step])
        at += step
    assert stream.finish().codes == whole


def test_commands_and_server_use_it_by_default() -> None:
    """`inspect` and the server use the bundled model without a name."""
    shown = CliRunner().invoke(app, ["inspect", "bundled"])
    assert shown.exit_code == 0
    assert "usable" in shown.output
    backend = load_backend(ServerSettings())
    try:
        assert backend.speaks
        assert backend.default_sampling.greedy
    finally:
        asyncio.run(backend.close())
