"""The files of a codec's vocoder: HiFT of the codec folder, or a BigVGAN folder in its place.

Settings are read and checked at once, weights when `load` is called.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import torch

from mosslive.checkpoint.codec import CodecFiles
from mosslive.checkpoint.layout import CONFIG_FILE
from mosslive.codec.bigvgan import BigVganVocoder, load_bigvgan, reach_of
from mosslive.codec.hift.arena import OVERLAP_FRAMES
from mosslive.codec.hift.network import Hift, HiftSettings
from mosslive.codec.hift.source import SourceSettings
from mosslive.codec.hift.stream import HiftStream
from mosslive.codec.mel import MelSettings
from mosslive.codec.vocoder import Vocoder, check_mel
from mosslive.config.bigvgan import BigVganConfig
from mosslive.config.codec import DecoderConfig


class VocoderFiles(Protocol):
    @property
    def delay_frames(self) -> int:
        """`Vocoder.delay_frames` of the vocoder, known before it is loaded."""
        ...

    def load(self, device: torch.device, trace_cpu_steps: bool) -> Vocoder:
        """`trace_cpu_steps`: see `load_codec`."""
        ...


@dataclass(frozen=True)
class HiftFiles:
    files: CodecFiles
    dtype: torch.dtype = torch.float32  # see `load_codec`
    delay_frames: int = OVERLAP_FRAMES

    def load(self, device: torch.device, trace_cpu_steps: bool) -> Vocoder:
        settings = hift_settings(self.files.decoder)
        hift = Hift.from_tensors(self.files.vocoder_tensors(), settings)
        hift.compute_in(self.dtype)
        return HiftStream(hift.to(device), trace_cpu_steps)


@dataclass(frozen=True)
class BigVganFolder:
    path: Path
    delay_frames: int
    dtype: str = "float32"

    def load(self, device: torch.device, trace_cpu_steps: bool) -> Vocoder:
        return BigVganVocoder(load_bigvgan(self.path, str(device), self.dtype))


def open_bigvgan_folder(path: str | Path, dtype: str = "float32") -> BigVganFolder:
    """`dtype`: of its convolutions. Raises `ConfigError` if its settings cannot be read, or if its
    mel is not the flow's."""
    file = Path(path) / CONFIG_FILE
    config = BigVganConfig.from_file(file)
    check_mel(str(path), MelSettings.from_bigvgan(asdict(config)))
    return BigVganFolder(Path(path), reach_of(config).ahead, dtype)


def hift_settings(config: DecoderConfig) -> HiftSettings:
    """HiFT as `flow/config.yaml` describes it; the widths come from the tensors."""
    return HiftSettings(
        upsample_rates=config.upsample_rates,
        upsample_kernels=config.upsample_kernels,
        resblock_kernels=config.resblock_kernels,
        source_kernels=config.source_kernels,
        dilations=config.dilations,
        n_fft=config.n_fft,
        hop_samples=config.hop_samples,
        slope=config.slope,
        audio_limit=config.audio_limit,
        source=SourceSettings(
            sample_rate_hz=config.sample_rate,
            voiced_above_hz=config.voiced_threshold_hz,
            sine_amplitude=config.sine_amplitude,
            voiced_noise=config.noise_amplitude,
            unvoiced_noise=config.sine_amplitude / 3,
        ),
    )
