"""Each hot operation once, in plain PyTorch: the definition every faster form must equal."""

from mosslive.kernels.paged_attention import (
    LayerPages,
    PagedBatch,
    Span,
    make_span,
    paged_attention,
    read_pages,
    write_pages,
)
from mosslive.kernels.philox import uniform
from mosslive.kernels.rms_norm import rms_norm
from mosslive.kernels.rotary import RotaryTable, rotate
from mosslive.kernels.sample import NonFiniteLogits, check_logits, draw, greedy, penalise
from mosslive.kernels.silu_mul import silu_mul

__all__ = [
    "LayerPages",
    "NonFiniteLogits",
    "PagedBatch",
    "RotaryTable",
    "Span",
    "check_logits",
    "draw",
    "greedy",
    "make_span",
    "paged_attention",
    "penalise",
    "read_pages",
    "rms_norm",
    "rotate",
    "silu_mul",
    "uniform",
    "write_pages",
]
