"""Calls by the page in a real browser: over both transports, with captions, by push to talk."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
import soundfile

from tests.server.browser import PHONE, Chrome, state
from tests.server.rig import Parts, serving, until, wav

pytestmark = pytest.mark.clients
LASTING: dict[str, Any] = {"max_reply_s": 30.0, "min_reply_s": 30.0}  # until it is interrupted
DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
LATENCY = (
    r"\d+\.\d\d s after you stopped speaking: \d+\.\d\d turn detection \+ \d+\.\d\d first sound"
)


async def choose(page: Any, setting: str, value: str) -> None:
    """Selects an option of the settings, which are folded."""
    await page.evaluate("document.querySelector('.options').open = true")
    await page.select_option(f"#{setting}", value)


async def saved(page: Any, button: str) -> bytes:
    """The file that this button saves."""
    async with page.expect_download() as download:
        await page.click(button)
    return Path(await (await download.value).path()).read_bytes()


@pytest.mark.parametrize("transport", ["webrtc", "websocket"])
def test_a_person_talks(parts: Parts, chrome: Chrome, transport: str) -> None:
    """In a real browser with a microphone, over both transports, the second turn interrupts the
    first reply, the key interrupts the next, captions are cut where the sound stopped, a second
    call keeps the log, and no other host is contacted."""
    context = DESKTOP if transport == "webrtc" else PHONE | {"color_scheme": "dark"}

    async def test() -> None:
        async with (
            serving(parts, transcripts=True, max_reply_s=10, min_reply_s=10) as served,
            chrome.page(**context) as page,
        ):
            wrong: list[str] = []
            asked: list[str] = []
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else 0)
            page.on("request", lambda request: asked.append(request.url))
            await page.goto(f"{served.http}/")
            await page.locator("#suggestions button").first.wait_for()
            await chrome.shot(page, f"idle-{transport}")
            await page.evaluate(f"document.getElementById('transport').value = '{transport}'")
            await page.click("#check")
            await page.wait_for_function("() => document.getElementById('level').value > 0.2")
            await chrome.shot(page, f"check-{transport}")
            await page.click("#talk")
            await state(page, "speaking")
            connected = await page.text_content("#line")
            assert connected.lower() == f"connected over {transport}"
            # What a call needs is on the first screen.
            for needed in ("#talk", "#hang-up", "#interrupt", "#latency", "#log", "#text"):
                box = await page.locator(needed).bounding_box()
                assert box["y"] + box["height"] <= context["viewport"]["height"], needed
            # Words appear while the reply is spoken. The file repeats, and its second turn
            # interrupts.
            log = page.locator("#log")
            await page.wait_for_selector("body[data-state=speaking] #log .assistant .said:visible")
            words = page.locator(".said:visible")
            cut = page.locator("#log .assistant", has_text="Interrupted after").filter(has=words)
            await cut.first.wait_for()
            await state(page, "speaking")
            assert await page.locator("#log .user").count() >= 2
            await page.locator("#log .user .said:visible").first.wait_for()
            assert re.fullmatch(LATENCY, await page.text_content("#latency"))
            await chrome.shot(page, f"call-{transport}")
            wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0
            await page.click("#talk")  # mute
            assert await page.get_attribute("#talk", "aria-pressed") == "true"
            await state(page, "speaking")  # a turn that the muting has cut is answered, too
            before = await log.get_by_text("Interrupted").count()
            await page.keyboard.press("Escape")
            await log.get_by_text("Interrupted").nth(before).wait_for()
            await state(page, "muted")
            await chrome.shot(page, f"muted-{transport}")
            await page.click("#hang-up")
            await state(page, "off")
            await served.quiet()
            sound, rate = soundfile.read(io.BytesIO(await saved(page, "#save-sound")))
            assert rate == 24_000
            assert (abs(sound) > 0.02).any(axis=0).all()  # both sides are there
            # In text, without a microphone; the log of the first call stays.
            await page.evaluate("document.querySelector('.options').open = true")
            await page.check("#log-events")
            await page.fill("#instructions", "Be brief.")
            await page.check("input[name=reply][value=text]")
            await page.fill("#text", "Hello.")
            await page.locator("#text").press("Enter")
            await log.get_by_text("Hello.").wait_for()
            await page.locator("#log .assistant").last.locator(".said:visible").wait_for()
            assert await cut.count() >= 1
            await log.get_by_text("New call").wait_for()
            await page.locator("#events li", has_text="response.create").first.wait_for()
            await page.locator("#events", has_text="Be brief.").wait_for()
            text = (await saved(page, "#save-text")).decode()
            assert "You: Hello." in text
            assert "Interrupted after" in text
            await chrome.shot(page, f"settings-{transport}", full_page=True)
            assert not wrong
            assert all(url.startswith((served.http, "blob:")) for url in asked)

    chrome.run(test())


def test_push_to_talk(parts: Parts, chrome: Chrome) -> None:
    """The turn lasts as long as the button or the space bar is held; the next press interrupts the
    reply. A model without transcripts says so once, and how to turn them on."""

    async def test() -> None:
        async with serving(parts, **LASTING) as served, chrome.page(**DESKTOP) as page:
            await page.goto(f"{served.http}/")
            await choose(page, "turns", "push")
            await page.evaluate("document.querySelector('.options').open = false")
            await page.click("#talk")
            await state(page, "holding")
            await page.get_by_text("Start it with --transcripts to see").first.wait_for()
            await page.hover("#talk")
            for way in ("pointer", "key"):
                press, release = (
                    (page.mouse.down, page.mouse.up)
                    if way == "pointer"
                    else (lambda: page.keyboard.down("Space"), lambda: page.keyboard.up("Space"))
                )
                await press()
                await state(page, "hearing")
                await page.wait_for_timeout(900)
                await release()
                await state(page, "speaking")
            await page.locator("#log").get_by_text("Interrupted after").wait_for()
            assert await page.locator("#log .user").count() == 2
            assert await page.locator("#log .remark").count() == 1
            await chrome.shot(page, "push")
            await page.click("#hang-up")
            await state(page, "off")

    chrome.run(test())


def test_voices(parts: Parts, chrome: Chrome, tmp_path: Path) -> None:
    """A recording can be added as a voice and heard before the call; devices can be chosen."""
    recording = tmp_path / "My Voice.wav"
    recording.write_bytes(wav(1.0))

    async def test() -> None:
        async with serving(parts) as served, chrome.page(**DESKTOP) as page:
            await page.goto(f"{served.http}/")
            await page.locator("#voice option[value=default]").wait_for(state="attached")
            await page.evaluate("document.querySelector('.options').open = true")
            await page.click("#upload")
            await page.get_by_text("Choose a recording first").wait_for()
            await page.set_input_files("#voice-file", str(recording))
            async with page.expect_response("**/v1/audio/speech") as sample:
                await page.click("#upload")
            assert (await sample.value).ok
            assert await page.input_value("#voice") == "my-voice"
            await page.click("#check")  # the browser tells names of devices now
            await page.wait_for_function("() => document.getElementById('microphone').length > 1")
            await page.click("#talk")
            await state(page, "speaking")
            other = await page.evaluate("document.getElementById('microphone').options[1].value")
            await choose(page, "microphone", other)
            await page.wait_for_selector("body[data-call=talking]")
            await chrome.shot(page, "devices", full_page=True)
            await page.click("#hang-up")
            # A model with one voice says so instead.
            listed = {"data": [{"id": "default"}], "uploads": False}
            await page.route("**/v1/voices", lambda route: route.fulfill(json=listed))
            await page.reload()
            await page.evaluate("document.querySelector('.options').open = true")
            await page.get_by_text("This model has one voice.").wait_for()
            assert await page.locator("#upload").is_hidden()

    chrome.run(test())


def test_a_closed_page_leaves_nothing(
    parts: Parts, chrome: Chrome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page closed in the middle of a reply ends its session; a killed browser is detected."""
    monkeypatch.setattr("aioice.ice.CONSENT_INTERVAL", 0.5)  # s; 5 in use

    async def test() -> None:
        async with serving(parts, **LASTING) as served, chrome.page() as page:
            path = "/v1/realtime/calls/{call}/hangup"
            hung_up = served.server_state.metrics.requests.labels(path, "200")
            for leave in ("navigate", "close"):
                await page.goto(f"{served.http}/")
                await page.click("#talk")
                await state(page, "speaking")
                assert served.server_state.slots.taken == 1
                await (page.goto("about:blank") if leave == "navigate" else page.close())
                await until(lambda: served.server_state.slots.taken == 0)
                assert leave == "close" or hung_up._value.get() == 1

    chrome.run(test())
