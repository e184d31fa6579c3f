"""The decoder and its weights."""

from mosslive.model.decoder import Decoder, LayerPages
from mosslive.model.weights import DecoderWeights, LayerWeights, TailWeights, load_weights

__all__ = [
    "Decoder",
    "DecoderWeights",
    "LayerPages",
    "LayerWeights",
    "TailWeights",
    "load_weights",
]
