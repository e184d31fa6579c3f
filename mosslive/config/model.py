"""The language model's settings, read from the published `config.json`.

Does not know torch or tensors. Invariant: every `ModelConfig` describes a model that this package
computes exactly. The constructor raises `ConfigError` for anything else; the message names the
field, its value and what is allowed.
"""

from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mosslive.config.files import ConfigError, is_positive_number, read_json, refuse

DTYPES = ("bfloat16", "float16", "float32")


# Written by Hugging Face tooling; no effect on what the model computes at inference.
_BOOKKEEPING = frozenset(
    {
        "_name_or_path",
        "attention_dropout",
        "auto_map",
        "bos_token_id",
        "initializer_range",
        "max_window_layers",  # used only if use_sliding_window is true, which is an error
        "transformers_version",
        "use_cache",
    }
)

# Fields with one supported value. An absent field means that value: the class defaults of the
# published code agree with this table.
_ONLY: dict[str, tuple[Any, str]] = {
    "architectures": (["MossSpeechForCausalLM"], '["MossSpeechForCausalLM"]'),
    "model_type": ("moss_speech", '"moss_speech"'),
    "channels": (2, "2 (one text and one audio id per row)"),
    "hidden_act": ("silu", '"silu"'),
    "attention_bias": (False, "false (the checkpoint has no biases)"),
    "mlp_bias": (False, "false (the checkpoint has no biases)"),
    "tie_word_embeddings": (False, "false (embeddings and heads are four matrices)"),
    "rope_scaling": (None, "null (plain rotary positions)"),
    "use_sliding_window": (False, "false (full attention)"),
    "sliding_window": (None, "null (full attention)"),
}

_SIZES = (
    "vocab_size",
    "audio_vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_shared_layers",
    "num_modality_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
)
_IDS = ("modality_pad_token_id", "sosp_token_id", "eosp_token_id", "eos_token_id")
_REALS = ("rms_norm_eps", "rope_theta")
_OPTIONAL = ("audio_pad_token_id", "pad_token_id", "layer_types", "dtype", "torch_dtype")

_MOST_POSITIONS = 1 << 20  # a table of rotary angles is kept for all of them

# The published processor hard-codes this id. It is unknown whether config.json repeats it, so an
# absent field means this value. It is also a legal code: only a row's text id tells them apart.
_PROCESSOR_AUDIO_PAD = 512


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and token ids of one checkpoint; field names are those of `config.json`."""

    vocab_size: int
    audio_vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int  # shared + modality; attention layers: see `layers`
    num_shared_layers: int
    num_modality_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    modality_pad_token_id: int  # text id of every speech row
    sosp_token_id: int  # text id that opens a speech segment
    eosp_token_id: int  # AUDIO id that closes one; codes are 0 .. eosp-1
    eos_token_id: int  # text id of the turn footer; ends a reply
    audio_pad_token_id: int = _PROCESSOR_AUDIO_PAD
    pad_token_id: int | None = None  # second text id that ends a reply; None: the tokenizer's
    dtype: str = "bfloat16"  # of the stored tensors; matrices may be float8

    def __post_init__(self) -> None:
        for name in _SIZES:
            _check_int(name, getattr(self, name), 1)
        for name in _REALS:
            _check_real(name, getattr(self, name))
        if self.num_shared_layers + self.num_modality_layers != self.num_hidden_layers:
            raise refuse(
                "num_hidden_layers",
                self.num_hidden_layers,
                f"num_shared_layers + num_modality_layers = "
                f"{self.num_shared_layers} + {self.num_modality_layers}",
            )
        if self.num_attention_heads % self.num_key_value_heads:
            raise refuse(
                "num_attention_heads",
                self.num_attention_heads,
                f"a multiple of num_key_value_heads = {self.num_key_value_heads}",
            )
        if self.head_dim % 2:
            raise refuse("head_dim", self.head_dim, "an even number (rotary halves)")
        for name, vocabulary in (
            ("modality_pad_token_id", "vocab_size"),
            ("sosp_token_id", "vocab_size"),
            ("eos_token_id", "vocab_size"),
            ("pad_token_id", "vocab_size"),
            ("eosp_token_id", "audio_vocab_size"),
            ("audio_pad_token_id", "audio_vocab_size"),
        ):
            self._check_id(name, vocabulary)
        if self.eosp_token_id < 1:
            raise refuse("eosp_token_id", self.eosp_token_id, "1 or more (codes are the ids below)")
        if self.audio_pad_token_id == self.eosp_token_id:
            allowed = "any id but eosp_token_id, or speech would end as it begins"
            raise refuse("audio_pad_token_id", self.audio_pad_token_id, allowed)
        if self.max_position_embeddings > _MOST_POSITIONS:
            allowed = f"at most {_MOST_POSITIONS}"
            raise refuse("max_position_embeddings", self.max_position_embeddings, allowed)
        if self.pad_token_id == self.modality_pad_token_id:
            allowed = "any id but modality_pad_token_id, or every speech row would end the reply"
            raise refuse("pad_token_id", self.pad_token_id, allowed)
        text_ids = (self.modality_pad_token_id, self.sosp_token_id, self.eos_token_id)
        if len(set(text_ids)) != len(text_ids):
            raise refuse(
                "modality_pad_token_id, sosp_token_id, eos_token_id",
                text_ids,
                "three different ids",
            )
        if self.dtype not in DTYPES:
            raise refuse("dtype", self.dtype, ", ".join(DTYPES))

    def _check_id(self, name: str, vocabulary: str) -> None:
        value, size = getattr(self, name), getattr(self, vocabulary)
        if name == "pad_token_id" and value is None:
            return
        _check_int(name, value, 0)
        if value >= size:
            raise refuse(name, value, f"0..{size - 1} ({vocabulary} is {size})")

    @property
    def layers(self) -> int:
        """Number of attention layers: the trunk and both tails."""
        return self.num_shared_layers + 2 * self.num_modality_layers

    @property
    def codes(self) -> int:
        """Number of codes: ids 0 .. codes-1 of the audio channel."""
        return self.eosp_token_id

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> "ModelConfig":
        """Checks a parsed `config.json`; raises `ConfigError` naming the first bad field."""
        known = {*_ONLY, *_BOOKKEEPING, *_SIZES, *_IDS, *_REALS, *_OPTIONAL}
        for name, value in raw.items():
            if name not in known:
                raise ConfigError(
                    f"{name} is {value!r}, but this version does not know the field and cannot "
                    f"tell what it changes; remove it if it has no effect. Known fields: "
                    f"{', '.join(sorted(known))}"
                )
        for name, (only, allowed) in _ONLY.items():
            value = raw.get(name, only)
            if value != only or isinstance(value, bool) != isinstance(only, bool):
                raise refuse(name, value, allowed)
        for name in (*_SIZES, *_REALS, *_IDS):
            if name not in raw:
                raise ConfigError(f"{name} is missing; it is required and has no default")
        fields = {name: raw[name] for name in (*_SIZES, *_REALS, *_IDS)}
        # null means "not stated" for both, as Hugging Face writes it.
        if raw.get("audio_pad_token_id") is not None:
            fields["audio_pad_token_id"] = raw["audio_pad_token_id"]
        fields["pad_token_id"] = raw.get("pad_token_id")
        dtypes = [raw[name] for name in ("dtype", "torch_dtype") if raw.get(name) is not None]
        if dtypes:
            fields["dtype"] = dtypes[0]
        if dtypes[1:] and dtypes[0] != dtypes[1]:
            raise refuse("dtype and torch_dtype", dtypes, "the same value")
        config = cls(**fields)
        types, full = raw.get("layer_types"), ["full_attention"] * config.num_hidden_layers
        if types not in (None, full):
            raise refuse("layer_types", types, f'null or {len(full)} x "full_attention"')
        return config

    @classmethod
    def from_file(cls, path: Path) -> "ModelConfig":
        raw = read_json(path)
        try:
            return cls.from_dict(raw)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """The published layout; `from_dict(to_dict())` returns an equal config."""
        fields = {name: getattr(self, name) for name in (*_SIZES, *_REALS, *_IDS)}
        return {
            **{name: copy(only) for name, (only, _) in _ONLY.items() if name != "mlp_bias"},
            **fields,
            "audio_pad_token_id": self.audio_pad_token_id,
            "pad_token_id": self.pad_token_id,
            "attention_dropout": 0.0,
            "initializer_range": 0.02,
            "layer_types": ["full_attention"] * self.num_hidden_layers,
            "max_window_layers": None,
            "dtype": self.dtype,
            "transformers_version": "4.57.0.dev0",
            "use_cache": True,
        }


def _check_int(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise refuse(name, value, f"an integer of at least {least}")


def _check_real(name: str, value: object) -> None:
    if not is_positive_number(value):
        raise refuse(name, value, "a positive number")
