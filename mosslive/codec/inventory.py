"""What a codec or BigVGAN folder holds, network by network, each loaded as strictly as for use.

The networks check their own files: sizes come from the tensors, so there is no list to compare with
beforehand. Knows nothing of how the result is printed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from mosslive.checkpoint.bigvgan import GENERATOR_FILE, read_bigvgan
from mosslive.checkpoint.codec import FLOW_FILES, FLOW_FOLDER, CodecFiles, FlowProfile
from mosslive.codec.bigvgan import BigVgan
from mosslive.codec.codec import Codec, flow_settings
from mosslive.codec.encoder import Encoder
from mosslive.codec.flow import Flow
from mosslive.codec.hift import Hift
from mosslive.codec.speaker import SpeakerEncoder
from mosslive.codec.vocoder_files import hift_settings
from mosslive.config.folders import CODEC_FOLDER, VOICES_FOLDER
from mosslive.errors import MossliveError


@dataclass(frozen=True)
class Part:
    """One network of a folder. `fault` is empty if it can be used."""

    block: str
    tensors: int = 0
    parameters: int = 0
    bytes: int = 0
    dtype: str = "-"
    fault: str = ""


def is_codec(folder: Path) -> bool:
    return (folder / FLOW_FOLDER).is_dir()


def is_bigvgan(folder: Path) -> bool:
    return (folder / GENERATOR_FILE).is_file()


def inspect_codec(folder: Path) -> list[Part]:
    """Raises only for settings that cannot be read; a network at fault is a part with a fault."""
    files = CodecFiles(folder)

    def encoder() -> Mapping[str, Tensor]:
        tensors = files.encoder_tensors()
        Encoder.from_tensors(tensors, files.encoder.heads, files.encoder.layers)
        return tensors

    def flow(profile: FlowProfile) -> Mapping[str, Tensor]:
        tensors = files.flow_tensors(profile)
        Flow.from_tensors(tensors, flow_settings(files), files.decoder.head_dim)
        return tensors

    def vocoder() -> Mapping[str, Tensor]:
        tensors = files.vocoder_tensors()
        Hift.from_tensors(tensors, hift_settings(files.decoder))
        return tensors

    parts = [_part("encoder", encoder)]
    for profile, own in FLOW_FILES.items():
        if (file := files.flow_file(profile)) == own:
            parts.append(_part(f"flow, {profile}", partial(flow, profile)))
        else:
            parts.append(Part(f"flow, {profile}: {file}"))  # counted under its own profile
    parts.append(_part("HiFT vocoder", vocoder))
    try:
        SpeakerEncoder(files.speaker_path)
        size = files.speaker_path.stat().st_size
        return [*parts, Part("CAM++ speaker encoder", bytes=size, dtype="ONNX")]
    except MossliveError as error:
        return [*parts, Part("CAM++ speaker encoder", fault=str(error))]


def inspect_voices(folder: Path) -> list[Part]:
    """The voices in a codec folder, or in the folder of the model that the codec belongs to."""
    files = CodecFiles(folder)
    homes = (folder, folder.parent) if folder.name == CODEC_FOLDER else (folder,)
    paths = [path for home in homes for path in sorted((home / VOICES_FOLDER).glob("*.voice"))]
    if not paths:
        return []
    codec = Codec(files, torch.device("cpu"))
    return [_part(f"voice, {path.stem}", partial(_voice, codec, path)) for path in paths]


def _voice(codec: Codec, path: Path) -> Mapping[str, Tensor]:
    voice = codec.voice(path)
    return {name: getattr(voice.prompt, name) for name in vars(voice.prompt)}


def inspect_bigvgan(folder: Path) -> list[Part]:
    def generator() -> Mapping[str, Tensor]:
        config, tensors = read_bigvgan(folder)
        BigVgan.from_tensors(tensors, config)
        return tensors

    return [_part("BigVGAN generator", generator)]


def _part(block: str, load: Callable[[], Mapping[str, Tensor]]) -> Part:
    try:
        tensors = load()
    except MossliveError as error:
        return Part(block, fault=str(error))
    held = tensors.values()
    return Part(
        block,
        tensors=len(tensors),
        parameters=sum(tensor.numel() for tensor in held),
        bytes=sum(tensor.nbytes for tensor in held),
        dtype=", ".join(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in held})),
    )
