"""The decoder and its weights."""

from mosslive.model.decoder import Decoder
from mosslive.model.weights import DecoderWeights, LayerWeights, TailWeights, load_weights

__all__ = [
    "Decoder",
    "DecoderWeights",
    "LayerWeights",
    "TailWeights",
    "load_weights",
]
