"""Writes trained tensors in the published file layouts and verifies that the package reads them.

    python -m recipes.bundled.export CARRIED OUT [--codec-of MODEL]

Writes a whole model: `OUT/lm`, `OUT/codec`, `OUT/voices/default.voice`. Codec and voice can be
those of an earlier model if the language model was trained on its codes. Knows files and names, not
training. Invariant: a folder appears only when it is complete, and the package loads it without a
special case.
"""

import argparse
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mosslive.checkpoint.campplus_onnx import campplus_onnx, random_campplus
from mosslive.checkpoint.codec import (
    ENCODER_FILE,
    ENCODER_PREFIX,
    FLOW_CONFIG,
    FLOW_FILES,
    FLOW_FOLDER,
    SPEAKER_FILE,
    VOCODER_FILE,
    FlowProfile,
)
from mosslive.checkpoint.inventory import NARROW_DTYPE, STORED_DTYPE
from mosslive.checkpoint.layout import (
    CONFIG_FILE,
    GENERATION_FILE,
    SINGLE_FILE,
    TOKENIZER_FILE,
    expected_tensors,
)
from mosslive.checkpoint.writer import new_folder, write_shard
from mosslive.codec.hift import HiftSettings
from mosslive.codec.synth import hift_config
from mosslive.config import ModelConfig
from mosslive.config.folders import CODEC_FOLDER, DEFAULT_VOICE, LM_FOLDER, VOICES_FOLDER
from mosslive.errors import MossliveError
from recipes.bundled.budget import load_carried
from recipes.bundled.codec_model import speaker_vector
from recipes.bundled.lm_grow import grown
from recipes.bundled.lm_stored import STORED, checkpoint_tensors
from recipes.bundled.sizes import SIZES, SIZES_FILE, Sizes
from recipes.bundled.vocabulary import ids, load_tokenizer

FlowDtype = Literal["float32", "float16"]
MOST_BYTES = 28_000_000
_DTYPES = {"float32": torch.float32, "float16": torch.float16}


@dataclass(frozen=True)
class Storing:
    """How the flow is stored: once or for every profile, in full or half precision."""

    flow_dtype: FlowDtype = "float32"
    profiles: tuple[FlowProfile, ...] = ("offline", "chunk-5", "chunk-25")


def write_codec(
    out: Path,
    sizes: Sizes,
    encoder: Mapping[str, Tensor],
    flow: Mapping[str, Tensor],
    hift: Mapping[str, Tensor],
    how: Storing | None = None,
) -> Path:
    """Tensors have their published names without prefixes; the encoder's must already be rounded to
    float16."""
    how = how or Storing()
    with new_folder(out / CODEC_FOLDER) as work:
        folder = work / FLOW_FOLDER
        folder.mkdir()
        named = {ENCODER_PREFIX + name: tensor.half() for name, tensor in encoder.items()}
        save_file(
            {name: tensor.contiguous() for name, tensor in named.items()}, work / ENCODER_FILE
        )
        _write_json(work / CONFIG_FILE, _encoder_config(sizes))
        _write_json(work / "preprocessor_config.json", _EXTRACTOR)
        stored = {name: tensor.to(_DTYPES[how.flow_dtype]) for name, tensor in flow.items()}
        for profile in how.profiles:
            torch.save(stored, folder / FLOW_FILES[profile])
        torch.save({name: tensor.half() for name, tensor in hift.items()}, folder / VOCODER_FILE)
        (folder / SPEAKER_FILE).write_bytes(campplus_onnx(_one_speaker(sizes.speaker)))
        # JSON is valid YAML, and the training machine has no YAML library.
        text = json.dumps(_decoder_config(sizes), indent=2) + "\n"
        (folder / FLOW_CONFIG).write_text(text, encoding="utf-8")
    return out / CODEC_FOLDER


def write_lm(out: Path, sizes: Sizes, tensors: Mapping[str, Tensor]) -> Path:
    tokenizer = load_tokenizer()
    config = sizes.lm_config(**ids(tokenizer))
    content = checkpoint_tensors(grown(tensors, config))  # it may be of a smaller model
    dtypes = {torch.float16: STORED_DTYPE[config.dtype], STORED: NARROW_DTYPE}
    expected = expected_tensors(config)
    with new_folder(out / LM_FOLDER) as work:
        write_shard(
            work / SINGLE_FILE,
            {name: (dtypes[content[name].dtype], shape) for name, shape in expected.items()},
            content.__getitem__,
        )
        _write_json(work / CONFIG_FILE, config.to_dict())
        _write_json(work / GENERATION_FILE, _generation(config))
        (work / TOKENIZER_FILE).write_text(tokenizer.json, encoding="utf-8")
    return out / LM_FOLDER


def _one_speaker(size: tuple[int, int]) -> dict[str, Tensor]:
    """Returns a CAM++ of the published form whose last layer ignores its input and returns
    `speaker_vector`, because there is one voice."""
    tensors = random_campplus(0, *size)
    tensors["xvector.dense.linear.weight"].zero_()
    norm = "xvector.dense.nonlinear.batchnorm"
    tensors[f"{norm}.running_mean"] = -speaker_vector()
    tensors[f"{norm}.running_var"] = torch.ones_like(speaker_vector())
    return tensors


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


_EXTRACTOR: dict[str, Any] = {
    "feature_extractor_type": "WhisperFeatureExtractor",
    "sampling_rate": 16000,
    "n_fft": 400,
    "hop_length": 160,
    "n_samples": 480000,
    "feature_size": 128,
}


def _encoder_config(sizes: Sizes) -> dict[str, Any]:
    dims = sizes.encoder
    return {
        "architectures": ["WhisperVQEncoder"],
        "d_model": dims.width,
        "encoder_attention_heads": dims.heads,
        "encoder_ffn_dim": dims.ffn,
        "encoder_layers": dims.layers,
        "quantize_encoder_only": True,
        "quantize_position": dims.layers,
        "num_mel_bins": dims.mel_bands,
        "max_source_positions": dims.positions,
        "activation_function": "gelu",
        "scale_embedding": False,
        "encoder_causal_convolution": True,
        "encoder_causal_attention": True,
        "quantize_causal_encoder": True,
        "pooling_kernel_size": 4,
        "pooling_type": "avg",
        "pooling_position": dims.layers,
        "quantize_vocab_size": dims.codes,
    }


def _decoder_config(sizes: Sizes) -> dict[str, Any]:
    hift: HiftSettings = sizes.hift
    estimator = sizes.flow.estimator
    cfm = {
        "solver": "euler",
        "t_scheduler": "cosine",
        "n_timesteps": sizes.steps,
        "inference_cfg_rate": sizes.guidance,
    }
    return {
        "sample_rate": 24000,
        "flow": {
            "vocab_size": sizes.codes,
            "pre_lookahead_len": 3,
            "decoder": {
                "cfm_params": {"content": cfm},
                "estimator": {
                    "attention_head_dim": estimator.head_dim,
                    "num_heads": estimator.heads,
                },
            },
        },
        "hift": hift_config(hift),
    }


def _generation(config: ModelConfig) -> dict[str, Any]:
    """Returns greedy decoding without repetition penalties: a model this small knows one good
    answer, and codes can repeat."""
    return {
        "do_sample": False,
        "eos_token_id": [config.eos_token_id, config.pad_token_id],
        "pad_token_id": config.pad_token_id,
        "repetition_penalty": 1.0,
    }


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def write_voice(out: Path, wave: Tensor) -> Path:
    """Makes the assistant's voice from a second or two of its speech, [n] float at 24 kHz."""
    from mosslive.codec.codec import load_codec
    from mosslive.codec.sound import Sound

    voice = load_codec(out / CODEC_FOLDER).voice(Sound(wave, 24000))
    path = out / VOICES_FOLDER / DEFAULT_VOICE
    path.parent.mkdir(exist_ok=True)
    voice.save(path)
    return path


def export(carried: Path, out: Path, how: Storing | None = None) -> dict[str, int]:
    """Writes a whole model and returns bytes by folder."""
    sizes = _sizes_of(carried)
    encoder, flow, hift, lm = _parts(carried, "encoder", "flow", "hift", "lm")
    write_codec(out, sizes, encoder, flow, hift, how)
    write_lm(out, sizes, lm)
    prompt = load_carried(carried, "prompt")
    if prompt is not None:
        write_voice(out, prompt["wave"])
    return _bytes_by_folder(out)


def export_lm(carried: Path, out: Path, model: Path) -> dict[str, int]:
    """Writes a new language model next to the codec and the voice of `model`, on whose codes it was
    trained. Returns bytes by folder."""
    sizes = _sizes_of(carried)
    lm, encoder = _parts(carried, "lm", "encoder")
    path = model / CODEC_FOLDER / ENCODER_FILE
    if not path.is_file() or not (model / VOICES_FOLDER / DEFAULT_VOICE).is_file():
        raise FileNotFoundError(f"{model}: no model with codec and {VOICES_FOLDER}/{DEFAULT_VOICE}")
    theirs, mine = load_file(path), {ENCODER_PREFIX + name: t for name, t in encoder.items()}
    if theirs.keys() != mine.keys() or not all(
        torch.equal(theirs[name].half(), mine[name].half()) for name in mine
    ):
        raise ValueError(f"{carried} was trained on codes of another encoder than that of {model}")
    with new_folder(out) as work:
        for name in (CODEC_FOLDER, VOICES_FOLDER):
            shutil.copytree(model / name, work / name)
        write_lm(work, sizes, lm)
    return _bytes_by_folder(out)


def _parts(carried: Path, *names: str) -> list[dict[str, Tensor]]:
    found = {name: load_carried(carried, name) for name in names}
    if absent := [name for name, tensors in found.items() if tensors is None]:
        raise FileNotFoundError(
            f"{carried}: no tensors of {', '.join(absent)}; train them first, or take an earlier"
            " model's codec by --codec-of"
        )
    return [tensors or {} for tensors in found.values()]


def _sizes_of(carried: Path) -> Sizes:
    path = carried / SIZES_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{carried} is not a folder `carried` of a run: it has no {SIZES_FILE}"
        )
    note = json.loads(path.read_text(encoding="utf-8"))
    return SIZES[note["size"]].with_hift(note["hift"]) if note["hift"] else SIZES[note["size"]]


def _bytes_by_folder(out: Path) -> dict[str, int]:
    return {path.name: folder_bytes(path) for path in sorted(out.iterdir()) if path.is_dir()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("carried", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--flow-dtype", choices=list(_DTYPES), default="float32")
    parser.add_argument(
        "--one-flow", action="store_true", help="write flow.pt only, without chunk files"
    )
    parser.add_argument(
        "--codec-of", type=Path, metavar="MODEL", help="copy codec and voice; write lm alone"
    )
    given = parser.parse_args()
    if given.codec_of and (given.one_flow or given.flow_dtype != parser.get_default("flow_dtype")):
        parser.error("--codec-of copies the flow as it is: no --one-flow, no --flow-dtype")
    profiles: tuple[FlowProfile, ...] = ("offline",) if given.one_flow else Storing().profiles
    how = Storing(given.flow_dtype, profiles)
    try:
        if given.codec_of:
            sizes, stored = export_lm(given.carried, given.out, given.codec_of), {}
        else:
            sizes, stored = export(given.carried, given.out, how), asdict(how)
    except (ValueError, OSError, MossliveError) as error:
        parser.error(str(error))
    print(json.dumps({"bytes": sizes, "all": sum(sizes.values()), **stored}))


if __name__ == "__main__":
    main()
