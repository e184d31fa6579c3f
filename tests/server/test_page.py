"""The page at `/`: its files, its security policy, and the parts that need no browser.

`test_page_calls.py` and `test_page_errors.py` use it in a browser.
"""

import itertools
import json
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
import soundfile

from mosslive.server.web_page import FOLDER, POLICY
from tests.server.rig import Parts, run, serving

FILES = sorted(path.name for path in FOLDER.iterdir())
SCRIPTS = [name for name in FILES if name.endswith(".js")]


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
    for control in elements.of("input", "select", "textarea"):
        assert control.get("type") == "radio" or control["id"] in labelled
    (html,) = elements.of("html")
    assert html["lang"]
    assert any("aria-live" in attributes for _, attributes in elements.found)
    # The policy forbids inline code and styles.
    assert not elements.of("style")
    assert all("src" in script for script in elements.of("script"))
    for _, attributes in elements.found:
        assert not [key for key in attributes if key.startswith("on") or key == "style"]


def node_output(folder: Path, script: str) -> str:
    """What a script prints that imports modules of the page; skips where there is no node."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    if not (folder / "package.json").exists():
        (folder / "package.json").write_text('{"type": "module"}', "utf-8")
        for name in SCRIPTS:
            (folder / name).write_text((FOLDER / name).read_text("utf-8"), "utf-8")
    (folder / "main.js").write_text(script, "utf-8")
    command = [node, "--experimental-vm-modules", str(folder / "main.js")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_scripts_parse(tmp_path: Path) -> None:
    """Every script parses, and imports only names that exist; there is no build step that would
    find such an error."""
    script = f"""
      import {{ readFileSync }} from "node:fs";
      import {{ SourceTextModule }} from "node:vm";
      for (const name of {json.dumps(SCRIPTS)})
        new SourceTextModule(readFileSync(new URL(name, import.meta.url), "utf8"));
    """
    node_output(tmp_path, script)
    for name in SCRIPTS:
        text = (FOLDER / name).read_text("utf-8")
        for names, module in re.findall(r"import \{([^}]+)\} from \"\./([\w-]+\.js)\"", text):
            there = (FOLDER / module).read_text("utf-8")
            exported = set(re.findall(r"^export (?:async )?[\w*]+\*? (\w+)", there, re.M))
            assert {one.strip() for one in names.split(",") if one.strip()} <= exported, name


def test_latency_in_words(tmp_path: Path) -> None:
    """The total comes first, and is the sum of the two numbers that follow it."""
    script = """
      globalThis.document = { getElementById: () => null };
      const { sentence } = await import("./latency.js");
      console.log(sentence({ detection_s: 0.5249, ttfa_s: 0.336 }));
      console.log(sentence({ detection_s: null, ttfa_s: 0.336 }));
    """
    first, second = node_output(tmp_path, script).splitlines()
    assert first == "0.86 s after you stopped speaking: 0.52 turn detection + 0.34 first sound"
    assert second == "0.34 s to first sound"


def test_captions_follow_the_sound(tmp_path: Path) -> None:
    """Words appear in order as their sound is heard: none before it, all of it at the end, and none
    after the place where it was cut."""
    script = """
      import { Caption, wordsHeard } from "./captions.js";
      const text = "The capital of Germany is Berlin.";
      const shown = [];
      for (let ms = 0; ms <= 2000; ms += 20) shown.push(wordsHeard(text, 2000, ms));
      const cut = new Caption();
      cut.replace(text, 2000);
      cut.heardMs = 1500;
      cut.cutMs = 700;
      const late = new Caption();
      late.heardMs = Infinity;
      late.append(text);
      console.log(JSON.stringify({ shown, cut: cut.words, late: late.words }));
    """
    out = json.loads(node_output(tmp_path, script))
    shown, text = out["shown"], "The capital of Germany is Berlin."
    assert shown[0] == ""
    assert shown[-1] == text
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(shown))
    assert len(set(shown)) == 7  # one word at a time
    assert out["cut"] == "The capital"
    assert out["late"] == text


def test_reconnect_delays(tmp_path: Path) -> None:
    """Delays double up to a limit, with chance; sessions that the server ended for a reason of the
    client are not made again."""
    script = """
      globalThis.document = { baseURI: "http://localhost/" };
      const { delays, mayReturn } = await import("./reconnect.js");
      const gone = [[1006, ""], [1001, "the server is shutting down"], [0, ""],
        [0, "the server is shutting down"], [1011, "internal error"]]
        .map((one) => mayReturn(...one));
      const ended = [[1008, "idle for too long"], [0, "idle for too long"], [1009, ""]]
        .map((one) => mayReturn(...one));
      console.log(JSON.stringify({ waits: [...delays(() => 0.5)], gone, ended }));
    """
    out = json.loads(node_output(tmp_path, script))
    assert out["waits"][:6] == [500, 1000, 2000, 4000, 8000, 8000]
    assert 60_000 < sum(out["waits"]) < 180_000
    assert all(out["gone"])
    assert not any(out["ended"])


def test_saved_sound(tmp_path: Path) -> None:
    """The saved file is a WAV file of both sides or of the replies alone."""
    script = """
      import { writeFileSync } from "node:fs";
      import { Recorder } from "./recorder.js";
      const recorder = new Recorder(() => {});
      recorder.packets = [Int16Array.of(1, -1, 2, -2), Int16Array.of(3, -3)];
      for (const both of [true, false])
        writeFileSync(new URL(`${both}.wav`, import.meta.url),
          Buffer.from(await recorder.wav(both).arrayBuffer()));
    """
    node_output(tmp_path, script)
    both, rate = soundfile.read(tmp_path / "true.wav", dtype="int16")
    assert rate == 24_000
    assert both.tolist() == [[1, -1], [2, -2], [3, -3]]
    assert soundfile.read(tmp_path / "false.wav", dtype="int16")[0].tolist() == [-1, -2, -3]


@pytest.mark.parametrize(
    ("from_hz", "to_hz"), [(48_000, 24_000), (44_100, 24_000), (24_000, 48_000)]
)
def test_resampler(from_hz: int, to_hz: int, tmp_path: Path) -> None:
    """The page's resampler keeps a tone, however the sound is cut, and removes what the lower rate
    cannot hold."""
    script = f"""
      import {{ Resampler }} from "./resampler.js";
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
    out = node_output(tmp_path, script)
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
