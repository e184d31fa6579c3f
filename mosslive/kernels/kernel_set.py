"""Every operation that has two implementations, as one value that a network is given.

`KernelSet` holds the PyTorch definitions; `kernels.gpu.kernel_set` overrides each with its Triton
kernel. The operations are attributes of a class, so a type checker compares the two signatures and
a wrapper can replace single operations. `dispatch` decides which set a network gets.
"""

from torch import Tensor

from mosslive.kernels import flow_attention, flow_conv, flow_euler, flow_layers
from mosslive.kernels.add_rms_norm import add_rms_norm
from mosslive.kernels.attend import attend
from mosslive.kernels.conv1d import conv1d, conv1d_snake, snake
from mosslive.kernels.embed import embed
from mosslive.kernels.linear import gated, linear
from mosslive.kernels.norm_products import norm_feed_forward, norm_linear
from mosslive.kernels.paged_step_attention import paged_step_attention
from mosslive.kernels.rms_norm import rms_norm
from mosslive.kernels.rows_linear import rows_linear
from mosslive.kernels.sample_batch import sample_batch
from mosslive.kernels.snake import anti_aliased_snake
from mosslive.kernels.step_attention import step_attention


class KernelSet:
    """The PyTorch definitions; see the module of each name for what it computes."""

    is_triton = False

    # The language model.
    embed = staticmethod(embed)
    rms_norm = staticmethod(rms_norm)
    add_rms_norm = staticmethod(add_rms_norm)
    linear = staticmethod(linear)
    gated = staticmethod(gated)
    norm_linear = staticmethod(norm_linear)
    norm_feed_forward = staticmethod(norm_feed_forward)
    attend = staticmethod(attend)
    sample_batch = staticmethod(sample_batch)

    # The codec's encoder and vocoders.
    conv1d = staticmethod(conv1d)
    conv1d_snake = staticmethod(conv1d_snake)
    snake = staticmethod(snake)
    anti_aliased_snake = staticmethod(anti_aliased_snake)
    rows_linear = staticmethod(rows_linear)
    step_attention = staticmethod(step_attention)
    paged_step_attention = staticmethod(paged_step_attention)

    # The codec's flow.
    norm_linear_gelu = staticmethod(flow_layers.norm_linear_gelu)
    add_linear_ = staticmethod(flow_layers.add_linear_)
    norm_qkv = staticmethod(flow_layers.norm_qkv)
    norm_mish_add = staticmethod(flow_layers.norm_mish_add)
    conv_rows = staticmethod(flow_conv.conv_rows)
    conv_product = staticmethod(flow_conv.conv_product)
    chunk_attention = staticmethod(flow_attention.chunk_attention)
    euler_ = staticmethod(flow_euler.euler_)

    @staticmethod
    def signal_layout(x: Tensor) -> Tensor:
        """x [B, C, T] in the memory layout in which this set computes convolutions and snakes."""
        return x
