"""A published BigVGAN folder, `config.json` and `bigvgan_generator.pt`, read strictly.

Does not know the network's maths: weight norm stays as it is stored. Invariant: the tensors that
`read_bigvgan` returns are complete, finite, and of the shapes of its config.
"""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from mosslive.checkpoint.layout import CONFIG_FILE, Shape
from mosslive.checkpoint.pickles import check_tensors, read_pickle
from mosslive.config.bigvgan import BigVganConfig

GENERATOR_FILE = "bigvgan_generator.pt"
EDGE_KERNEL = 7  # of the first and the last convolution; not in the config
_FILTER_TAPS = 12  # of an activation's two filters; not in the config


class BigVganFiles(NamedTuple):
    config: BigVganConfig
    tensors: dict[str, Tensor]  # as stored, weight norm not folded


def read_bigvgan(folder: str | Path) -> BigVganFiles:
    """Raises `ConfigError` for the config and a `CheckpointError` for the weights."""
    config = BigVganConfig.from_file(Path(folder) / CONFIG_FILE)
    tensors = read_pickle(Path(folder) / GENERATOR_FILE, under="generator")
    check_tensors(stored_shapes(config, tensors.keys()), tensors)
    return BigVganFiles(config, tensors)


def folded_shapes(config: BigVganConfig) -> dict[str, Shape]:
    """Every tensor of a generator whose weight norm is folded, filters included."""
    first, *stages = config.channels
    shapes = _conv("conv_pre", (first, config.num_mels, EDGE_KERNEL), first)
    for stage, (width, kernel) in enumerate(zip(stages, config.upsample_kernel_sizes, strict=True)):
        shapes |= _conv(f"ups.{stage}.0", (2 * width, width, kernel), width)
    blocks = list(zip(config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True))
    numbered = enumerate((width, *block) for width in stages for block in blocks)
    for number, (width, kernel, dilations) in numbered:
        for index in range(len(dilations)):
            for convs in ("convs1", "convs2"):
                name = f"resblocks.{number}.{convs}.{index}"
                shapes |= _conv(name, (width, width, kernel), width)
        for index in range(2 * len(dilations)):
            shapes |= _activation(f"resblocks.{number}.activations.{index}", width)
    shapes |= _activation("activation_post", stages[-1])
    bias = 1 if config.use_bias_at_final else 0
    return shapes | _conv("conv_post", (1, stages[-1], EDGE_KERNEL), bias)


def _conv(name: str, weight: Shape, bias: int) -> dict[str, Shape]:
    shapes = {f"{name}.weight": weight}
    return shapes | {f"{name}.bias": (bias,)} if bias else shapes


def _activation(name: str, width: int) -> dict[str, Shape]:
    taps = (1, 1, _FILTER_TAPS)
    return {
        f"{name}.act.alpha": (width,),
        f"{name}.act.beta": (width,),
        f"{name}.upsample.filter": taps,
        f"{name}.downsample.lowpass.filter": taps,
    }


def stored_shapes(config: BigVganConfig, stored: Collection[str]) -> dict[str, Shape]:
    """The shapes of all tensors, for each layer in the form in which the file has it: folded, or as
    the two halves of a weight norm."""
    any_norm = any(name.endswith(".weight_v") for name in stored)
    shapes: dict[str, Shape] = {}
    for name, shape in folded_shapes(config).items():
        if name.endswith(".weight") and any_norm and name not in stored:
            shapes |= {f"{name}_g": (shape[0], 1, 1), f"{name}_v": shape}
        else:
            shapes[name] = shape
    return shapes
