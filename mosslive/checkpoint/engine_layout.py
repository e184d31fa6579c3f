"""Names, shapes and dtypes of an engine's tensors, and the published tensors each is made of.

Matrices with the same input are fused: q|k|v and gate|up. Does not know files or arithmetic. Every
tensor follows one rule: the rows of its parts, concatenated in order; a vector counts as one row.
"""

from typing import Literal, NamedTuple

from mosslive.checkpoint import layout
from mosslive.checkpoint.layout import Shape
from mosslive.config import ModelConfig

Precision = Literal["fp8", "bfloat16", "float32"]  # of a matrix
BaseDtype = Literal["bfloat16", "float32"]  # of everything that is not fp8, and of the arithmetic

STORED = {"fp8": "F8_E4M3", "bfloat16": "BF16", "float32": "F32"}  # safetensors' names
LAYER_MATRICES = ("qkv", "o", "gate_up", "down")
_BLOCKS = {"trunk": "shared", "text": "text", "audio": "audio"}  # our name → the published one


class Fused(NamedTuple):
    shape: Shape
    parts: tuple[str, ...]  # published tensors, in the order of their rows


class Stored(NamedTuple):
    dtype: str  # safetensors' name
    shape: Shape


def fused_tensors(config: ModelConfig) -> dict[str, Fused]:
    """Every tensor of an engine before quantisation, in storage order = order of computation."""
    hidden = config.hidden_size
    vocabulary = {"text": config.vocab_size, "audio": config.audio_vocab_size}
    ends = {
        "text": (layout.TEXT_EMBED, layout.TEXT_NORM, layout.TEXT_HEAD),
        "audio": (layout.AUDIO_EMBED, layout.AUDIO_NORM, layout.AUDIO_HEAD),
    }
    tensors = {f"{c}.embed": Fused((vocabulary[c], hidden), ends[c][:1]) for c in ends}
    prefixes = layout.layer_prefixes(config)
    for block, published in _BLOCKS.items():
        for index, prefix in enumerate(prefixes[published]):
            for name, fused in _layer(prefix, config).items():
                tensors[f"{block}.{index}.{name}"] = fused
        if block in ends:
            _, norm, head = ends[block]
            tensors[f"{block}.norm"] = Fused((hidden,), (norm,))
            tensors[f"{block}.head"] = Fused((vocabulary[block], hidden), (head,))
    return tensors


def _layer(prefix: str, config: ModelConfig) -> dict[str, Fused]:
    hidden, inner, width = config.hidden_size, config.intermediate_size, config.head_dim
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads

    def made(shape: Shape, *parts: str) -> Fused:
        return Fused(shape, tuple(f"{prefix}.{part}.weight" for part in parts))

    q, k, v, o = (f"self_attn.{letter}_proj" for letter in "qkvo")
    norms = ["self_attn.q_norm"] * heads + ["self_attn.k_norm"] * kv_heads
    return {
        "input_norm": made((hidden,), "input_layernorm"),
        "qkv": made(((heads + 2 * kv_heads) * width, hidden), q, k, v),
        "qk_norm": made((heads + kv_heads, width), *norms),
        "o": made((hidden, heads * width), o),
        "post_norm": made((hidden,), "post_attention_layernorm"),
        "gate_up": made((2 * inner, hidden), "mlp.gate_proj", "mlp.up_proj"),
        "down": made((hidden, inner), "mlp.down_proj"),
    }


def matrix_names(config: ModelConfig) -> list[str]:
    """Every matrix that is multiplied, heads included. Embeddings are looked up instead."""
    matrices = {*LAYER_MATRICES, "head"}
    return [name for name in fused_tensors(config) if name.rpartition(".")[2] in matrices]


def trunk_matrices(config: ModelConfig) -> list[str]:
    """The matrices that may be fp8. Tails and heads are a sixth of the bytes and decide the ids."""
    return [name for name in matrix_names(config) if name.startswith("trunk.")]


def scale_name(matrix: str) -> str:
    return f"{matrix}.scale"


def stored_tensors(
    config: ModelConfig, base: BaseDtype, precision: dict[str, Precision]
) -> dict[str, Stored]:
    """Contents of the weight files. An fp8 matrix has one float32 scale per output channel."""
    stored: dict[str, Stored] = {}
    for name, fused in fused_tensors(config).items():
        kind = precision.get(name, base)
        stored[name] = Stored(STORED[kind], fused.shape)
        if kind == "fp8":
            stored[scale_name(name)] = Stored("F32", fused.shape[:1])
    return stored
