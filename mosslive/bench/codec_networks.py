"""Random networks of the codec in memory, of the sizes `mosslive synth` writes to files.

Does not know what is measured. Invariant: values depend on the size alone, so that the copy on the
CPU, which everything is verified against, is the same network as the one on the device.
"""

import copy
import math
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from mosslive.checkpoint.synth import SIZES, SizeName
from mosslive.codec.bigvgan import BigVgan
from mosslive.codec.encoder import Encoder
from mosslive.codec.flow import Flow
from mosslive.codec.flow_solver import FlowSettings
from mosslive.codec.hift import Hift

# Private, because files are that module's purpose; but these are the one definition of the sizes.
from mosslive.codec.synth import _BIGVGAN, CODEC_SIZES, _encoder, _flow, _hift_tensors, _random
from mosslive.config.bigvgan import BigVganConfig

Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True, eq=False)
class Pair:
    """Settings of one run: the sizes, and where its networks go beside the CPU."""

    size: SizeName
    device: str

    def encoder(self) -> tuple[Encoder, Encoder]:
        """(on the CPU, on the device), as are all pairs here."""
        s, codes = CODEC_SIZES[self.size], SIZES[self.size].codes
        tensors = _random(_encoder(s, codes), "bench:encoder")
        tensors["codebook.weight"] *= math.sqrt(s.encoder_width)
        return self._both(
            Encoder.from_tensors(tensors, s.encoder_heads, s.encoder_layers, prefix="")
        )

    def flow(self) -> tuple[Flow, Flow]:
        s, codes = CODEC_SIZES[self.size], SIZES[self.size].codes
        tensors = _random(_flow(s, codes), "bench:flow")
        return self._both(Flow.from_tensors(tensors, FlowSettings(code_limit=codes), s.head_dim))

    def hift(self) -> tuple[Hift, Hift]:
        return self._both(Hift.from_tensors(_hift_tensors(CODEC_SIZES[self.size], "bench:hift")))

    def bigvgan(self) -> tuple[BigVgan, BigVgan]:
        raw = _BIGVGAN | {"upsample_initial_channel": CODEC_SIZES[self.size].bigvgan_channels}
        config = BigVganConfig.from_dict(raw)
        with torch.device("meta"):
            shapes = BigVgan(config)
        tensors = _random(shapes, "bench:bigvgan")
        for name, tensor in tensors.items():
            if name.endswith(".alpha"):
                # Bends steeper than a trained network's enlarge rounding a thousandfold.
                tensor -= 1
        return self._both(BigVgan.from_tensors(tensors, config))

    def _both(self, network: Network) -> tuple[Network, Network]:
        return network, copy.deepcopy(network).to(self.device)


def normal(seed: int, *shape: int) -> Tensor:
    """Standard normal values on the CPU, the same for a seed everywhere."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def some_codes(seed: int, count: int, limit: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    drawn: list[int] = torch.randint(limit, (count,), generator=generator).tolist()
    return drawn
