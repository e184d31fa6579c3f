"""A real Chromium whose microphone plays a file; tests skip with a reason if there is none."""

import os
import shutil
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.server.rig import RATE, WAIT_S, pcm_bytes, spoken

VARIABLE = "TEST_CHROMIUM"  # where it is, if not on the path
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str:
    """Its path; skips the test where there is none."""
    pytest.importorskip("playwright", reason="playwright is not installed")
    found = os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, _NAMES)), None)
    if not found:
        pytest.skip(f"no Chromium: none of {', '.join(_NAMES)}, and {VARIABLE} is not set")
    return found


def microphone(path: Path, speech_s: float = 0.8, silence_s: float = 3.2) -> Path:
    """A WAV file that alternates between speech and silence."""
    words = np.concatenate((spoken(speech_s), np.zeros(int(silence_s * RATE), np.float32)))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(pcm_bytes(words))
    return path


# Browsers process voices; our noise would be processed too.
_RAW_MICROPHONE = """
const take = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
navigator.mediaDevices.getUserMedia = () => take({ audio: {
  echoCancellation: false, noiseSuppression: false, autoGainControl: false } });
"""


@asynccontextmanager
async def browsing(sound: Path, **context: Any) -> AsyncIterator[Any]:
    """An empty page; a request to any host other than its own server fails the test."""
    from playwright.async_api import async_playwright

    flags = [
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={sound}",
        "--autoplay-policy=user-gesture-required",
        "--no-sandbox",
        "--disable-dev-shm-usage",
    ]
    async with async_playwright() as play:
        browser = await play.chromium.launch(executable_path=chromium(), args=flags)
        try:
            page = await (await browser.new_context(**context)).new_page()
            page.set_default_timeout(1000 * WAIT_S)
            await page.add_init_script(_RAW_MICROPHONE)
            yield page
        finally:
            await browser.close()
