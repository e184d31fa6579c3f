"""`mosslive generate`, `demo`, `--version` and `--help`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mosslive import DRIVER_SYSTEM, LanguageModel, Sampling, Turn
from mosslive.cli.app import app
from mosslive.config import folders
from mosslive.version import __version__
from tests.cli.console import console, installed


def test_json_reply_is_the_librarys(nano_folder: Path, nano_lm: LanguageModel) -> None:
    """The command gives the same rows as the Python API with the driver's system turn and
    settings."""
    asked = ["generate", str(nano_folder), "--user", "Hello", "--reply", "text"]
    result = CliRunner().invoke(app, [*asked, "--seed", "5", "--max-new", "12", "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    turns = [Turn("system", text=DRIVER_SYSTEM["text"]), Turn("user", text="Hello")]
    prompt = nano_lm.prompt(turns, reply="text")
    generation = nano_lm.generate(prompt, Sampling.driver(seed=5, max_new=12))
    rows = list(generation)
    assert [tuple(row) for row in document["rows"]] == rows
    assert document["text"] == nano_lm.read(rows).text
    assert document["stop"] == generation.stop
    assert document["prompt_rows"] == len(prompt)
    assert document["sampling"] == vars(Sampling.driver(seed=5, max_new=12))


@pytest.mark.parametrize("text", ["[1, 2, 3]", "1 2\n3"])
def test_codes_from_file_and_standard_input(nano_folder: Path, tmp_path: Path, text: str) -> None:
    """A codes file and standard input (`-`) give the same reply."""
    path = tmp_path / "codes.json"
    path.write_text(text)
    arguments = ["generate", str(nano_folder.parent), "--greedy", "--max-new", "6", "--json"]
    by_file, by_pipe = (
        CliRunner().invoke(app, [*arguments, "--codes", name], input=text)
        for name in (str(path), "-")
    )
    assert by_file.exit_code == 0, by_file.output
    document = json.loads(by_file.stdout)
    assert json.loads(by_pipe.stdout) == document
    assert len(document["codes"]) == 6
    assert document["stop"] == "length"


def test_plain_output(nano_folder: Path) -> None:
    """Codes on standard output, the summary on standard error."""
    result = installed("generate", nano_folder, "--user", "Hi", "--greedy", "--max-new", "5")
    assert result.returncode == 0, result.stderr
    (line,) = result.stdout.splitlines()  # no empty line for absent text
    assert [0 <= int(code) < 500 for code in line.split()] == [True] * 5
    assert "5 codes = 0.40 s of speech; ended by length" in result.stderr


def test_written_reply_is_one_line(nano_folder: Path) -> None:
    """A text reply ends with a newline, even without a visible character."""
    asked = ("generate", str(nano_folder), "--user", "Hi", "--reply", "text")
    result = console(*asked, "--greedy", "--max-new", "5")
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("\n")
    assert "codes" not in result.stderr


def test_an_engine_folder_replies_as_its_source(nano_folder: Path, tmp_path: Path) -> None:
    """An engine folder gives the same rows as its source, and `--dtype` is an error for it."""
    engine = tmp_path / "engine"
    assert CliRunner().invoke(app, ["build", str(nano_folder), str(engine)]).exit_code == 0
    asked = ["--user", "Hi", "--seed", "3", "--max-new", "8", "--json"]
    source = ["generate", str(nano_folder), *asked, "--dtype", "bfloat16"]
    documents = []
    for arguments in (["generate", str(engine), *asked], source):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        documents.append(json.loads(result.stdout))
    assert documents[0] == documents[1]
    refused = console("generate", str(engine), *asked, "--dtype", "bfloat16")
    assert refused.returncode == 1
    assert "an engine folder is built for one precision" in refused.stderr


def test_system_turn_and_presets(nano_folder: Path) -> None:
    """`--system ''` leaves the system turn out; presets are the published sets."""
    arguments = ["generate", str(nano_folder), "--user", "Hi", "--max-new", "3", "--json"]
    plain = json.loads(CliRunner().invoke(app, arguments).stdout)
    bare = json.loads(CliRunner().invoke(app, [*arguments, "--system", ""]).stdout)
    card = json.loads(CliRunner().invoke(app, [*arguments, "--preset", "model-card"]).stdout)
    assert bare["prompt_rows"] < plain["prompt_rows"]
    assert card["sampling"] == vars(Sampling.model_card(max_new=3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either --user TEXT or --codes FILE"),
        (["--user", "x", "--codes", "y"], "give either --user TEXT or --codes FILE"),
        (["--codes", "nowhere.json"], "nowhere.json: not readable"),
        (["--user", "x", "--temperature", "0"], "temperature is 0.0; allowed: 0.01 to 100"),
        (["--user", "x", "--dtype", "int4"], "dtype is 'int4'; allowed: float32, bfloat16"),
        (["--user", "x", "--device", "tpu9"], "Unknown device 'tpu9'; use cpu or cuda."),
        (["--user", "x", "--max-new", "0"], "max_new is 0; allowed: 1 or more"),
    ],
)
def test_bad_arguments(nano_folder: Path, arguments: list[str], message: str) -> None:
    """Bad arguments give one clear message, a non-zero exit code and no traceback."""
    result = console("generate", nano_folder, *arguments)
    assert result.returncode != 0
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ("[1, 2", "JSON list"),
        ('{"code": [1]}', 'object with a list "codes"'),
        ('{"codes": 3}', "JSON list"),
        ("1 two", "integers"),
        ("[]", "the list is empty"),
        ("[1, 500]", "0..499"),
    ],
)
def test_bad_codes(nano_folder: Path, codes: str, message: str) -> None:
    """Bad codes exit with code 1 and the reason."""
    result = console("generate", nano_folder, "--codes", "-", stdin=codes)
    assert result.returncode == 1
    assert message in result.stderr


def test_demo_shows_all_four_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the bundled model the demo runs on random weights and says so."""
    monkeypatch.setattr(folders, "shipped_folder", lambda: tmp_path)
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 0, result.output
    for word in (
        "text",
        "speech, 2 s",
        "codes",
        "contains no weights",
        "256 of 256 pages are free",
    ):
        assert word in " ".join(result.output.split())


def test_version_and_help() -> None:
    """`--version` and `--help` work without a model."""
    assert installed("--version").stdout == f"mosslive {__version__}\n"
    listed = console("--help").stdout
    assert all(name in listed for name in ("demo", "generate", "inspect", "synth", "bench"))
