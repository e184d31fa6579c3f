"""Random weights of the decoder, made on the device that uses them: 18 GB at full size.

Knows no files. The variances keep the residual stream near one and spread the logits by a few
units. Norm weights differ from one and from each other, so that an unused tensor is detected.
Values depend only on the seed, the kind of device and the order below.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from mosslive.checkpoint import SizeName
from mosslive.checkpoint.synth import synth_config
from mosslive.checkpoint.vocabulary import learned_vocabulary
from mosslive.config import ModelConfig, refuse
from mosslive.kernels import Matrix, quantise_rows
from mosslive.model import DecoderWeights, LayerWeights, TailWeights
from mosslive.rows import Channel

# "fp8": the trunk's matrices in float8, everything else in bfloat16.
LmPrecision = Literal["fp32", "bf16", "fp8"]

_NORM_SPREAD = 0.2
_LOGIT_SPREAD = 3.0


def random_config(size: SizeName) -> ModelConfig:
    return synth_config(size, learned_vocabulary())


def random_weights(
    config: ModelConfig, device: torch.device, seed: int = 0, float8_trunk: bool = False
) -> DecoderWeights:
    """Makes bfloat16 weights. With `float8_trunk`, rounds each trunk matrix as soon as it is made,
    so that the whole model in bfloat16 need not fit. The values equal those of `as_precision`."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int, spread: float) -> Tensor:
        values = torch.empty(shape, device=device, dtype=torch.bfloat16)
        return values.normal_(0, spread, generator=generator)

    def norm(*shape: int) -> Tensor:
        return 1 + normal(*shape, spread=_NORM_SPREAD)

    def matrix(rows: int, columns: int, shrink: float = 1.0) -> Matrix:
        return Matrix(normal(rows, columns, spread=shrink / math.sqrt(columns)))

    def trunk_layer() -> LayerWeights:
        made = _random_layer(config, norm, matrix)
        return _float8(made) if float8_trunk else made

    def tail(size: int) -> TailWeights:
        hidden = config.hidden_size
        return TailWeights(
            embed=normal(size, hidden, spread=1.0),
            layers=[_random_layer(config, norm, matrix) for _ in range(config.num_modality_layers)],
            norm=norm(hidden),
            head=matrix(size, hidden, _LOGIT_SPREAD),
        )

    sizes: dict[Channel, int] = {"text": config.vocab_size, "audio": config.audio_vocab_size}
    tails = {channel: tail(size) for channel, size in sizes.items()}
    return DecoderWeights([trunk_layer() for _ in range(config.num_shared_layers)], tails)


def precision_of(weights: DecoderWeights) -> LmPrecision:
    if weights.trunk[0].qkv.scale is not None:
        return "fp8"
    return "fp32" if weights.tails["text"].norm.dtype == torch.float32 else "bf16"


def as_precision(weights: DecoderWeights, precision: LmPrecision) -> DecoderWeights:
    """Converts the weights. Unchanged tensors are shared."""
    given = precision_of(weights)
    if precision == given:
        return weights
    if given != "bf16":
        raise refuse("precision", precision, f"{given}, the precision of these weights")
    if precision == "fp8":
        return DecoderWeights([_float8(layer) for layer in weights.trunk], weights.tails)
    return DecoderWeights(
        [_changed(layer, _widen) for layer in weights.trunk],
        {
            channel: TailWeights(
                embed=tail.embed.float(),
                layers=[_changed(layer, _widen) for layer in tail.layers],
                norm=tail.norm.float(),
                head=_widen(tail.head),
            )
            for channel, tail in weights.tails.items()
        },
    )


def _float8(layer: LayerWeights) -> LayerWeights:
    return _changed(layer, lambda matrix: Matrix(*quantise_rows(matrix.weight)), norms=False)


def _widen(matrix: Matrix) -> Matrix:
    return Matrix(matrix.weight.float())


def _changed(
    layer: LayerWeights, change: Callable[[Matrix], Matrix], norms: bool = True
) -> LayerWeights:
    """Converts matrices by `change`, and norms to float32 if `norms`."""
    values = {
        name: change(value) if isinstance(value, Matrix) else value.float() if norms else value
        for name, value in vars(layer).items()
    }
    return LayerWeights(**values)  # type: ignore[arg-type]  # names and kinds are the layer's


def _random_layer(
    config: ModelConfig,
    norm: Callable[..., Tensor],
    matrix: Callable[..., Matrix],
) -> LayerWeights:
    hidden, inner, width = config.hidden_size, config.intermediate_size, config.head_dim
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    # The output of a layer shrinks with depth, so that the sum over a path stays near one.
    shrink = 1 / math.sqrt(config.num_hidden_layers)
    q_norm, k_norm = norm(width), norm(width)
    return LayerWeights(
        input_norm=norm(hidden),
        qkv=matrix((heads + 2 * kv_heads) * width, hidden),
        qk_norm=torch.cat((q_norm.expand(heads, -1), k_norm.expand(kv_heads, -1))),
        o=matrix(hidden, heads * width, shrink),
        post_norm=norm(hidden),
        gate_up=matrix(2 * inner, hidden),
        down=matrix(hidden, inner, shrink),
    )
