"""Reads the published codec folder strictly, one network at a time.

Knows file names and prefixes, not the networks. The networks check shapes themselves, because they
take their sizes from the tensors. All settings are checked before anything large is read.
"""

import re
from pathlib import Path
from typing import Literal, get_args

from safetensors import safe_open
from torch import Tensor

from mosslive.checkpoint import faults
from mosslive.checkpoint.header import read_shard
from mosslive.checkpoint.pickles import check_values, read_pickle
from mosslive.config import refuse
from mosslive.config.codec import DecoderConfig, EncoderConfig
from mosslive.config.folders import CODEC_FOLDER, named_folder

ENCODER_FILE = "model.safetensors"
FLOW_FOLDER = "flow"
FLOW_CONFIG = "config.yaml"
VOCODER_FILE = "hift.pt"
SPEAKER_FILE = "campplus.onnx"
ENCODER_PREFIX = "encoder."

# Flow weights trained for whole replies, or for chunks of 5 or 25 codes.
FlowProfile = Literal["offline", "chunk-5", "chunk-25"]
FLOW_FILES: dict[FlowProfile, str] = {
    "offline": "flow.pt",
    "chunk-5": "flow-chunk-5.pt",
    "chunk-25": "flow-chunk-25.pt",
}
_TRAINING_NOTES = ("epoch", "step")  # non-tensor entries of the chunk files


class CodecFiles:
    """A codec folder with checked settings."""

    def __init__(self, path: str | Path) -> None:
        folder = named_folder(path)
        nested = folder / CODEC_FOLDER
        if not (folder / FLOW_FOLDER).exists() and nested.is_dir():
            folder = nested  # of a model folder
        self.folder = folder
        self.encoder = EncoderConfig.from_folder(folder)
        self.decoder = DecoderConfig.from_file(folder / FLOW_FOLDER / FLOW_CONFIG)

    @property
    def speaker_path(self) -> Path:
        return self.folder / FLOW_FOLDER / SPEAKER_FILE

    def encoder_tensors(self) -> dict[str, Tensor]:
        """Tensors of the encoder, with their prefix. Ignores the rest of the published file: other
        prefixes, layers after the quantiser, and running averages of training."""
        path = self.folder / ENCODER_FILE
        if not path.is_file():
            raise faults.NoWeights([ENCODER_FILE], f"no such file in {self.folder}")
        shard = read_shard(path)
        if shard.faults:
            raise shard.faults[0]
        wanted = [entry.name for entry in shard.entries if self._is_used(entry.name)]
        if twice := sorted({name for name in wanted if wanted.count(name) > 1}):
            raise faults.DuplicateTensors(twice, f"in {ENCODER_FILE}")
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name).clone() for name in wanted}
        check_values(tensors)
        return tensors

    def _is_used(self, name: str) -> bool:
        layer = re.match(r"encoder\.layers\.(\d+)\.", name)
        if layer:
            return int(layer[1]) < self.encoder.layers
        return name.startswith(ENCODER_PREFIX) and not name.startswith(f"{ENCODER_PREFIX}ema_")

    def flow_file(self, profile: FlowProfile) -> str:
        """The file in `flow/` for this profile: its own, else `flow.pt`, because one network may
        be trained for all profiles."""
        if profile not in FLOW_FILES:
            raise refuse("profile", profile, ", ".join(get_args(FlowProfile)))
        own = FLOW_FILES[profile]
        return own if (self.folder / FLOW_FOLDER / own).exists() else FLOW_FILES["offline"]

    def flow_tensors(self, profile: FlowProfile) -> dict[str, Tensor]:
        return self._pickle(self.flow_file(profile))

    def vocoder_tensors(self) -> dict[str, Tensor]:
        return self._pickle(VOCODER_FILE)

    def _pickle(self, name: str) -> dict[str, Tensor]:
        tensors = read_pickle(self.folder / FLOW_FOLDER / name, ignored=_TRAINING_NOTES)
        check_values(tensors)
        return tensors
