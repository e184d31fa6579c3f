"""Each hot operation once, in plain PyTorch: the definition every faster form must equal."""

from mosslive.kernels.add_rms_norm import add_rms_norm
from mosslive.kernels.attend import attend
from mosslive.kernels.embed import embed
from mosslive.kernels.linear import Matrix, gated, linear
from mosslive.kernels.norm_products import norm_feed_forward, norm_linear
from mosslive.kernels.paged_attention import (
    LayerPages,
    PagedBatch,
    Span,
    Spread,
    make_span,
    make_spread,
    paged_attention,
    read_pages,
    write_pages,
)
from mosslive.kernels.philox import uniform
from mosslive.kernels.place_qkv import place_qkv
from mosslive.kernels.quantise import quantise_rows
from mosslive.kernels.rms_norm import rms_norm
from mosslive.kernels.rotary import RotaryTable, rotate
from mosslive.kernels.sample import NonFiniteLogits, check_logits, greedy, penalise, sample_token
from mosslive.kernels.sample_batch import SamplingBatch, sample_batch
from mosslive.kernels.silu_mul import silu_mul
from mosslive.kernels.upload import upload

__all__ = [
    "LayerPages",
    "Matrix",
    "NonFiniteLogits",
    "PagedBatch",
    "RotaryTable",
    "SamplingBatch",
    "Span",
    "Spread",
    "add_rms_norm",
    "attend",
    "check_logits",
    "embed",
    "gated",
    "greedy",
    "linear",
    "make_span",
    "make_spread",
    "norm_feed_forward",
    "norm_linear",
    "paged_attention",
    "penalise",
    "place_qkv",
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
