"""What random weights cannot settle: ways of hearing, rendering, drawing and storing, side by side.

Every comparison uses the same questions or the same codes on both sides. Knows which ways there are
to compare; what is better is for the reader.
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
from recipes.bundled.exam.folder import RATE_HZ, Form
from recipes.bundled.exam.rendering import Mouth, Way
from recipes.bundled.exam.words import same_words, word_errors

WAYS = (
    Way(),
    Way(tail="cached"),
    Way(chunk=25),
    Way(chunk=0),
    Way(window_frames=50),
    Way(window_frames=100),
    Way(dtype="bfloat16"),
    Way(dtype="float16"),
    Way(steps=10),
    Way(steps=6),
    Way(steps=4),
    Way(steps=1),
)
_PACKET_SAMPLES = 480  # 20 ms
_COMPARED = 200  # sentences that each way renders


def measure_hearing(examiner: Examiner, most: int | None) -> Iterator[Figure]:
    """Codes as they come while somebody speaks (the loudest sound so far sets the floor), against
    codes of the whole turn."""
    name, kind, who, _ = HEADLINES[0]
    dialogues = examiner.exam.some(kind, who, most)
    changed, live_talks = [], []
    with examiner.stage("hearing live", len(dialogues)) as done:
        for dialogue in dialogues:
            talk = []
            for exchange in dialogue.exchanges:
                form = exchange.forms[who]
                live, whole = _heard_live(examiner, form), examiner.codes(form)
                differ = sum(a != b for a, b in zip(live, whole, strict=True))
                changed.append((differ, len(whole)))
                talk.append(live)
            live_talks.append(talk)
            done(1)
    yield ratio("codes heard live that the whole turn would have otherwise", changed)
    given = examiner.ask(dialogues, live_talks, "speech")
    answers = examiner.judge(dialogues, who, given)
    yield share(f"speech to speech, {name}, live codes: right", [a.right for a in answers])
    whole_turns = examiner.examine(kind, who, most)
    yield share(f"speech to speech, {name}, codes of the whole turn: right", _marks(whole_turns))


def _heard_live(examiner: Examiner, form: Form) -> list[int]:
    stream = examiner.mouth.codec.encoder_stream(RATE_HZ)
    pcm, live = torch.from_numpy(examiner.exam.pcm(form)), []
    for first in range(0, len(pcm), _PACKET_SAMPLES):
        live += stream.push(pcm[first : first + _PACKET_SAMPLES])
    turn = stream.finish()
    return live + turn.codes[len(live) :]


def measure_rendering(examiner: Examiner, most: int | None) -> Iterator[Figure]:
    """The synthesiser's answers through the codec, rendered in every way."""
    wanted: dict[str, Form] = {}
    for kind in ("word", "wording", "pair"):  # answers that were never trained on come first
        for dialogue in examiner.exam.some(kind, "unseen"):
            wanted.setdefault(dialogue.answer, dialogue.own)
    forms = list(wanted.values())[: most or _COMPARED]
    texts = [form.text for form in forms]
    own = examiner.hear_own(forms)
    rated = []
    with examiner.stage("rating", len(forms)) as done:
        for form in forms:
            rated.append(examiner.judges.rate(examiner.exam.pcm(form), RATE_HZ))
            done(1)
    yield from _heard("the synthesiser itself", own, texts)
    yield mean("the synthesiser itself: DNSMOS overall", rated)
    codes = [examiner.codes(form) for form in forms]
    parts = examiner.parts
    assert parts.codec is not None
    assert parts.voice is not None
    for way in WAYS:
        mouth = examiner.mouth if way == Way() else Mouth(parts.codec, parts.voice, way)
        yield from _heard(f"codec, {way.name}", examiner.hear(codes, mouth), texts)
        waves = examiner.render(codes, mouth)
        with examiner.stage("rating", len(waves)) as done:
            rated = []
            for wave in waves:
                rated.append(examiner.judges.rate(wave, mouth.rate_hz))
                done(1)
        yield mean(f"codec, {way.name}: DNSMOS overall", rated)


def _heard(name: str, heard: list[str], texts: list[str]) -> Iterator[Figure]:
    pairs = list(zip(heard, texts, strict=True))
    yield ratio(f"{name}: word error rate", [word_errors(said, meant) for said, meant in pairs])
    yield share(f"{name}: the very words heard", [same_words(a, b) for a, b in pairs])


def measure_sampling(examiner: Examiner, most: int | None) -> Iterator[Figure]:
    """The folder's own sampling against the publishers' driver's."""
    name, kind, who, _ = HEADLINES[0]
    driver = Asker.load(examiner.parts.model, Sampling.driver(ignored_audio="pad"))
    for label, asker in (("the folder's sampling", examiner.asker), ("the driver's", driver)):
        answers = examiner.examine(kind, who, most, asker)
        yield share(f"speech to speech, {name}, {label}: right", _marks(answers))
        yield share(
            f"speech to speech, {name}, {label}: without an end",
            [a.given.runaway for a in answers],
        )


def build_fp8(examiner: Examiner, folder: Path) -> str:
    """As much of the trunk in float8 as passes the builder's own check, from its end. What the
    first layers lose, all later ones work with, and in a model as narrow as the bundled one that is
    too much. → which layers are float8."""
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
    """The same questions through the float8 build of the language model."""
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "fp8"
        layers = build_fp8(examiner, folder)
        asker = examiner.asker_of(folder)
        for name, kind, who, _ in (*HEADLINES, *COMPOSED):
            plain = _marks(examiner.examine(kind, who, most))
            stored = _marks(examiner.examine(kind, who, most, asker))
            yield share(f"{layers}: speech to speech, {name}: right", stored)
            lower = [100.0 * (a - b) for a, b in zip(plain, stored, strict=True)]
            yield mean(f"{layers}: {name}, points lower", lower, goal="<= 2")


def _marks(answers: list[Answer]) -> list[bool]:
    return [answer.right for answer in answers]
