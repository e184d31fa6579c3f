"""Random networks of the codec in memory, of the sizes that `mosslive synth` writes to files.

Does not know what is measured. Invariant: values depend on the size alone, so the copy on the CPU,
against which everything is verified, is the same network as the one on the device.
"""

import copy
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
from mosslive.codec.random_networks import (
    CODEC_SIZES,
    empty_bigvgan,
    empty_flow,
    encoder_tensors,
    hift_tensors,
    random_tensors,
)

Network = TypeVar("Network", bound=nn.Module)


def random_encoder(size: SizeName) -> Encoder:
    """Returns the network on the CPU, like all functions here."""
    s, codes = CODEC_SIZES[size], SIZES[size].codes
    tensors = encoder_tensors(s, codes, "bench:encoder")
    return Encoder.from_tensors(tensors, s.encoder_heads, s.encoder_layers, prefix="")


def random_flow(size: SizeName) -> Flow:
    s, codes = CODEC_SIZES[size], SIZES[size].codes
    tensors = random_tensors(empty_flow(s, codes), "bench:flow")
    return Flow.from_tensors(tensors, FlowSettings(code_limit=codes), s.head_dim)


def random_hift(size: SizeName) -> Hift:
    return Hift.from_tensors(hift_tensors(CODEC_SIZES[size], "bench:hift"))


@dataclass(frozen=True, eq=False)
class NetworkPair:
    """The size of one run's networks and the device that gets a copy of each."""

    size: SizeName
    device: str

    def encoder(self) -> tuple[Encoder, Encoder]:
        """Returns (on the CPU, on the device), like all methods here."""
        return self._both(random_encoder(self.size))

    def flow(self) -> tuple[Flow, Flow]:
        return self._both(random_flow(self.size))

    def hift(self) -> tuple[Hift, Hift]:
        return self._both(random_hift(self.size))

    def bigvgan(self) -> tuple[BigVgan, BigVgan]:
        shapes = empty_bigvgan(CODEC_SIZES[self.size])
        tensors = random_tensors(shapes, "bench:bigvgan")
        for name, tensor in tensors.items():
            if name.endswith(".alpha"):
                # Larger slopes than those of a trained network amplify rounding a thousandfold.
                tensor -= 1
        return self._both(BigVgan.from_tensors(tensors, shapes.config))

    def _both(self, network: Network) -> tuple[Network, Network]:
        return network, copy.deepcopy(network).to(self.device)


def normal(seed: int, *shape: int) -> Tensor:
    """Returns standard normal values on the CPU; a seed gives the same values on every machine."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def some_codes(seed: int, count: int, limit: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    codes: list[int] = torch.randint(limit, (count,), generator=generator).tolist()
    return codes
