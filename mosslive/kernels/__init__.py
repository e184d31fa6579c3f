"""Each hot operation in plain PyTorch: the definition that every faster implementation must equal.

`kernels.gpu` has the Triton kernels; `kernels.dispatch` decides which of the two runs.
"""

from mosslive.kernels.add_rms_norm import add_rms_norm
from mosslive.kernels.attend import attend
from mosslive.kernels.embed import embed
from mosslive.kernels.linear import Matrix, gated, linear
from mosslive.kernels.norm_products import norm_feed_forward, norm_linear
from mosslive.kernels.norm_rope_cache import norm_rope_cache
from mosslive.kernels.paged_attention import (
    AttentionMetadata,
    LayerPages,
    PagedBatch,
    Span,
    make_attention_metadata,
    make_span,
    paged_attention,
    read_pages,
    write_pages,
)
from mosslive.kernels.philox import uniform
from mosslive.kernels.quantise import quantise_rows
from mosslive.kernels.rms_norm import rms_norm
from mosslive.kernels.rotary import RotaryTable, rotate
from mosslive.kernels.sample import NonFiniteLogits, check_logits, greedy, penalise, sample_token
from mosslive.kernels.sample_batch import SamplingBatch, sample_batch
from mosslive.kernels.silu_mul import silu_mul
from mosslive.kernels.upload import upload

__all__ = [
    "AttentionMetadata",
    "LayerPages",
    "Matrix",
    "NonFiniteLogits",
    "PagedBatch",
    "RotaryTable",
    "SamplingBatch",
    "Span",
    "add_rms_norm",
    "attend",
    "check_logits",
    "embed",
    "gated",
    "greedy",
    "linear",
    "make_attention_metadata",
    "make_span",
    "norm_feed_forward",
    "norm_linear",
    "norm_rope_cache",
    "paged_attention",
    "penalise",
    "quantise_rows",
    "read_pages",
    "rms_norm",
    "rotate",
    "sample_batch",
    "sample_token",
    "silu_mul",
    "uniform",
    "upload",
    "write_pages",
]
