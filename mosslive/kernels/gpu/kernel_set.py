"""The Triton kernels of all operations in `mosslive.kernels.kernel_set`, as one value."""

from torch import Tensor

from mosslive.kernels.conv1d import channels_together
from mosslive.kernels.gpu import flow_attention, flow_conv, flow_euler, flow_layers
from mosslive.kernels.gpu.attend import attend
from mosslive.kernels.gpu.conv1d import conv1d, conv1d_snake
from mosslive.kernels.gpu.embed import embed
from mosslive.kernels.gpu.linear import gated, linear
from mosslive.kernels.gpu.norm_products import norm_feed_forward, norm_linear
from mosslive.kernels.gpu.paged_step_attention import paged_step_attention
from mosslive.kernels.gpu.rms_norm import add_rms_norm, rms_norm
from mosslive.kernels.gpu.rows_linear import rows_linear
from mosslive.kernels.gpu.sample_batch import sample_batch
from mosslive.kernels.gpu.snake import anti_aliased_snake, snake
from mosslive.kernels.gpu.step_attention import step_attention
from mosslive.kernels.kernel_set import KernelSet


class TritonKernelSet(KernelSet):
    is_triton = True

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
    conv_product = staticmethod(flow_layers.conv_product)
    chunk_attention = staticmethod(flow_attention.chunk_attention)
    euler_ = staticmethod(flow_euler.euler_)

    @staticmethod
    def signal_layout(x: Tensor) -> Tensor:
        """The channels of one moment lie side by side."""
        return channels_together(x)
