"""The page at `/`: its files, its security policy, and a conversation in a browser."""

import math
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest

from mosslive.server.web_page import FOLDER, POLICY
from tests.server.browser import browsing, chromium, microphone
from tests.server.rig import Parts, run, serving, until

FILES = sorted(path.name for path in FOLDER.iterdir())
SCRIPTS = [name for name in FILES if name.endswith(".js")]
ARTIFACTS = "TEST_ARTIFACTS"  # a folder where screenshots are kept
LASTING: dict[str, Any] = {"max_reply_s": 30.0, "min_reply_s": 30.0}  # until it is interrupted


class Elements(HTMLParser):
    """Tags with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed((FOLDER / "index.html").read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def of(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.found if tag in tags]


def test_no_other_host_is_named() -> None:
    """No file of the page names another host, except in XML namespaces."""
    for name in FILES:
        text = (FOLDER / name).read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"(https?|wss?):?//[\w.]|(src|href|url)\s*[=(]\s*[\"']?//", text), name


def test_every_file_named_is_there_and_every_file_is_named() -> None:
    """Every file that the page names exists, and every file is named; there is no build step to
    check it."""
    named = {"index.html"}
    for attributes in Elements().of("link", "script", "audio", "img"):
        named |= {value for key in ("src", "href") if (value := attributes.get(key))}
    for name in SCRIPTS:
        text = (FOLDER / name).read_text("utf-8")
        named |= set(re.findall(r"from \"\./([\w-]+\.js)\"", text))
        named |= set(re.findall(r"new URL\(\"([\w-]+\.js)\", import\.meta\.url\)", text))
    assert named == set(FILES)


def test_elements_are_found_and_labelled() -> None:
    """Every id that a script looks for exists once, and every control has a name for screen
    readers."""
    elements = Elements()
    ids = [value for _, attributes in elements.found if (value := attributes.get("id"))]
    assert len(set(ids)) == len(ids)
    for name in SCRIPTS:
        wanted = re.findall(r"\bfind\(\"([\w-]+)\"\)", (FOLDER / name).read_text("utf-8"))
        assert set(wanted) <= set(ids), name
    labelled = {attributes.get("for") for attributes in elements.of("label")}
    for control in elements.of("input", "select"):
        assert control.get("type") == "radio" or control["id"] in labelled
    (html,) = elements.of("html")
    assert html["lang"]
    assert any("aria-live" in attributes for _, attributes in elements.found)
    # The policy forbids inline code and styles.
    assert not elements.of("style")
    assert all("src" in script for script in elements.of("script"))
    for _, attributes in elements.found:
        assert not [key for key in attributes if key.startswith("on") or key == "style"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_parse(name: str, tmp_path: Path) -> None:
    """Every script parses; there is no build step that would find a syntax error."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    module = tmp_path / "script.mjs"
    module.write_text((FOLDER / name).read_text("utf-8"), "utf-8")
    subprocess.run([node, "--check", str(module)], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("from_hz", "to_hz"), [(48_000, 24_000), (44_100, 24_000), (24_000, 48_000)]
)
def test_resampler(from_hz: int, to_hz: int, tmp_path: Path) -> None:
    """The page's resampler keeps a tone, however the sound is cut, and removes what the lower rate
    cannot hold."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    (tmp_path / "resampler.mjs").write_text((FOLDER / "resampler.js").read_text("utf-8"), "utf-8")
    script = f"""
      import {{ Resampler }} from "./resampler.mjs";
      const tone = (hz) => Float32Array.from({{ length: {from_hz} / 2 }},
        (_, n) => Math.sin(2 * Math.PI * hz * n / {from_hz}));
      const run = (wave, cut) => {{
        const resampler = new Resampler({from_hz}, {to_hz});
        const out = [];
        for (let n = 0; n < wave.length; n += cut)
          out.push(...resampler.push(wave.subarray(n, n + cut)));
        return out;
      }};
      const whole = run(tone(1000), 1e9);
      const cut = run(tone(1000), 128);
      let error = 0, apart = 0, leak = 0;
      whole.forEach((value, n) => {{
        apart = Math.max(apart, Math.abs(value - cut[n]));
        if (n > 200 && n < whole.length - 200)
          error = Math.max(error, Math.abs(value - Math.sin(2 * Math.PI * 1000 * n / {to_hz})));
      }});
      if ({from_hz} > {to_hz}) run(tone(0.72 * {to_hz}), 128).forEach((value, n) => {{
        if (n > 200) leak = Math.max(leak, Math.abs(value)); }});
      console.log(whole.length, error, apart, leak);
    """
    (tmp_path / "main.mjs").write_text(script, "utf-8")
    command = [node, str(tmp_path / "main.mjs")]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    count, error, apart, leak = map(float, out.split())
    assert math.isclose(count, to_hz / 2, abs_tol=60)
    assert error < 2e-3
    assert apart < 1e-5
    assert leak < 3e-3


def test_headers(parts: Parts) -> None:
    """Every file has a strict content security policy, and the page itself needs no key."""

    async def test() -> None:
        async with (
            serving(parts, api_keys=("a-key-long-enough",)) as served,
            httpx.AsyncClient(base_url=served.http) as http,
        ):
            for name in ["", *FILES]:
                answer = await http.get(f"/{name}")
                assert answer.status_code == 200, name
                assert answer.headers["content-security-policy"] == POLICY
                assert answer.headers["x-content-type-options"] == "nosniff"
            for away in ("/no-such-file", "/../settings.py", "/%2e%2e/settings.py"):
                assert (await http.get(away)).status_code == 404
            assert (await http.get("/v1/voices")).status_code == 401
        assert "unsafe" not in POLICY
        assert "default-src 'none'" in POLICY

    run(test())


@pytest.mark.clients
@pytest.mark.parametrize("transport", ["webrtc", "websocket"])
def test_a_person_talks(parts: Parts, transport: str, tmp_path: Path) -> None:
    """In a real browser with a microphone, over both transports, the second turn interrupts the
    first reply, the key interrupts the next, and no other host is contacted."""
    chromium()
    kept = Path(os.environ.get(ARTIFACTS) or tmp_path)
    phone = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
    desktop = {"viewport": {"width": 1280, "height": 900}}

    async def test() -> None:
        async with (
            serving(parts, **LASTING) as served,
            browsing(
                microphone(tmp_path / "voice.wav"),
                **(desktop if transport == "webrtc" else phone),
            ) as page,
        ):
            wrong: list[str] = []
            asked: list[str] = []
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else 0)
            page.on("request", lambda request: asked.append(request.url))
            await page.goto(f"{served.http}/")
            await page.select_option("#transport", transport)
            await page.click("#talk")
            await page.wait_for_selector("body[data-state=speaking]")
            connected = await page.text_content("#line")
            assert connected.lower() == f"connected over {transport}"
            # The file repeats, and its second turn interrupts.
            log = page.locator("#log")
            await log.get_by_text("Interrupted after").first.wait_for()
            await page.wait_for_selector("body[data-state=speaking]")
            assert await page.locator("#log .user").count() >= 2
            assert re.fullmatch(r"\d+ ms", await page.text_content("#ttfa"))
            kept.mkdir(parents=True, exist_ok=True)
            await page.screenshot(path=kept / f"page-{transport}.png", full_page=True)
            wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0
            await page.click("#mute")
            await page.wait_for_selector("body[data-state=speaking]")
            before = await log.get_by_text("Interrupted").count()
            await page.keyboard.press("Escape")
            await log.get_by_text("Interrupted").nth(before).wait_for()
            await page.click("#talk")
            await page.wait_for_selector("body[data-state=off]")
            await served.quiet()
            # In text, without a microphone.
            await page.check("input[name=reply][value=text]")
            await page.fill("#text", "Hello.")
            await page.keyboard.press("Enter")
            await log.get_by_text("Hello.").wait_for()
            await page.locator("#log .assistant .said").wait_for()
            assert not wrong
            assert all(url.startswith(served.http) for url in asked)

    run(test())


@pytest.mark.clients
def test_the_page_asks_for_a_key_and_falls_back(parts: Parts, tmp_path: Path) -> None:
    """The page shows errors in words, asks for a key if one is needed and falls back to a WebSocket
    if WebRTC fails, with reduced motion too."""
    chromium()

    async def test() -> None:
        key = "a-key-long-enough"
        async with (
            serving(parts, api_keys=(key,)) as served,
            browsing(
                microphone(tmp_path / "voice.wav"), reduced_motion="reduce", color_scheme="dark"
            ) as page,
        ):
            await page.goto(f"{served.http}/")
            await page.wait_for_selector("#key-row:not([hidden])")
            await page.click("#talk")
            error = page.locator("#error:not([hidden])")
            await error.wait_for()
            assert "API key" in await error.text_content()
            await page.fill("#key", key)
            await page.keyboard.press("Tab")
            await page.locator("#voice option[value=default]").wait_for(state="attached")
            await page.route("**/v1/realtime/calls", lambda route: route.fulfill(status=503))
            await page.click("#talk")
            await page.get_by_text("Connected over WebSocket").wait_for()
            await page.wait_for_selector("body[data-state=speaking]")
            assert served.server_state.slots.taken == 1
            # A key in a link is removed from the address.
            await page.evaluate("sessionStorage.clear()")
            await page.goto("about:blank")
            await page.goto(f"{served.http}/#key={key}")
            await page.locator("#voice option[value=default]").wait_for(state="attached")
            assert key not in page.url

    run(test())


@pytest.mark.clients
def test_a_closed_page_leaves_nothing(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page closed in the middle of a reply ends its session; a killed browser is detected."""
    chromium()
    monkeypatch.setattr("aioice.ice.CONSENT_INTERVAL", 0.5)  # s; 5 in use

    async def test() -> None:
        async with (
            serving(parts, **LASTING) as served,
            browsing(microphone(tmp_path / "voice.wav")) as page,
        ):
            path = "/v1/realtime/calls/{call}/hangup"
            hung_up = served.server_state.metrics.requests.labels(path, "200")
            for leave in ("navigate", "close"):
                await page.goto(f"{served.http}/")
                await page.click("#talk")
                await page.wait_for_selector("body[data-state=speaking]")
                assert served.server_state.slots.taken == 1
                await (page.goto("about:blank") if leave == "navigate" else page.close())
                await until(lambda: served.server_state.slots.taken == 0)
                assert leave == "close" or hung_up._value.get() == 1

    run(test())
