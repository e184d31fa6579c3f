"""Random codecs and vocoders in the published layouts, at the sizes of the random language models.

Values keep signals near one through the depth and the pitch near a voice's, so that what comes out
is a hum, not silence and not a clipped roar. Every tensor differs from every other.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
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
from mosslive.codec.bigvgan import BigVgan
from mosslive.codec.conformer import ConformerDims
from mosslive.codec.encoder import Encoder, EncoderDims
from mosslive.codec.estimator import EstimatorDims
from mosslive.codec.flow import Flow, FlowDims
from mosslive.codec.flow_solver import FlowSettings
from mosslive.codec.hift import Hift, HiftSettings
from mosslive.codec.snake import sinc_filter
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


def synthesise_codec(out: Path, size: SizeName, seed: int = 0) -> Path:
    """Writes `out/codec` and returns it. Its codes are those of the language model of that size."""
    import yaml  # of the voice extra; a benchmark that only draws weights does without

    s, codes = CODEC_SIZES[size], SIZES[size].codes
    with new_folder(out / "codec") as work:
        flow_folder = work / FLOW_FOLDER
        flow_folder.mkdir()
        encoder = _encoder(s, codes)
        tensors = _random(encoder, f"{seed}:encoder")
        tensors["codebook.weight"] *= math.sqrt(s.encoder_width)  # as large as the states it meets
        save_file({ENCODER_PREFIX + k: v for k, v in tensors.items()}, work / ENCODER_FILE)
        _write_json(work / CONFIG_FILE, _encoder_config(s, codes))
        _write_json(work / "preprocessor_config.json", _EXTRACTOR)
        for profile, name in FLOW_FILES.items():
            drawn: dict[str, object] = dict(_random(_flow(s, codes), f"{seed}:{profile}"))
            notes = {} if profile == "offline" else {"epoch": 1, "step": 1000}
            torch.save(drawn | notes, flow_folder / name)
        torch.save(_hift_tensors(s, f"{seed}:hift"), flow_folder / VOCODER_FILE)
        speaker = campplus_onnx(random_campplus(seed, *s.speaker))
        (flow_folder / SPEAKER_FILE).write_bytes(speaker)
        text = yaml.safe_dump(_decoder_config(s, codes), sort_keys=False)
        (flow_folder / FLOW_CONFIG).write_text(text, encoding="utf-8")
    return out / "codec"


def synthesise_bigvgan(out: Path, size: SizeName, seed: int = 0) -> Path:
    """Writes `out/bigvgan`, a 24 kHz, 100 band vocoder, and returns it."""
    raw = _BIGVGAN | {"upsample_initial_channel": CODEC_SIZES[size].bigvgan_channels}
    with torch.device("meta"):
        network = BigVgan(BigVganConfig.from_dict(raw))
    with new_folder(out / "bigvgan") as work:
        tensors = _random(network, f"{seed}:bigvgan")
        halves = _split(tensors, network, ("weight_g", "weight_v"), plain=())
        torch.save({"generator": halves}, work / GENERATOR_FILE)
        _write_json(work / CONFIG_FILE, raw)
    return out / "bigvgan"


def _encoder(s: CodecSize, codes: int) -> Encoder:
    width = s.encoder_width
    dims = EncoderDims(128, width, s.encoder_heads, 4 * width, s.encoder_layers, 1500, codes)
    with torch.device("meta"):
        return Encoder(dims)


def _flow(s: CodecSize, codes: int) -> Flow:
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


def _hift_tensors(s: CodecSize, key: str) -> dict[str, Tensor]:
    settings = HiftSettings(channels=s.hift_channels, f0_channels=s.f0_channels)
    with torch.device("meta"):
        network = Hift(settings)
    tensors = _random(network, key)
    tensors["f0_predictor.classifier.bias"] = torch.tensor([_PITCH_HZ])
    plain = ("source_downs", "m_source", "f0_predictor.classifier")
    style = ("parametrizations.weight.original0", "parametrizations.weight.original1")
    return _split(tensors, network, style, plain)


def _random(network: nn.Module, key: str) -> dict[str, Tensor]:
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
        "hift": {
            "sampling_rate": 24000,
            "nb_harmonics": hift.harmonics,
            "nsf_alpha": 0.1,
            "nsf_sigma": 0.003,
            "nsf_voiced_threshold": 10,
            "upsample_rates": list(hift.upsample_rates),
            "upsample_kernel_sizes": list(hift.upsample_kernels),
            "istft_params": {"n_fft": hift.n_fft, "hop_len": hift.hop_samples},
            "resblock_kernel_sizes": list(hift.resblock_kernels),
            "resblock_dilation_sizes": [list(hift.dilations)] * len(hift.resblock_kernels),
            "source_resblock_kernel_sizes": list(hift.source_kernels),
            "lrelu_slope": hift.slope,
            "audio_limit": hift.audio_limit,
        },
    }


def _write_json(path: Path, content: Mapping[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
