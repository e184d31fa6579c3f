"""Triton kernels of the operations in `mosslive.kernels`: same name, same arguments, same result.

Imported only where a GPU or Triton's interpreter (in tests) is available.
"""

from mosslive.kernels.gpu.attend import attend
from mosslive.kernels.gpu.embed import embed
from mosslive.kernels.gpu.linear import gated, linear
from mosslive.kernels.gpu.norm_products import norm_feed_forward, norm_linear
from mosslive.kernels.gpu.norm_rope_cache import norm_rope_cache
from mosslive.kernels.gpu.paged_attention import paged_attention
from mosslive.kernels.gpu.quantise import quantise_rows
from mosslive.kernels.gpu.rms_norm import add_rms_norm, rms_norm
from mosslive.kernels.gpu.sample_batch import sample_batch
from mosslive.kernels.gpu.silu_mul import silu_mul

__all__ = [
    "add_rms_norm",
    "attend",
    "embed",
    "gated",
    "linear",
    "norm_feed_forward",
    "norm_linear",
    "norm_rope_cache",
    "paged_attention",
    "quantise_rows",
    "rms_norm",
    "sample_batch",
    "silu_mul",
]
