"""The codec: sound to codes and codes to sound, offline and live."""

from mosslive.codec.bigvgan import BigVgan, load_bigvgan
from mosslive.codec.codec import Codec, load_codec
from mosslive.codec.sound import Sound, read_sound, sound_format, write_sound
from mosslive.codec.voice import Voice

__all__ = [
    "BigVgan",
    "Codec",
    "Sound",
    "Voice",
    "load_bigvgan",
    "load_codec",
    "read_sound",
    "sound_format",
    "write_sound",
]
