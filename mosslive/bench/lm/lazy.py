"""Verifies that lazy tails, which catch up later, make the same greedy rows as both tails per step.

Runs in float32, because in lower precisions tied ids can swap. Text follows speech, so that the
text tail has to catch up with rows it has not seen.
"""

from typing import Any

from mosslive.bench.lm.prefix_batch import speech_rows
from mosslive.bench.subject import random_tokenizer
from mosslive.bench.verified import NotVerified
from mosslive.cache import PagePool
from mosslive.config import ModelConfig, Sampling
from mosslive.engine import LanguageModel, Tails
from mosslive.engine.runner import Runner
from mosslive.kernels.arithmetic import arithmetic
from mosslive.model import Decoder, DecoderWeights
from mosslive.rows import Row

_PROMPT_ROWS = 33
_SPOKEN_ROWS = 24
_WRITTEN_ROWS = 16
_POOL = 16  # pages of 16 rows: more than twice the size of a conversation


def check_lazy(config: ModelConfig, weights: DecoderWeights) -> dict[str, Any]:
    """Returns the number of rows compared, as a figure. Raises `NotVerified` if any differ."""
    with arithmetic("fp32"):
        lazy, both = (_conversation(config, weights, tails) for tails in ("lazy", "both"))
    if lazy != both:
        first = next(i for i, pair in enumerate(zip(lazy, both, strict=True)) if len(set(pair)) > 1)
        raise NotVerified(f"lazy tails give {lazy[first]} as row {first}, both tails {both[first]}")
    if len(set(lazy)) < 4:
        raise NotVerified("the greedy rows are constant, so their equality proves nothing")
    return {"greedy rows equal, lazy tails and both tails, fp32": len(lazy)}


def _conversation(config: ModelConfig, weights: DecoderWeights, tails: Tails) -> list[Row]:
    runner = Runner(Decoder(config, weights), PagePool(_POOL, 16), 64)
    lm = LanguageModel(runner, random_tokenizer())
    speaking = Sampling(greedy=True, max_new=_SPOKEN_ROWS, min_new=_SPOKEN_ROWS + 1)
    # "pad", because otherwise the audio tail also runs while writing.
    writing = Sampling(greedy=True, max_new=_WRITTEN_ROWS, ignored_audio="pad")
    ids = lm.ids
    prompt = [*speech_rows(config, _PROMPT_ROWS, 0), (ids.sosp, ids.audio_pad)]
    spoken = list(lm.generate(prompt, speaking, tails=tails))
    turned = [*prompt, *spoken, (ids.modality_pad, ids.eosp), (5, ids.audio_pad)]
    return spoken + list(lm.generate(turned, writing, tails=tails))
