"""Nano models, one voice, and what a server needs to be started in a test."""

from pathlib import Path

import pytest

from mosslive.codec import Codec, Voice
from tests.codec.conftest import codec, codec_folder
from tests.server.rig import Parts
from tests.talk.conftest import voice

__all__ = ["codec", "codec_folder", "voice"]


@pytest.fixture(scope="session")
def parts(nano_folder: Path, codec: Codec, voice: Voice) -> Parts:
    return Parts(nano_folder, codec, voice)
