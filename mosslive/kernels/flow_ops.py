"""Which form of the flow's operations a device gets; chosen once, when a stream is made."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from mosslive.kernels import flow_attention, flow_conv, flow_euler, flow_layers


class FlowOps(NamedTuple):
    """See the modules of the same names for what each does."""

    norm_linear_gelu: Callable[..., Tensor]
    add_linear_: Callable[..., None]
    norm_qkv: Callable[..., Tensor]
    norm_mish_add: Callable[..., Tensor]
    conv_rows: Callable[..., Tensor]
    conv_product: Callable[..., Tensor]
    chunk_attention: Callable[..., Tensor]
    euler_: Callable[..., None]


PLAIN = FlowOps(
    flow_layers.norm_linear_gelu,
    flow_layers.add_linear_,
    flow_layers.norm_qkv,
    flow_layers.norm_mish_add,
    flow_conv.conv_rows,
    flow_conv.conv_product,
    flow_attention.chunk_attention,
    flow_euler.euler_,
)


def flow_ops(device: torch.device) -> FlowOps:
    """Triton's on a CUDA device, PyTorch's everywhere else."""
    return triton_ops() if device.type == "cuda" else PLAIN


def triton_ops() -> FlowOps:
    from mosslive.kernels.gpu import flow_attention as attention
    from mosslive.kernels.gpu import flow_conv as conv
    from mosslive.kernels.gpu import flow_euler as euler
    from mosslive.kernels.gpu import flow_layers as layers

    return FlowOps(
        layers.norm_linear_gelu,
        layers.add_linear_,
        layers.norm_qkv,
        layers.norm_mish_add,
        conv.conv_rows,
        layers.conv_product,
        attention.chunk_attention,
        euler.euler_,
    )
