"""The codec's networks with random weights, in the sizes of the random language models.

Values keep signals near one through the depth and the pitch near a voice's, so that the output is
neither silent nor clipped. Every tensor differs from every other. Knows no files.
"""

import hashlib
import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from mosslive.checkpoint.synth import SizeName
from mosslive.codec.bigvgan import BigVgan
from mosslive.codec.bigvgan.snake import sinc_filter
from mosslive.codec.conformer import ConformerDims
from mosslive.codec.encoder import Encoder, EncoderDims
from mosslive.codec.estimator import EstimatorDims
from mosslive.codec.flow import Flow, FlowDims
from mosslive.codec.flow_solver import FlowSettings
from mosslive.codec.hift import Hift, HiftSettings
from mosslive.codec.mel import FLOW_MEL
from mosslive.config.bigvgan import BigVganConfig

_PITCH_HZ = 140.0


@dataclass(frozen=True)
class CodecSize:
    encoder_width: int
    encoder_heads: int
    encoder_layers: int
    flow_width: int
    flow_heads: int
    flow_layers: tuple[int, int]  # at 12.5/s, at 50/s
    flow_rows: int | None  # of the code table; None: as many as there are codes
    estimator_channels: int
    estimator_heads: int
    head_dim: int
    estimator_blocks: tuple[int, int]  # transformers per stage, stages in the middle
    hift_channels: int
    f0_channels: int
    speaker: tuple[int, int]  # growth, first channels of CAM++
    bigvgan_channels: int


CODEC_SIZES: dict[SizeName, CodecSize] = {
    "nano": CodecSize(32, 2, 2, 32, 2, (1, 1), None, 16, 2, 8, (1, 1), 16, 8, (4, 16), 64),
    "small": CodecSize(256, 4, 4, 128, 2, (2, 2), None, 64, 2, 32, (1, 2), 64, 32, (8, 32), 128),
    "full": CodecSize(
        1280, 20, 16, 512, 8, (6, 4), 20480, 256, 8, 64, (4, 12), 512, 512, (32, 128), 1536
    ),
}


_BIGVGAN = {
    "resblock": "1",
    "activation": "snakebeta",
    "snake_logscale": True,
    "use_tanh_at_final": False,
    "use_bias_at_final": False,
    "sampling_rate": 24000,
    "num_mels": 100,
    "n_fft": 1024,
    "win_size": 1024,
    "hop_size": 256,
    "fmin": 0,
    "fmax": None,
    "upsample_rates": [4, 4, 2, 2, 2, 2],
    "upsample_kernel_sizes": [8, 8, 4, 4, 4, 4],
    "resblock_kernel_sizes": [3, 7, 11],
    "resblock_dilation_sizes": [[1, 3, 5], [1, 3, 5], [1, 3, 5]],
}


# For the mel that the flow makes. Odd rates have the kernel 2 · rate + 1, as in HiFT.
_FLOW_BIGVGAN = _BIGVGAN | {
    "sampling_rate": FLOW_MEL.sample_rate_hz,
    "num_mels": FLOW_MEL.bands,
    "n_fft": FLOW_MEL.n_fft,
    "win_size": FLOW_MEL.n_fft,
    "hop_size": FLOW_MEL.hop_samples,
    "fmin": FLOW_MEL.fmin_hz,
    "fmax": FLOW_MEL.fmax_hz,
    "upsample_rates": [5, 4, 3, 2, 2, 2],
    "upsample_kernel_sizes": [11, 8, 7, 4, 4, 4],
}
BigVganMel = Literal["published", "flow"]


# Shapes without values, on the device "meta".


def empty_encoder(s: CodecSize, codes: int) -> Encoder:
    width = s.encoder_width
    dims = EncoderDims(128, width, s.encoder_heads, 4 * width, s.encoder_layers, 1500, codes)
    with torch.device("meta"):
        return Encoder(dims)


def empty_flow(s: CodecSize, codes: int) -> Flow:
    layers, up_layers = s.flow_layers
    blocks, middle = s.estimator_blocks
    width, channels = s.flow_width, s.estimator_channels
    inner = s.estimator_heads * s.head_dim
    conformer = ConformerDims(width, s.flow_heads, 4 * width, layers, up_layers)
    estimator = EstimatorDims(
        80, 320, channels, 4 * channels, inner, s.head_dim, 4 * channels, blocks, middle
    )
    dims = FlowDims(s.flow_rows or codes, 192, conformer, estimator)
    with torch.device("meta"):
        return Flow(dims, FlowSettings(code_limit=codes))


def empty_hift(s: CodecSize) -> Hift:
    with torch.device("meta"):
        return Hift(HiftSettings(channels=s.hift_channels, f0_channels=s.f0_channels))


def bigvgan_config(s: CodecSize, mel: BigVganMel = "published") -> dict[str, object]:
    """`mel`: 24 kHz and 100 bands, as published, or the mel of the flow."""
    config = _FLOW_BIGVGAN if mel == "flow" else _BIGVGAN
    return config | {"upsample_initial_channel": s.bigvgan_channels}


def empty_bigvgan(s: CodecSize, mel: BigVganMel = "published") -> BigVgan:
    with torch.device("meta"):
        return BigVgan(BigVganConfig.from_dict(bigvgan_config(s, mel)))


# Values; the same `key`, the same values.


def encoder_tensors(s: CodecSize, codes: int, key: str) -> dict[str, Tensor]:
    tensors = random_tensors(empty_encoder(s, codes), key)
    tensors["codebook.weight"] *= math.sqrt(s.encoder_width)  # as large as the states
    return tensors


def hift_tensors(s: CodecSize, key: str) -> dict[str, Tensor]:
    tensors = random_tensors(empty_hift(s), key)
    tensors["f0_predictor.classifier.bias"] = torch.tensor([_PITCH_HZ])
    return tensors


def random_tensors(network: nn.Module, key: str) -> dict[str, Tensor]:
    """float32 values for every entry of a network's state dict, by name."""
    return {
        # The anti-aliasing taps are no weights: every checkpoint stores the same ones.
        name: sinc_filter().view(tensor.shape).clone()
        if name.endswith(".filter")
        else _draw(f"{key}:{name}", name, tuple(tensor.shape))
        for name, tensor in network.state_dict().items()
    }


def _draw(key: str, name: str, shape: tuple[int, ...]) -> Tensor:
    digest = hashlib.sha256(key.encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
    values = torch.randn(shape, generator=generator)
    if "embed" in name or "codebook" in name or "pos_bias" in name:
        return values if len(shape) > 1 and "pos_bias" not in name else 0.1 * values
    if len(shape) > 1:
        return values * 0.7 / math.sqrt(math.prod(shape[1:]))
    if name.endswith("weight"):  # norms
        return 1 + 0.1 * values
    return 1 + 0.1 * values if name.endswith("alpha") else 0.05 * values
