"""The commands and programs in the documentation work as printed.

Programs run with small models in the places that they name. Commands are parsed by our command
line, not run: other tests run them.
"""

import ast
import base64
import inspect
import json
import re
import shutil
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
import typer
from openai import AsyncOpenAI

import mosslive
from mosslive.cli.app import app
from mosslive.codec import Codec, Voice
from mosslive.config.capabilities import capabilities_from
from mosslive.server.settings import read_settings
from tests.codec.conftest import some_codes, speech
from tests.server.rig import Parts, pcm, run, serving, turn
from tests.snippets import ROOT, Block, blocks, commands

# Programs of others, and of the shell, that the pages use.
OTHERS = {"git", "cd", "pip", "tar", "mkdir", "docker", "curl", "for", "done", "}"}
RATE = 48_000
QUESTION = ROOT / "tests" / "golden" / "questions" / "capital-of-germany.opus"
BIGVGAN = "bigvgan_v2_24khz_100band_256x"


class Heard(Exception):
    """Ends a program that would listen for ever."""


def play(*_: object) -> None:
    raise Heard


def options_of(command: list[str]) -> list[str]:
    return [word.split("=")[0] for word in command if word.startswith("--")]


def parse(command: list[str]) -> None:
    """Parses a command line of ours, without running it."""
    group: Any = typer.main.get_command(app)
    words, name = command[1:], "mosslive"
    while hasattr(group, "commands"):
        assert words[0] in group.commands, f"{name} has no command {words[0]}"
        name, group, words = f"{name} {words[0]}", group.commands[words[0]], words[1:]
    group.make_context(name, list(words))


def recipe_of(command: list[str]) -> Path | None:
    """The program of `python -m recipes.bundled.NAME`, or of `recipe NAME`, a page's function."""
    name = command[1] if command[0] == "recipe" else command[2] if command[1:2] == ["-m"] else ""
    path = ROOT / "recipes" / "bundled" / f"{name.removeprefix('recipes.bundled.')}.py"
    return path if name and path.is_file() else None


@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_commands(block: Block) -> None:
    """Each command line of ours has options that exist; each make target, module and script
    exists."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for command in commands(block):
        program = command[0]
        if program == "recipe" and command[1] == "()":
            continue  # its definition
        if program in ("mosslive", ".venv/bin/mosslive"):
            parse(command)
        elif program == "make":
            for target in command[1:]:
                assert re.search(rf"^{re.escape(target)}:", makefile, re.M), command
        elif recipe := recipe_of(command):
            source = recipe.read_text("utf-8")
            assert all(f'"{option}"' in source for option in options_of(command)), command
        elif program == "python":
            assert command[1:3] == ["-m", "http.server"] or (ROOT / command[1]).is_file(), command
        elif "/" in program:
            assert (ROOT / program).is_file(), command
        else:
            assert program in OTHERS, command


def test_no_command_is_hidden() -> None:
    """A block with commands is marked `sh`, so that it is checked."""
    for block in blocks(""):
        assert not re.search(r"^(mosslive|make|pip|python) ", block.text, re.M), str(block)


@pytest.mark.parametrize("block", blocks("json", "toml"), ids=str)
def test_data(block: Block) -> None:
    """JSON, or a line of JSON each, and TOML can be read; settings and capabilities are known."""
    if block.kind == "toml":
        read_settings(tomllib.loads(block.text), {})
        return
    try:
        documents = [json.loads(block.text)]
    except json.JSONDecodeError:
        documents = [json.loads(line) for line in block.text.splitlines()]
    for document in documents:
        if "context_rows" in document:
            capabilities_from(document)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, nano_folder: Path, codec_folder: Path) -> Path:
    """A folder with the files that the programs name."""
    folder = tmp_path_factory.mktemp("snippets")
    for name in ("lm", "out", "MODEL/lm"):
        shutil.copytree(nano_folder, folder / name)
    for name in ("codec", "MOSS-Speech-Codec"):
        shutil.copytree(codec_folder, folder / name)
    shutil.copytree(codec_folder.parent / "bigvgan", folder / BIGVGAN)
    soundfile.write(folder / "anna.wav", speech(1.6, 24_000), 24_000)
    mosslive.load_codec(folder / "codec").voice(folder / "anna.wav").save(folder / "anna.voice")
    return folder


async def somewhere() -> AsyncIterator[Any]:
    """A microphone: a question at 48 kHz, and the silence that ends the turn."""
    question, rate_hz = soundfile.read(QUESTION, dtype="float32")
    yield question.repeat(RATE // rate_hz)
    yield np.zeros(2 * RATE, np.float32)


def names_for(page: str, codec: Codec, voice: Voice) -> dict[str, Any]:
    """What a page's programs take for granted."""
    given: dict[str, Any] = {"mosslive": mosslive, "play": play, "base64": base64}
    if page == "docs/talk.md":
        given |= {"somewhere": somewhere}
    if page == "docs/codec.md":
        given |= {"codec": codec, "pcm": speech(1.0, RATE), "packet": torch.zeros(16_000)}
        given |= {"codes": some_codes(12, 0), "anna": voice, "ben": voice}
    if page == "docs/bigvgan.md":
        vocoder = mosslive.load_bigvgan(BIGVGAN)
        mel = torch.zeros(vocoder.mel_settings.bands, 12)
        given |= {"vocoder": vocoder, "mel": mel, "mel_chunks": [mel[:, :5], mel[:, 5:]]}
    return given


async def execute(text: str, names: dict[str, Any]) -> None:
    """Runs a program, which may await at its top level, and the coroutine function `main` or `talk`
    that it defines."""
    result = eval(compile(text, "<snippet>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.iscoroutine(result):
        await result
    if "main" in names:
        await names["main"]()
    if "talk" in names:
        await names["talk"]("lm")


async def execute_and_close(text: str, names: dict[str, Any]) -> None:
    """Also closes what a program that listens for ever has opened."""
    opened: list[Any] = []

    def kept(make: Any) -> Any:
        def made(*given: Any) -> Any:
            opened.insert(0, make(*given))
            return opened[0]

        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mosslive, "Talk", kept(mosslive.Talk))
        patch.setattr(mosslive.Engine, "load", kept(mosslive.Engine.load))
        try:
            await execute(text, names)
        finally:
            for one in opened:  # the conversation, then its engine
                await one.close()


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_programs(
    block: Block,
    home: Path,
    codec: Codec,
    voice: Voice,
    nano_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each program runs, on a CPU and in float32."""
    text = re.sub(r'"(bfloat16|float16)"', '"float32"', block.text.replace('"cuda"', '"cpu"'))
    monkeypatch.chdir(home)
    names = names_for(block.page, codec, voice)
    names["print"] = lambda *_, **__: None
    if "asyncio.run" in text:
        exec(compile(text, str(block), "exec"), names)
        return

    async def test() -> None:
        if "127.0.0.1:8000" not in text:
            await execute_and_close(text, names)
            return
        names.update(AsyncOpenAI=AsyncOpenAI, base64_of_24khz_pcm16=pcm(turn()))
        async with serving(Parts(nano_folder, codec, voice)) as served:
            try:
                await execute(text.replace("127.0.0.1:8000", f"127.0.0.1:{served.port}"), names)
            except Heard:
                return
            raise AssertionError("the program ended before it heard an answer")

    try:
        run(test())
    except Heard:
        assert "play(" in text
