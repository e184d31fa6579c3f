"""HiFT, the published vocoder of the flow's mel: the network, its source and its streams."""

from mosslive.codec.hift.network import Hift, HiftResult, HiftSettings

__all__ = ["Hift", "HiftResult", "HiftSettings"]
