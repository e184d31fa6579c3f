"""Tensor names and shapes of the published checkpoint, derived from its config.

The full model has 446 tensors: 11 per layer and 6 others. It has no biases, no `model.norm`, and no
norm between trunk and tails. Does not know file contents or the meaning of the tensors.
"""

from pathlib import Path

from mosslive.config import ModelConfig
from mosslive.config.folders import LM_FOLDER, named_folder

Shape = tuple[int, ...]

TEXT_EMBED = "model.embed_tokens.weight"
AUDIO_EMBED = "model.audio_embed.weight"
TEXT_NORM = "model.text_norm.weight"
AUDIO_NORM = "model.audio_norm.weight"
TEXT_HEAD = "text_lm_head.weight"
AUDIO_HEAD = "audio_lm_head.weight"

CONFIG_FILE = "config.json"
TOKENIZER_FILE = "tokenizer.json"
GENERATION_FILE = "generation_config.json"
CAPABILITIES_FILE = "capabilities.json"
SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


def layer_prefixes(config: ModelConfig) -> dict[str, list[str]]:
    """Tensor-name prefixes of every layer, by block, in order of computation."""
    counts = {
        "shared": config.num_shared_layers,
        "text": config.num_modality_layers,
        "audio": config.num_modality_layers,
    }
    return {
        block: [f"model.{block}_block.layers.{index}" for index in range(count)]
        for block, count in counts.items()
    }


def layer_shapes(config: ModelConfig) -> dict[str, Shape]:
    """The 11 tensors of one layer, without prefix."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    return {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "self_attn.q_norm.weight": (config.head_dim,),
        "self_attn.k_norm.weight": (config.head_dim,),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }


def expected_tensors(config: ModelConfig) -> dict[str, Shape]:
    """Every tensor of the checkpoint, in storage order."""
    hidden = config.hidden_size
    text, audio = (config.vocab_size, hidden), (config.audio_vocab_size, hidden)
    tensors: dict[str, Shape] = {TEXT_EMBED: text, AUDIO_EMBED: audio}
    shapes = layer_shapes(config)
    for prefixes in layer_prefixes(config).values():
        for prefix in prefixes:
            tensors |= {f"{prefix}.{name}": shape for name, shape in shapes.items()}
    tensors |= {TEXT_NORM: (hidden,), AUDIO_NORM: (hidden,), TEXT_HEAD: text, AUDIO_HEAD: audio}
    return tensors


def blocks(config: ModelConfig) -> dict[str, list[str]]:
    """Tensor names grouped into blocks, for display."""
    shapes = layer_shapes(config)
    named = {"shared": "trunk", "text": "text tail", "audio": "audio tail"}
    grouped = {"text embedding": [TEXT_EMBED], "audio embedding": [AUDIO_EMBED]}
    for block, prefixes in layer_prefixes(config).items():
        grouped[f"{named[block]}, {len(prefixes)} layers"] = [
            f"{prefix}.{name}" for prefix in prefixes for name in shapes
        ]
    return grouped | {
        "final norms": [TEXT_NORM, AUDIO_NORM],
        "text head": [TEXT_HEAD],
        "audio head": [AUDIO_HEAD],
    }


def model_folder(path: str | Path) -> Path:
    """The language model's folder: `path` itself, or `path/lm` if `path` is a model folder."""
    folder = named_folder(path)
    nested = folder / LM_FOLDER
    return nested if not (folder / CONFIG_FILE).exists() and nested.is_dir() else folder
