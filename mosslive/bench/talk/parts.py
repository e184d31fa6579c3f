"""The engine and the codec of a benchmark of conversations: random weights, made on the device.

Sized for the conversations that the benchmark will hold. Blocks for up to minutes at full size, so
it reports its progress. Knows no conversation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mosslive.bench.codec.precompile import compiling
from mosslive.bench.lm.weights import as_precision
from mosslive.bench.subject import Subject, checked_precisions, random_tokenizer
from mosslive.bench.talk.random_codec import RandomCodec, compile_jobs
from mosslive.cache import PagePool
from mosslive.codec.device import COMPUTE
from mosslive.config.codec_precision import codec_precision
from mosslive.engine.engine import Engine
from mosslive.engine.graph_runner import GraphRunner
from mosslive.engine.graph_stepper import GraphStepper
from mosslive.engine.settings import EngineSettings
from mosslive.engine.stepper import PlainStepper
from mosslive.kernels.arithmetic import Precision
from mosslive.model import Decoder
from mosslive.talk.settings import TalkSettings

_COMPILED: dict[str, Precision] = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
_PAGE_SIZE, _CHUNK_ROWS = 16, 512
_POOL_MARGIN, _PROMPT_S, _FEW = 1.25, 30.0, 16


@dataclass(frozen=True)
class PartsSettings:
    subject: Subject
    conversations: int  # at once, all of them speaking
    rows_each: int
    pool_s: float  # speech that all replies together store in the flow's pool
    precision: str = "bf16"  # of the language model
    codec_precision: str | None = None  # see `CodecPrecision`; None: the device's default
    vocoder: Path | None = None  # a BigVGAN folder; None: a random HiFT
    spare: int = 0  # further conversations that have pages


def needed_pool_s(
    replies: int, reply_s: float, stagger_s: float, ahead_s: float = TalkSettings().ahead_s
) -> float:
    """Returns the speech, in seconds, that the flow stores at most for replies of one length that
    begin evenly within `stagger_s`, with a margin and the prompt of the voice.

    A reply that is rendered in time is `ahead_s` ahead of its listener from the beginning, and
    frees its pages when its last code is rendered. If more is needed because rendering is late, the
    youngest replies wait for pages. A few replies get room for the whole of each."""
    rendering_s = max(0.0, reply_s - ahead_s)
    begins = [stagger_s * number / replies for number in range(replies)]

    def held_s(now: float) -> float:
        ages = [now - begin for begin in begins if begin <= now <= begin + rendering_s]
        return sum(min(reply_s, ahead_s + age) for age in ages)

    # The sum grows while replies are rendered, so it is largest just before one of them ends.
    most_s = max(held_s(begin + rendering_s) for begin in begins)
    whole_s = (reply_s + 2) * min(replies, _FEW)
    return max(_POOL_MARGIN * most_s, whole_s) + _PROMPT_S


def make_parts(
    settings: PartsSettings, report_progress: Callable[[str], None]
) -> tuple[Engine, RandomCodec]:
    subject = settings.subject
    chosen = codec_precision(settings.codec_precision, subject.device)
    with_hift = settings.vocoder is None
    jobs = compile_jobs(
        _COMPILED[chosen.flow],
        settings.conversations,
        with_hift,
        _COMPILED[chosen.encoder],
        _COMPILED[chosen.vocoder],
    )
    with compiling(subject.size, subject.device, jobs):
        # The codec first: it reserves its memory at the start.
        codec = RandomCodec(
            subject.size,
            subject.device,
            COMPUTE[chosen.flow],
            settings.pool_s,
            settings.vocoder,
            encoder_dtype=COMPUTE[chosen.encoder],
            vocoder_dtype=chosen.vocoder,
        )
        report_progress("the codec's weights made")
        stepper = _stepper(settings, report_progress)
    if subject.device == "cuda":
        report_progress("the codec's kernels compiled")
    most_speaking = max(EngineSettings().max_speaking, settings.conversations)
    engine_settings = EngineSettings(max_speaking=most_speaking)
    return Engine(stepper, random_tokenizer(), engine_settings), codec


def _stepper(
    settings: PartsSettings, report_progress: Callable[[str], None]
) -> PlainStepper | GraphStepper:
    """Returns the language model, sized for all conversations at once."""
    subject, most = settings.subject, settings.conversations
    config, weights = subject.load(float8_trunk=settings.precision == "fp8")
    (precision,) = checked_precisions(weights, (settings.precision,))
    decoder = Decoder(config, as_precision(weights, precision))
    report_progress("the language model's weights made")
    pages = (most + settings.spare) * settings.rows_each // _PAGE_SIZE
    runner = GraphRunner(decoder, PagePool(pages, _PAGE_SIZE), _CHUNK_ROWS)
    if subject.device != "cuda":
        return PlainStepper(runner)
    stepper = GraphStepper(runner, most)
    stepper.record()
    report_progress("the language model's graphs recorded")
    return stepper
