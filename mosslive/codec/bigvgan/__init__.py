"""BigVGAN-v2: the network, its exact streaming form, and the vocoder of live replies."""

from mosslive.codec.bigvgan.model import BigVgan, load_bigvgan
from mosslive.codec.bigvgan.network import reach_of
from mosslive.codec.bigvgan.stream import BigVganStream
from mosslive.codec.bigvgan.vocoder import BigVganVocoder

__all__ = ["BigVgan", "BigVganStream", "BigVganVocoder", "load_bigvgan", "reach_of"]
