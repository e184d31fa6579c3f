"""Nano models and one voice: all that a server in a test needs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mosslive.codec import Codec, Voice
from mosslive.server.backend import Backend
from tests.server.bench import backend
from tests.server.browser import Chrome
from tests.server.rig import Parts


@pytest.fixture(scope="session")
def parts(nano_folder: Path, codec: Codec, voice: Voice) -> Parts:
    return Parts(nano_folder, codec, voice)


@pytest.fixture(scope="module")
def served(parts: Parts) -> Iterator[Backend]:
    """The backend for sessions without a socket."""
    with backend(parts) as made:
        yield made


@pytest.fixture(scope="session")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    started = Chrome(tmp_path_factory.mktemp("chrome"))
    yield started
    started.close()
