"""Nano models, one voice, and what a server needs to be started in a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mosslive.codec import Codec, Voice
from mosslive.server.backend import Backend
from tests.codec.conftest import codec, codec_folder
from tests.server.bench import backend
from tests.server.rig import Parts
from tests.talk.conftest import voice

__all__ = ["codec", "codec_folder", "voice"]


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder are `alone`: callers in real time, sockets that are slow by design
    and time limits, of which a busy machine makes others than are meant."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.alone)


@pytest.fixture(scope="session")
def parts(nano_folder: Path, codec: Codec, voice: Voice) -> Parts:
    return Parts(nano_folder, codec, voice)


@pytest.fixture(scope="module")
def served(parts: Parts) -> Iterator[Backend]:
    """What sessions without a socket talk to."""
    with backend(parts) as made:
        yield made
