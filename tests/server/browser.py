"""A real Chromium whose microphone plays a file; tests skip with a reason if there is none.

It starts slowly, so the tests of a file share one (`Chrome`), and with it one event loop.
"""

import asyncio
import os
import shutil
import wave
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.server.rig import RATE, WAIT_S, pcm_bytes, spoken

VARIABLE = "TEST_CHROMIUM"  # where it is, if not on the path
ARTIFACTS = "TEST_ARTIFACTS"  # a folder where screenshots are kept
PLAIN_HOST = "voice.test"  # a name of this machine that browsers do not trust, unlike localhost
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "is_mobile": True,
    "has_touch": True,
}
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
if (navigator.mediaDevices) {
  const take = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  navigator.mediaDevices.getUserMedia = () => take({ audio: {
    echoCancellation: false, noiseSuppression: false, autoGainControl: false } });
}
"""


class Chrome:
    """A browser, and the event loop of the tests that use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(os.environ.get(ARTIFACTS) or folder)  # of screenshots
        self.folder.mkdir(parents=True, exist_ok=True)
        self._executable = chromium()
        self._sound = microphone(folder / "voice.wav")
        self._loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        self._loop.run_until_complete(self._start())

    async def _start(self) -> None:
        from playwright.async_api import async_playwright

        flags = [
            "--use-fake-ui-for-media-stream",
            "--use-fake-device-for-media-stream",
            f"--use-file-for-fake-audio-capture={self._sound}",
            "--autoplay-policy=user-gesture-required",
            f"--host-resolver-rules=MAP {PLAIN_HOST} 127.0.0.1",
            "--no-sandbox",
            "--disable-dev-shm-usage",
        ]
        play = await self._stack.enter_async_context(async_playwright())
        self._browser = await play.chromium.launch(executable_path=self._executable, args=flags)
        self._stack.push_async_callback(self._browser.close)

    def run(self, test: Coroutine[Any, Any, None], most_s: float = 3 * WAIT_S) -> None:
        self._loop.run_until_complete(asyncio.wait_for(test, most_s))

    def close(self) -> None:
        self._loop.run_until_complete(self._stack.aclose())
        self._loop.close()

    @asynccontextmanager
    async def page(self, script: str = "", **context: Any) -> AsyncIterator[Any]:
        """An empty page. `script`: runs before those of the page."""
        made = await self._browser.new_context(**context)
        try:
            page = await made.new_page()
            page.set_default_timeout(1000 * WAIT_S)
            await page.add_init_script(_RAW_MICROPHONE + script)
            yield page
        finally:
            await made.close()

    async def shot(self, page: Any, name: str, full_page: bool = False) -> None:
        await page.screenshot(path=self.folder / f"page-{name}.png", full_page=full_page)


async def state(page: Any, name: str) -> None:
    """Waits until the page is in this state."""
    await page.wait_for_selector(f"body[data-state={name}]")
