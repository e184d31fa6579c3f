"""The two-channel speech language model, assembled from transformers' own Qwen3 layers.

Benchmarks and tests verify the runtime against it. It shares no code with the runtime: it reads the
config and the safetensors directly, and the layer arithmetic is Hugging Face's. Only the wiring
(row embedding, trunk, two tails, two final norms, two heads) is ours.

Does not know other packages, tokenizers, prompts, sampling, caches, batches, padding or
accelerators. One call computes one whole sequence on the CPU, every layer at every position.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3DecoderLayer,
    Qwen3RMSNorm,
    Qwen3RotaryEmbedding,
)


def _read_config(folder: Path) -> dict[str, Any]:
    """Reads config.json. Raises `ValueError` for settings that this reference does not compute."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    layers = config["num_shared_layers"] + config["num_modality_layers"]
    if config["num_hidden_layers"] != layers:
        raise ValueError("num_hidden_layers must be num_shared_layers + num_modality_layers")
    if config.get("channels", 2) != 2:
        raise ValueError(f"channels is {config['channels']}; this reference knows 2 only")
    for field in ("rope_scaling", "attention_bias", "tie_word_embeddings", "use_sliding_window"):
        if config.get(field):
            raise ValueError(f"{field} is not part of this model: {config[field]!r}")
    return config


def _read_tensors(folder: Path, dtype: torch.dtype) -> dict[str, Tensor]:
    """Reads every tensor that the index lists. Raises `ValueError` if a shard holds others."""
    index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
    names_of_shard: dict[str, set[str]] = defaultdict(set)
    for name, shard in index["weight_map"].items():
        names_of_shard[shard].add(name)
    tensors: dict[str, Tensor] = {}
    for shard, names in sorted(names_of_shard.items()):
        with safe_open(folder / shard, framework="pt") as file:
            if set(file.keys()) != names:
                raise ValueError(f"{shard} and the index disagree: {set(file.keys()) ^ names}")
            for name in names:
                tensors[name] = file.get_tensor(name).to(dtype)
    return tensors


def layer_config(config: dict[str, Any], rope_theta: float) -> Qwen3Config:
    arguments: dict[str, Any] = {
        "vocab_size": config["vocab_size"],
        "hidden_size": config["hidden_size"],
        "intermediate_size": config["intermediate_size"],
        "num_hidden_layers": config["num_hidden_layers"],
        "num_attention_heads": config["num_attention_heads"],
        "num_key_value_heads": config["num_key_value_heads"],
        "head_dim": config["head_dim"],
        "hidden_act": config["hidden_act"],
        "max_position_embeddings": config["max_position_embeddings"],
        "rms_norm_eps": config["rms_norm_eps"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "layer_types": ["full_attention"] * config["num_hidden_layers"],
        "attn_implementation": "sdpa",
        # transformers 4 reads the first and transformers 5 prefers the second. A release that
        # reads neither falls back to 10000 without an error, so rotary_of checks the result.
        "rope_theta": rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": rope_theta},
    }
    return Qwen3Config(**arguments)


def rotary_of(config: Qwen3Config, rope_theta: float) -> Qwen3RotaryEmbedding:
    rotary = Qwen3RotaryEmbedding(config)
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    wanted = 1.0 / rope_theta**exponents
    torch.testing.assert_close(
        rotary.inv_freq.double(),
        wanted,
        rtol=1e-5,
        atol=0.0,
        msg="this version of transformers ignores the given rope base",
    )
    return rotary


def _network(config: dict[str, Any], layer_config: Qwen3Config) -> nn.ModuleDict:
    """Returns the modules under their checkpoint names, so that one strict load fills all or
    fails."""

    def block(count: int) -> nn.ModuleDict:
        # Tails count their layers from 0 as the checkpoint does. The number only chooses a cache
        # slot and an entry of layer_types; there is no cache and all entries are the same.
        layers = nn.ModuleList([Qwen3DecoderLayer(layer_config, i) for i in range(count)])
        return nn.ModuleDict({"layers": layers})

    hidden, eps = config["hidden_size"], config["rms_norm_eps"]
    n_text, n_audio = config["vocab_size"], config["audio_vocab_size"]
    body = {
        "embed_tokens": nn.Embedding(n_text, hidden),
        "audio_embed": nn.Embedding(n_audio, hidden),
        "shared_block": block(config["num_shared_layers"]),
        "text_block": block(config["num_modality_layers"]),
        "audio_block": block(config["num_modality_layers"]),
        "text_norm": Qwen3RMSNorm(hidden, eps=eps),
        "audio_norm": Qwen3RMSNorm(hidden, eps=eps),
    }
    return nn.ModuleDict(
        {
            "model": nn.ModuleDict(body),
            "text_lm_head": nn.Linear(hidden, n_text, bias=False),
            "audio_lm_head": nn.Linear(hidden, n_audio, bias=False),
        }
    )


class ReferenceModel:
    """The whole model on the CPU. `rope_theta` overrides the value of the config."""

    def __init__(
        self, folder: Path, dtype: torch.dtype = torch.float32, rope_theta: float | None = None
    ) -> None:
        config = _read_config(folder)
        self._dtype = dtype
        self._modality_pad: int = config["modality_pad_token_id"]
        self._hidden_size: int = config["hidden_size"]
        theta = float(rope_theta or config["rope_theta"])
        settings = layer_config(config, theta)
        self._rotary = rotary_of(settings, theta)

        # Built without storage and filled by assignment: a parameter that the load missed would
        # have no data, so no default-initialised weight can go unnoticed.
        with torch.device("meta"):
            network = _network(config, settings)
        network.load_state_dict(_read_tensors(folder, dtype), strict=True, assign=True)
        network.requires_grad_(False).eval()

        body: Any = network["model"]
        self.embed_tokens, self.audio_embed = body["embed_tokens"], body["audio_embed"]
        self.shared_layers = body["shared_block"]["layers"]
        self.text_layers = body["text_block"]["layers"]
        self.audio_layers = body["audio_block"]["layers"]
        self.text_norm, self.audio_norm = body["text_norm"], body["audio_norm"]
        self._text_head, self._audio_head = network["text_lm_head"], network["audio_lm_head"]

    @torch.no_grad()
    def logits(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """rows int64 [n, 2] (text id, audio id) -> float32 [n, V_text] and [n, V_audio]."""
        if rows.ndim != 2 or rows.shape[0] == 0 or rows.shape[1] != 2 or rows.dtype != torch.int64:
            raise ValueError(f"rows must be int64 [n, 2], not {rows.dtype} {tuple(rows.shape)}")
        n = rows.shape[0]
        positions = torch.arange(n)
        # An explicit mask, because None leaves causality to a default of the layer.
        mask = (positions[:, None] >= positions[None, :])[None, None]
        position_ids = positions[None]

        start = self.embed(rows)[None]
        rope = self._rotary(start, position_ids)

        def run(layers: nn.ModuleList, hidden: Tensor) -> Tensor:
            for layer in layers:
                out = layer(
                    hidden,
                    attention_mask=mask,
                    position_ids=position_ids,
                    position_embeddings=rope,
                )
                # Releases before 4.54 or so wrap the result in a tuple.
                hidden = out[0] if isinstance(out, tuple) else out
            return hidden

        trunk = run(self.shared_layers, start)
        text = self._text_head(self.text_norm(run(self.text_layers, trunk)))
        audio = self._audio_head(self.audio_norm(run(self.audio_layers, trunk)))
        return text[0].float(), audio[0].float()

    def embed(self, rows: Tensor) -> Tensor:
        text, audio = rows[:, 0], rows[:, 1]
        # Only the selected id of a row is looked up: the other must not reach the network, not even
        # multiplied by zero.
        speech = text == self._modality_pad
        hidden = torch.empty(len(rows), self._hidden_size, dtype=self._dtype)
        hidden[~speech] = self.embed_tokens(text[~speech])
        hidden[speech] = self.audio_embed(audio[speech])
        return hidden
