"""Settings of the published codec folder that no tensor shape determines.

The folder's three settings files hold more than a runtime needs. This module reads the fields that
change the result and raises `ConfigError` for values this package does not compute. Does not know
torch.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from mosslive.config.files import ConfigError, is_positive_number, read_json, refuse

EXTRACTOR_FILE = "preprocessor_config.json"
# The published code hard-codes the number of solver steps; a folder may state another one.
_PUBLISHED_STEPS = 10
_MOST_VALUES = 10_000  # of the YAML file; the published one has about a hundred

# Fields of the encoder's config.json with one supported value: any other value means another
# network. The quantiser's block size is not listed, because a strictly causal encoder never reads
# it.
_ENCODER_ONLY: dict[str, Any] = {
    "activation_function": "gelu",
    "scale_embedding": False,
    "encoder_causal_convolution": True,
    "encoder_causal_attention": True,
    "quantize_encoder_only": True,
    "pooling_type": "avg",
    "pooling_kernel_size": 4,
}
# The only feature extractor that the mel code computes.
_EXTRACTOR_ONLY: dict[str, Any] = {
    "sampling_rate": 16000,
    "n_fft": 400,
    "hop_length": 160,
    "n_samples": 480000,
    "feature_size": 128,
}


@dataclass(frozen=True)
class EncoderConfig:
    """`config.json` and `preprocessor_config.json` of the codec folder."""

    heads: int
    layers: int  # layers that run; the quantiser follows the last one
    width: int
    codes: int

    @classmethod
    def from_folder(cls, folder: Path) -> "EncoderConfig":
        path = folder / "config.json"
        raw = read_json(path)
        extractor = read_json(folder / EXTRACTOR_FILE)
        _require_only(path, raw, _ENCODER_ONLY)
        _require_only(folder / EXTRACTOR_FILE, extractor, _EXTRACTOR_ONLY)
        fields = {
            "heads": "encoder_attention_heads",
            "layers": "quantize_position",
            "width": "d_model",
            "codes": "quantize_vocab_size",
        }
        values = {ours: _positive(path, raw, name) for ours, name in fields.items()}
        pooled = raw.get("pooling_position", values["layers"])
        if pooled != values["layers"]:
            raise refuse(f"{path}: pooling_position", pooled, f"{values['layers']} (quantiser)")
        return cls(**values)


@dataclass(frozen=True)
class DecoderConfig:
    """`flow/config.yaml`: dimensions of the flow and the vocoder."""

    head_dim: int  # of the estimator's attention
    steps: int  # of the solver
    guidance: float
    code_rows: int
    sample_rate: int
    upsample_rates: tuple[int, ...]
    upsample_kernels: tuple[int, ...]
    resblock_kernels: tuple[int, ...]
    source_kernels: tuple[int, ...]
    dilations: tuple[int, ...]
    n_fft: int
    hop_samples: int
    slope: float
    audio_limit: float
    sine_amplitude: float
    noise_amplitude: float
    voiced_threshold_hz: float

    @classmethod
    def from_file(cls, path: Path) -> "DecoderConfig":
        raw = _read_tagged_yaml(path)

        def at(*keys: str) -> Any:
            value: Any = raw
            for key in keys:
                if not isinstance(value, dict) or key not in value:
                    raise ConfigError(f"{path}: {'.'.join(keys)} is missing; it is required")
                value = value[key]
            return value

        estimator = ("flow", "decoder", "estimator")
        cfm = at("flow", "decoder", "cfm_params")
        cfm = cfm.get("content", cfm) if isinstance(cfm, dict) else {}
        for name, only in (("solver", "euler"), ("t_scheduler", "cosine")):
            if cfm.get(name, only) != only:
                raise refuse(f"{path}: cfm_params.{name}", cfm[name], only)
        steps, guidance = cfm.get("n_timesteps", _PUBLISHED_STEPS), cfm.get("inference_cfg_rate")
        if type(steps) is not int or steps < 1:
            raise refuse(f"{path}: cfm_params.n_timesteps", steps, "an integer of at least 1")
        if guidance != 0 and not is_positive_number(guidance):
            raise refuse(f"{path}: cfm_params.inference_cfg_rate", guidance, "a number, 0 or more")
        if at("flow", "pre_lookahead_len") != 3:
            raise refuse(f"{path}: pre_lookahead_len", at("flow", "pre_lookahead_len"), "3")

        def sizes(name: str, value: Any) -> tuple[int, ...]:
            whole = isinstance(value, list) and all(type(one) is int and one > 0 for one in value)
            if not whole or not value:
                raise refuse(f"{path}: {name}", value, "a list of integers of at least 1")
            return tuple(value)

        def listed(name: str) -> tuple[int, ...]:
            return sizes(name, at("hift", name))

        dilations = at("hift", "resblock_dilation_sizes")
        if not isinstance(dilations, list) or not dilations:
            raise refuse(f"{path}: resblock_dilation_sizes", dilations, "a list of lists")
        if any(some != dilations[0] for some in dilations):
            raise refuse(f"{path}: resblock_dilation_sizes", dilations, "the same for every kernel")
        try:
            return cls(
                head_dim=int(at(*estimator, "attention_head_dim")),
                steps=steps,
                guidance=float(cfm["inference_cfg_rate"]),
                code_rows=int(at("flow", "vocab_size")),
                sample_rate=int(at("hift", "sampling_rate")),
                upsample_rates=listed("upsample_rates"),
                upsample_kernels=listed("upsample_kernel_sizes"),
                resblock_kernels=listed("resblock_kernel_sizes"),
                source_kernels=listed("source_resblock_kernel_sizes"),
                dilations=sizes("resblock_dilation_sizes", dilations[0]),
                n_fft=int(at("hift", "istft_params", "n_fft")),
                hop_samples=int(at("hift", "istft_params", "hop_len")),
                slope=float(at("hift", "lrelu_slope")),
                audio_limit=float(at("hift", "audio_limit")),
                sine_amplitude=float(at("hift", "nsf_alpha")),
                noise_amplitude=float(at("hift", "nsf_sigma")),
                voiced_threshold_hz=float(at("hift", "nsf_voiced_threshold")),
            )
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise ConfigError(f"{path}: a value has the wrong type: {error}") from None


def _positive(path: Path, raw: dict[str, Any], name: str) -> int:
    value = raw.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise refuse(f"{path}: {name}", value, "an integer of at least 1")
    return value


def _require_only(path: Path, raw: dict[str, Any], allowed: dict[str, Any]) -> None:
    for name, only in allowed.items():
        if raw.get(name, only) != only:
            raise refuse(f"{path}: {name}", raw[name], repr(only))


def _read_tagged_yaml(path: Path) -> dict[str, Any]:
    """Reads the file as plain data. Its tags (`!new:…`) are meant for a loader that builds Python
    objects; this one ignores them and only resolves `!ref <name>`."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    def plain(loader: yaml.SafeLoader, _tag: str, node: yaml.Node) -> Any:
        if isinstance(node, yaml.MappingNode):
            return loader.construct_mapping(node, deep=True)
        if isinstance(node, yaml.SequenceNode):
            return loader.construct_sequence(node, deep=True)
        return loader.construct_scalar(node)  # type: ignore[arg-type]

    Loader.add_multi_constructor("!", plain)
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader)
        values = count(1)
        if isinstance(raw, dict):
            return {key: _resolved(value, raw, values) for key, value in raw.items()}
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        line = " ".join(str(error).split())  # the library's message has several
        raise ConfigError(f"{path}: not readable as YAML: {line}") from None
    raise ConfigError(f"{path}: contains a {type(raw).__name__}; allowed: a mapping")


def _resolved(value: Any, names: dict[str, Any], values: Iterator[int]) -> Any:
    """Raises ValueError for too many values: aliases of aliases make gigabytes of a few lines."""
    if next(values) > _MOST_VALUES:
        raise ValueError(f"more than {_MOST_VALUES} values")
    if isinstance(value, dict):
        return {key: _resolved(inner, names, values) for key, inner in value.items()}
    if isinstance(value, list):
        return [_resolved(inner, names, values) for inner in value]
    if isinstance(value, str) and (found := re.fullmatch(r"<(\w+)>", value)):
        return names.get(found[1], value)
    return value
