"""Random codecs and vocoders as files in the published layouts.

Sizes and values are those of `random_networks`; here is only how the published files hold them.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from mosslive.checkpoint.bigvgan import GENERATOR_FILE
from mosslive.checkpoint.campplus_onnx import campplus_onnx, random_campplus
from mosslive.checkpoint.codec import (
    ENCODER_FILE,
    ENCODER_PREFIX,
    FLOW_CONFIG,
    FLOW_FILES,
    FLOW_FOLDER,
    SPEAKER_FILE,
    VOCODER_FILE,
)
from mosslive.checkpoint.layout import CONFIG_FILE
from mosslive.checkpoint.synth import SIZES, SizeName
from mosslive.checkpoint.writer import new_folder
from mosslive.codec.hift import HiftSettings
from mosslive.codec.random_networks import (
    CODEC_SIZES,
    BigVganMel,
    CodecSize,
    bigvgan_config,
    empty_bigvgan,
    empty_flow,
    empty_hift,
    encoder_tensors,
    hift_tensors,
    random_tensors,
)


def synthesise_codec(out: Path, size: SizeName, seed: int = 0) -> Path:
    """Writes `out/codec` and returns it. Its codes are those of the language model of that size."""
    import yaml  # in the voice extra; benchmarks that make weights in memory do not need it

    s, codes = CODEC_SIZES[size], SIZES[size].codes
    with new_folder(out / "codec") as work:
        flow_folder = work / FLOW_FOLDER
        flow_folder.mkdir()
        tensors = encoder_tensors(s, codes, f"{seed}:encoder")
        save_file({ENCODER_PREFIX + k: v for k, v in tensors.items()}, work / ENCODER_FILE)
        _write_json(work / CONFIG_FILE, _encoder_config(s, codes))
        _write_json(work / "preprocessor_config.json", _EXTRACTOR)
        for profile, name in FLOW_FILES.items():
            tensors = random_tensors(empty_flow(s, codes), f"{seed}:{profile}")
            notes = {} if profile == "offline" else {"epoch": 1, "step": 1000}
            torch.save({**tensors, **notes}, flow_folder / name)
        torch.save(_split_hift(s, f"{seed}:hift"), flow_folder / VOCODER_FILE)
        speaker = campplus_onnx(random_campplus(seed, *s.speaker))
        (flow_folder / SPEAKER_FILE).write_bytes(speaker)
        text = yaml.safe_dump(_decoder_config(s, codes), sort_keys=False)
        (flow_folder / FLOW_CONFIG).write_text(text, encoding="utf-8")
    return out / "codec"


def synthesise_bigvgan(
    out: Path, size: SizeName, seed: int = 0, mel: BigVganMel = "published"
) -> Path:
    """Writes `out/bigvgan` and returns it. `mel`: that of the published 24 kHz, 100 band vocoder,
    or that of the flow, so that the codec can use it."""
    s = CODEC_SIZES[size]
    network = empty_bigvgan(s, mel)
    with new_folder(out / "bigvgan") as work:
        tensors = random_tensors(network, f"{seed}:bigvgan")
        halves = _split(tensors, network, ("weight_g", "weight_v"), plain=())
        torch.save({"generator": halves}, work / GENERATOR_FILE)
        _write_json(work / CONFIG_FILE, bigvgan_config(s, mel))
    return out / "bigvgan"


def _split_hift(s: CodecSize, key: str) -> dict[str, Tensor]:
    network = empty_hift(s)
    tensors = hift_tensors(s, key)
    plain = ("source_downs", "m_source", "f0_predictor.classifier")
    style = ("parametrizations.weight.original0", "parametrizations.weight.original1")
    return _split(tensors, network, style, plain)


def _split(
    tensors: Mapping[str, Tensor],
    network: nn.Module,
    style: tuple[str, str],
    plain: tuple[str, ...],
) -> dict[str, Tensor]:
    """Convolution weights as length and direction, as training leaves them."""
    convolutions = {
        name
        for name, module in network.named_modules()
        if isinstance(module, nn.Conv1d | nn.ConvTranspose1d) and not name.startswith(plain)
    }
    halves: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        layer, _, last = name.rpartition(".")
        if layer in convolutions and last == "weight":
            axes = tuple(range(1, tensor.dim()))
            halves[f"{layer}.{style[0]}"] = tensor.square().sum(axes, keepdim=True).sqrt()
            halves[f"{layer}.{style[1]}"] = tensor
        else:
            halves[name] = tensor
    return halves


_EXTRACTOR = {
    "feature_extractor_type": "WhisperFeatureExtractor",
    "sampling_rate": 16000,
    "n_fft": 400,
    "hop_length": 160,
    "n_samples": 480000,
    "feature_size": 128,
}


def _encoder_config(s: CodecSize, codes: int) -> dict[str, object]:
    return {
        "architectures": ["WhisperVQEncoder"],
        "d_model": s.encoder_width,
        "encoder_attention_heads": s.encoder_heads,
        "encoder_ffn_dim": 4 * s.encoder_width,
        "encoder_layers": 2 * s.encoder_layers,  # the second half is trained, stored and never run
        "quantize_encoder_only": True,
        "quantize_position": s.encoder_layers,
        "num_mel_bins": 128,
        "max_source_positions": 1500,
        "activation_function": "gelu",
        "scale_embedding": False,
        "encoder_causal_convolution": True,
        "encoder_causal_attention": True,
        "quantize_causal_encoder": True,
        "quantize_causal_block_size": 200,
        "pooling_kernel_size": 4,
        "pooling_type": "avg",
        "pooling_position": s.encoder_layers,
        "quantize_vocab_size": codes,
    }


def _decoder_config(s: CodecSize, codes: int) -> dict[str, object]:
    hift = HiftSettings()
    return {
        "sample_rate": 24000,
        "flow": {
            "vocab_size": s.flow_rows or codes,
            "pre_lookahead_len": 3,
            "decoder": {
                "cfm_params": {
                    "content": {
                        "solver": "euler",
                        "t_scheduler": "cosine",
                        "inference_cfg_rate": 0.7,
                    }
                },
                "estimator": {"attention_head_dim": s.head_dim, "num_heads": s.estimator_heads},
            },
        },
        "hift": hift_config(hift),
    }


def hift_config(hift: HiftSettings) -> dict[str, object]:
    """The vocoder's section of flow/config.yaml."""
    return {
        "sampling_rate": hift.source.sample_rate_hz,
        "nb_harmonics": hift.harmonics,
        "nsf_alpha": hift.source.sine_amplitude,
        "nsf_sigma": hift.source.voiced_noise,
        "nsf_voiced_threshold": hift.source.voiced_above_hz,
        "upsample_rates": list(hift.upsample_rates),
        "upsample_kernel_sizes": list(hift.upsample_kernels),
        "istft_params": {"n_fft": hift.n_fft, "hop_len": hift.hop_samples},
        "resblock_kernel_sizes": list(hift.resblock_kernels),
        "resblock_dilation_sizes": [list(hift.dilations)] * len(hift.resblock_kernels),
        "source_resblock_kernel_sizes": list(hift.source_kernels),
        "lrelu_slope": hift.slope,
        "audio_limit": hift.audio_limit,
    }


def _write_json(path: Path, content: Mapping[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
