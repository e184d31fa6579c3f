"""What a model needs, by arithmetic: disk, memory, and conversations that fit into a GPU.

Uses the server's own plan of the memory (`memory_plan.py`), so the answer is what `mosslive serve`
would plan. Knows sizes only: whether a GPU computes fast enough for so many conversations has to be
measured (`mosslive bench capacity`). Loads nothing and needs no GPU.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from mosslive.cache import row_bytes
from mosslive.checkpoint.engine_layout import BaseDtype, stored_tensors, trunk_matrices
from mosslive.checkpoint.header import DTYPE_BYTES
from mosslive.checkpoint.synth import SIZES, synth_config
from mosslive.checkpoint.vocabulary import learned_vocabulary
from mosslive.codec.encoder_pages import page_bytes, pages_for
from mosslive.codec.flow_memory import reply_second_bytes
from mosslive.codec.random_networks import CODEC_SIZES, empty_encoder, empty_flow, empty_hift
from mosslive.config import SECONDS_PER_CODE, ModelConfig, Sampling
from mosslive.engine.settings import EngineSettings
from mosslive.errors import MossliveError
from mosslive.server.gpu_memory import CONTEXT_BYTES
from mosslive.server.limits import conversation_rows, least_rows
from mosslive.server.memory_plan import Needs, hearing_seconds, plan_memory, reply_seconds

LmPrecision = Literal["bf16", "fp8", "float32"]
_CHUNK = 5  # codes of a live step
_MOST = 1024  # conversations; no GPU of today holds more

# What drivers report as usable, in GiB, by the GB that the card is sold with. Cards of one size
# differ by up to 2 GiB; these are the smallest.
USABLE_GIB = {24: 22.0, 48: 44.0, 80: 79.0, 141: 139.0}


@dataclass(frozen=True)
class CodecSizes:
    """Bytes of a codec in `mixed` precision, the default on a GPU."""

    weights: int
    reply_second: int
    hearing: Callable[[float], int]  # seconds of turns → bytes


@dataclass(frozen=True)
class Sizes:
    """Bytes of a language model with its codec."""

    lm: dict[LmPrecision, int]
    row: int  # of a conversation, in bf16
    codec: CodecSizes


def lm_bytes(config: ModelConfig) -> dict[LmPrecision, int]:
    """Weights of an engine folder by precision."""

    def total(base: BaseDtype, fp8: bool) -> int:
        precision = dict.fromkeys(trunk_matrices(config) if fp8 else (), "fp8")
        stored = stored_tensors(config, base, precision)  # type: ignore[arg-type]
        return sum(DTYPE_BYTES[one.dtype] * math.prod(one.shape) for one in stored.values())

    return {
        "bf16": total("bfloat16", False),
        "fp8": total("bfloat16", True),
        "float32": total("float32", False),
    }


def sizes_of(config: ModelConfig, codec: CodecSizes) -> Sizes:
    return Sizes(lm_bytes(config), row_bytes(config, torch.bfloat16), codec)


def published_sizes() -> Sizes:
    """Of MOSS-Speech and its codec, from the shapes alone: the networks are on the meta device."""
    size, codes = CODEC_SIZES["full"], SIZES["full"].codes
    encoder, flow = empty_encoder(size, codes), empty_flow(size, codes)
    networks = (encoder, flow, empty_hift(size))
    codec = CodecSizes(
        weights=sum(t.numel() * 4 for one in networks for t in one.state_dict().values()),
        reply_second=reply_second_bytes(flow, _CHUNK, torch.float16),
        hearing=lambda seconds: pages_for(encoder, seconds) * page_bytes(encoder),
    )
    return sizes_of(synth_config("full", learned_vocabulary()), codec)


@dataclass(frozen=True)
class Talk:
    """What one conversation may be: rows of context, and seconds of its longest reply."""

    rows: int = 2048  # 164 s
    reply_s: float = SECONDS_PER_CODE * Sampling.driver().max_new


def needs_of(sizes: Sizes, precision: LmPrecision, sessions: int, talk: Talk) -> Needs:
    """Of a server with so many conversations, and one HTTP request."""
    return Needs(
        sessions=sessions,
        lm_weights=sizes.lm[precision],
        hearing=sizes.codec.hearing(hearing_seconds(sessions)),
        row_bytes=sizes.row,
        rows=conversation_rows(sessions + 1, talk.rows, EngineSettings()),
        least_rows=least_rows(),
        second_bytes=sizes.codec.reply_second,
        reply_s=reply_seconds(sessions, talk.reply_s),
    )


def gpu_bytes(sizes: Sizes, precision: LmPrecision, sessions: int, talk: Talk) -> int:
    """Memory of a GPU on which so many conversations have all they may need at once."""
    needs = needs_of(sizes, precision, sessions, talk)
    pools = needs.rows * needs.row_bytes + int(needs.reply_s * needs.second_bytes)
    return CONTEXT_BYTES + sizes.codec.weights + sum(needs.fixed.values()) + pools


def conversations(sizes: Sizes, precision: LmPrecision, gpu_gib: float, talk: Talk) -> int:
    """How many conversations fit into a GPU, none of them shortened; 0: none."""
    available = int(gpu_gib * (1 << 30)) - CONTEXT_BYTES - sizes.codec.weights
    low, high = 0, _MOST
    while low < high:
        count = (low + high + 1) // 2
        needs = needs_of(sizes, precision, count, talk)
        try:
            plan = plan_memory(available, needs)
            fits = plan.rows >= needs.rows and plan.reply_s >= needs.reply_s
        except MossliveError:
            fits = False
        low, high = (count, high) if fits else (low, count - 1)
    return low
