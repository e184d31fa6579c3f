"""Compares settings of hearing, rendering, sampling and storage that random weights cannot decide.

Every comparison uses the same questions or the same codes on both sides.
"""

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch

from mosslive.build import Fp8Options, Keep, build_engine
from mosslive.checkpoint import take_inventory
from mosslive.checkpoint.faults import FailedProbes
from mosslive.config import Sampling
from recipes.bundled.exam.answers import COMPOSED, HEADLINES
from recipes.bundled.exam.asker import Asker
from recipes.bundled.exam.examiner import Answer, Examiner
from recipes.bundled.exam.figure import Figure, mean, ratio, share
from recipes.bundled.exam.folder import RATE_HZ, Utterance
from recipes.bundled.exam.rendering import Renderer, Rendering
from recipes.bundled.exam.words import same_words, word_errors

RENDERINGS = (
    Rendering(),
    Rendering(tail="cached"),
    Rendering(chunk=25),
    Rendering(chunk=0),
    Rendering(window_frames=50),
    Rendering(window_frames=100),
    Rendering(dtype="bfloat16"),
    Rendering(dtype="float16"),
    Rendering(steps=10),
    Rendering(steps=6),
    Rendering(steps=4),
    Rendering(steps=1),
)
_PACKET_SAMPLES = 480  # 20 ms
_COMPARED = 200  # sentences per rendering


def measure_hearing(examiner: Examiner, most: int | None) -> Iterator[Figure]:
    """Compares codes computed while the user speaks (the loudest sound so far sets the floor) with
    codes of the whole turn."""
    name, kind, speaker, _ = HEADLINES[0]
    dialogues = examiner.exam.select(kind, speaker, most)
    changed, live_talks = [], []
    with examiner.stage("hearing live", len(dialogues)) as done:
        for dialogue in dialogues:
            talk = []
            for pair in dialogue.turn_pairs:
                utterance = pair.utterances[speaker]
                live, whole = _heard_live(examiner, utterance), examiner.codes(utterance)
                differ = sum(a != b for a, b in zip(live, whole, strict=True))
                changed.append((differ, len(whole)))
                talk.append(live)
            live_talks.append(talk)
            done(1)
    yield ratio("codes heard live that differ from those of the whole turn", changed)
    given = examiner.ask(dialogues, live_talks, "speech")
    answers = examiner.judge(dialogues, speaker, given)
    yield share(f"speech to speech, {name}, live codes: right", [a.right for a in answers])
    whole_turns = examiner.examine(kind, speaker, most)
    yield share(f"speech to speech, {name}, codes of the whole turn: right", _marks(whole_turns))


def _heard_live(examiner: Examiner, utterance: Utterance) -> list[int]:
    stream = examiner.renderer.codec.encoder_stream(RATE_HZ)
    pcm, live = torch.from_numpy(examiner.exam.pcm(utterance)), []
    for first in range(0, len(pcm), _PACKET_SAMPLES):
        live += stream.push(pcm[first : first + _PACKET_SAMPLES])
    turn = stream.finish()
    return live + turn.codes[len(live) :]


def measure_rendering(examiner: Examiner, most: int | None) -> Iterator[Figure]:
    """Renders the synthesiser's answers through the codec with every setting."""
    wanted: dict[str, Utterance] = {}
    for kind in ("word", "wording", "pair"):  # answers that training never had come first
        for dialogue in examiner.exam.select(kind, "unseen"):
            wanted.setdefault(dialogue.answer, dialogue.synthesised)
    utterances = list(wanted.values())[: most or _COMPARED]
    texts = [utterance.text for utterance in utterances]
    synthesised = examiner.transcribe_synthesised(utterances)
    rated = []
    with examiner.stage("rating", len(utterances)) as done:
        for utterance in utterances:
            rated.append(examiner.judges.rate(examiner.exam.pcm(utterance), RATE_HZ))
            done(1)
    yield from _heard("the synthesiser itself", synthesised, texts)
    yield mean("the synthesiser itself: DNSMOS overall", rated)
    codes = [examiner.codes(utterance) for utterance in utterances]
    parts = examiner.parts
    assert parts.codec is not None
    assert parts.voice is not None
    for rendering in RENDERINGS:
        renderer = (
            examiner.renderer
            if rendering == Rendering()
            else Renderer(parts.codec, parts.voice, rendering)
        )
        yield from _heard(f"codec, {rendering.name}", examiner.transcribe(codes, renderer), texts)
        waves = examiner.render(codes, renderer)
        with examiner.stage("rating", len(waves)) as done:
            rated = []
            for wave in waves:
                rated.append(examiner.judges.rate(wave, renderer.rate_hz))
                done(1)
        yield mean(f"codec, {rendering.name}: DNSMOS overall", rated)


def _heard(name: str, heard: list[str], texts: list[str]) -> Iterator[Figure]:
    pairs = list(zip(heard, texts, strict=True))
    yield ratio(f"{name}: word error rate", [word_errors(said, meant) for said, meant in pairs])
    yield share(f"{name}: exact words heard", [same_words(a, b) for a, b in pairs])


def measure_sampling(examiner: Examiner, most: int | None) -> Iterator[Figure]:
    """Compares the sampling of the folder with that of the publishers' driver."""
    name, kind, speaker, _ = HEADLINES[0]
    driver = Asker.load(examiner.parts.model, Sampling.driver(ignored_audio="pad"))
    for label, asker in (("the folder's sampling", examiner.asker), ("the driver's", driver)):
        answers = examiner.examine(kind, speaker, most, asker)
        yield share(f"speech to speech, {name}, {label}: right", _marks(answers))
        yield share(
            f"speech to speech, {name}, {label}: do not end",
            [a.reply.runaway for a in answers],
        )


def build_fp8(examiner: Examiner, folder: Path) -> str:
    """Builds with as many of the last trunk layers in float8 as pass the builder's check. Errors of
    the first layers reach all others, which is too much in a model this narrow. Returns which
    layers are float8."""
    model = examiner.parts.model
    layers = take_inventory(model).config.num_shared_layers

    def build(first: int) -> str:
        keep = Keep(tuple(f"trunk.{number}" for number in range(first)))
        options = Fp8Options(keep=keep, sequences=50, replies=0)
        build_engine(model, folder, torch.device("cpu"), fp8=options)
        return f"last {layers - first} of {layers} trunk layers in float8"

    for first in range(layers - 1):
        with suppress(FailedProbes):
            return build(first)
    return build(layers - 1)


def measure_fp8(examiner: Examiner, most: int | None) -> Iterator[Figure]:
    """Asks the same questions of the float8 build of the language model."""
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "fp8"
        layers = build_fp8(examiner, folder)
        asker = examiner.asker_of(folder)
        for name, kind, speaker, _ in (*HEADLINES, *COMPOSED):
            plain = _marks(examiner.examine(kind, speaker, most))
            stored = _marks(examiner.examine(kind, speaker, most, asker))
            yield share(f"{layers}: speech to speech, {name}: right", stored)
            lower = [100.0 * (a - b) for a, b in zip(plain, stored, strict=True)]
            yield mean(f"{layers}: {name}, points lower", lower, goal="<= 2")


def _marks(answers: list[Answer]) -> list[bool]:
    return [answer.right for answer in answers]
