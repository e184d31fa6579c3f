"""What can go wrong for a user of the page: each is said in plain words, with what to do."""

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from mosslive.server.backend import Backend
from mosslive.server.run import make_server
from tests.server.browser import PHONE, PLAIN_HOST, Chrome, state
from tests.server.processes import faulty
from tests.server.rig import Parts, serving, settings, until

pytestmark = pytest.mark.clients
KEY = "a-key-long-enough"
NOTICED_S = 5.0


async def error(page: Any, words: str) -> None:
    """The message of the page has these words, and hides nothing."""
    await page.locator("#error-text", has_text=words).wait_for()
    assert await page.locator("#text").is_visible()


def failing(name: str) -> str:
    """A script: the microphone cannot be opened."""
    raised = f"new DOMException('no', '{name}')"
    return f"navigator.mediaDevices.getUserMedia = () => Promise.reject({raised});"


MICROPHONE = {
    "NotAllowedError": "The browser does not allow the microphone. Allow it in the address bar",
    "NotFoundError": "No microphone was found. Connect one, then press Talk.",
    "NotReadableError": "another program may use it. Close that program",
}


def test_no_microphone(parts: Parts, chrome: Chrome) -> None:
    """Without a microphone the page says why and what to do, and typing works."""

    async def test() -> None:
        async with serving(parts) as served:
            for name, words in MICROPHONE.items():
                async with chrome.page(failing(name), **PHONE) as page:
                    await page.goto(f"{served.http}/")
                    await page.click("#talk")
                    await error(page, words)
                    await state(page, "off")
                    await chrome.shot(page, f"error-{name}")
                    await page.locator("#suggestions button").first.click()
                    await page.locator("#log .assistant").wait_for()
                    assert await page.locator("#error").is_hidden()
                    await page.click("#hang-up")

    chrome.run(test())


def test_text_before_the_connection(parts: Parts, chrome: Chrome) -> None:
    """Text that is sent while the call connects stays in its field, and the page says so until it
    can be sent."""
    script = """
      const open = navigator.mediaDevices.getUserMedia;
      const allowed = new Promise((resolve) => (window.allow = resolve));
      navigator.mediaDevices.getUserMedia = () => allowed.then(open);
    """

    async def test() -> None:
        async with serving(parts) as served, chrome.page(script, **PHONE) as page:
            await page.goto(f"{served.http}/")
            await page.click("#talk")
            await state(page, "microphone")
            await page.fill("#text", "Hello.")
            await page.locator("#text").press("Enter")
            await page.get_by_text("Your text stays in the field").wait_for()
            assert await page.input_value("#text") == "Hello."
            await page.evaluate("allow()")
            await page.wait_for_selector("body[data-call=talking]")
            await page.locator("#hint").wait_for(state="hidden")
            await page.locator("#text").press("Enter")
            assert await page.input_value("#text") == ""
            await page.locator("#log .user", has_text="Hello.").wait_for()
            await page.click("#hang-up")

    chrome.run(test())


def test_an_insecure_origin(parts: Parts, chrome: Chrome) -> None:
    """Over plain http from another machine browsers offer no microphone: the page says so, and a
    typed question is answered aloud."""

    async def test() -> None:
        async with (
            serving(parts, allowed_hosts=(PLAIN_HOST,)) as served,
            chrome.page(**PHONE) as page,
        ):
            await page.goto(f"http://{PLAIN_HOST}:{served.port}/")
            await page.click("#talk")
            await error(page, "only over https or on localhost")
            await chrome.shot(page, "error-insecure")
            await page.fill("#text", "Hello.")
            await page.locator("#text").press("Enter")
            await state(page, "speaking")
            await page.locator("#log .assistant", has_text="Spoken,").wait_for()
            await page.click("#hang-up")

    chrome.run(test())


def test_a_key(parts: Parts, chrome: Chrome) -> None:
    """The page asks for a key if one is needed, says if it is wrong, and falls back to a WebSocket
    if WebRTC fails, with reduced motion too. A key in a link is removed from the address."""

    async def test() -> None:
        async with (
            serving(parts, api_keys=(KEY,)) as served,
            chrome.page(reduced_motion="reduce", color_scheme="dark", **PHONE) as page,
        ):
            await page.goto(f"{served.http}/")
            await page.locator("#key").wait_for()
            await chrome.shot(page, "error-key-needed")
            await page.click("#talk")
            await error(page, "This server needs an API key. Enter the key and try again.")
            await page.fill("#key", "a-key-that-is-wrong")
            await page.locator("#key").press("Enter")
            await error(page, "The API key is wrong or has expired. Enter the key and try again.")
            await chrome.shot(page, "error-key-wrong")
            await page.fill("#key", KEY)
            await page.locator("#key").press("Enter")
            await page.locator("#voice option[value=default]").wait_for(state="attached")
            await page.locator("#key-form").wait_for(state="hidden")
            await page.route("**/v1/realtime/calls", lambda route: route.fulfill(status=503))
            await page.click("#talk")
            await page.get_by_text("Connected over WebSocket").wait_for()
            await state(page, "speaking")
            assert served.server_state.slots.taken == 1
            await page.evaluate("sessionStorage.clear()")
            await page.goto("about:blank")
            await page.goto(f"{served.http}/#key={KEY}")
            await page.locator("#voice option[value=default]").wait_for(state="attached")
            assert KEY not in page.url

    chrome.run(test())


def test_a_full_server(parts: Parts, chrome: Chrome) -> None:
    """A full server says so over both transports, and the next attempt works when there is room."""

    async def test() -> None:
        async with serving(parts, max_sessions=1) as served, chrome.page(**PHONE) as page:
            await page.goto(f"{served.http}/")
            async with served.session():
                for transport in ("webrtc", "websocket"):
                    chosen = f"document.getElementById('transport').value = '{transport}'"
                    await page.evaluate(chosen)
                    await page.click("#talk")
                    await error(page, "The server is full.")
                    await page.locator("#error-text", has_text="ry again").wait_for()
                    await state(page, "off")
                    await chrome.shot(page, f"error-full-{transport}")
                    await page.click("#error-close")
            await served.quiet()
            await page.click("#talk")
            await state(page, "speaking")
            assert await page.locator("#error").is_hidden()
            await page.click("#hang-up")

    chrome.run(test())


def test_a_server_that_loads_and_ends(chrome: Chrome) -> None:
    """While the model loads the page says so and the button waits; a server that has gone before a
    call is noticed."""

    async def test() -> None:
        go = asyncio.Event()

        async def load() -> Backend:
            await go.wait()
            raise RuntimeError("never mind")

        server, _ = make_server(settings(), load)
        task = asyncio.get_running_loop().create_task(server._serve())
        await until(lambda: server.started)
        async with chrome.page(**PHONE) as page:
            await page.goto(f"http://127.0.0.1:{server.port}/")
            await page.get_by_text("The server is loading its model").wait_for()
            assert await page.locator("#talk").is_disabled()
            await chrome.shot(page, "error-loading")
            go.set()
            await task
            await page.get_by_text("does not answer. Trying again").wait_for()
            await page.click("#talk")
            await error(page, "does not answer. Check that it runs, then try again.")
            await chrome.shot(page, "error-gone-before")

    chrome.run(test())


def test_a_server_that_goes_in_a_call(nano_folder: Path, chrome: Chrome, tmp_path: Path) -> None:
    """A server that hangs in a call is noticed within 5 s on both transports, and called again when
    it is back; a new session begins, and the log says so. The same for one that ends; without it
    the user can hang up."""

    async def lost(page: Any, how: signal.Signals, process: asyncio.subprocess.Process) -> None:
        await state(page, "speaking")
        before = await page.get_by_text("Connection lost. Reconnecting …").count()
        process.send_signal(how)
        stopped = time.monotonic()
        await page.get_by_text("Connection lost. Reconnecting …").nth(before).wait_for()
        assert time.monotonic() - stopped < NOTICED_S

    async def test() -> None:
        async with (
            faulty(nano_folder, tmp_path / "switch", "none", reply_s=30) as served,
            chrome.page(**PHONE) as page,
        ):
            process = served.process
            await page.goto(f"http://127.0.0.1:{served.port}/")
            for transport in ("webrtc", "websocket"):
                await page.evaluate(f"document.getElementById('transport').value = '{transport}'")
                await page.click("#talk")
                await lost(page, signal.SIGSTOP, process)
                await chrome.shot(page, f"error-gone-during-{transport}")
                process.send_signal(signal.SIGCONT)
                await page.get_by_text(
                    "Connected again. The model does not remember"
                ).last.wait_for()
                if transport == "webrtc":
                    await page.click("#hang-up")
                    await page.click("#clear")
            await lost(page, signal.SIGKILL, process)
            await error(page, "does not answer")
            await page.click("#hang-up")
            await state(page, "off")

    chrome.run(test())


def test_a_muted_microphone(parts: Parts, chrome: Chrome) -> None:
    """A microphone that the system has muted is reported, until it is heard again."""
    script = """
      const open = navigator.mediaDevices.getUserMedia;
      navigator.mediaDevices.getUserMedia = async () => (window.opened = await open());
    """

    async def test() -> None:
        async with serving(parts) as served, chrome.page(script, **PHONE) as page:
            await page.goto(f"{served.http}/")
            await page.click("#talk")
            await page.wait_for_selector("body[data-call=talking]")
            track = "opened.getAudioTracks()[0]"
            await page.evaluate(f"{track}.dispatchEvent(new Event('mute'))")
            await page.get_by_text("The system has muted the microphone.").wait_for()
            await chrome.shot(page, "error-muted")
            await page.evaluate(f"{track}.dispatchEvent(new Event('unmute'))")
            await page.locator("#hint").wait_for(state="hidden")
            await page.click("#hang-up")

    chrome.run(test())
