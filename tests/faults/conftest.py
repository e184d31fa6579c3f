"""A nano model, a nano codec and a voice in files, as a server process reads them."""

from pathlib import Path
from typing import Any

import pytest

from mosslive.codec import Voice


@pytest.fixture(scope="session")
def folders(
    nano_folder: Path, codec_folder: Path, voice: Voice, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Settings of a server: its files, and replies of 0.4 s."""
    saved = tmp_path_factory.mktemp("voice") / "default.voice"
    voice.save(saved)
    return {
        "model": str(nano_folder),
        "codec": str(codec_folder),
        "voice": str(saved),
        "instructions": "Hi.",
        "seed": 5,
        "max_reply_s": 0.4,
        "min_reply_s": 0.8,
    }
