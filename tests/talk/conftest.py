"""Nano models and one voice for all conversations."""

import pytest

from mosslive.codec import Codec, Sound, Voice
from tests.codec.conftest import codec, codec_folder, speech

__all__ = ["codec", "codec_folder"]


@pytest.fixture(scope="session")
def voice(codec: Codec) -> Voice:
    import torch

    return codec.voice(Sound(torch.from_numpy(speech(2.0, 24_000)), 24_000))
