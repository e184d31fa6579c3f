"""`mosslive synth`: output paths, one-line errors, and no partial folders."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mosslive.checkpoint import take_inventory
from mosslive.checkpoint.writer import FolderExists
from mosslive.cli.app import app
from mosslive.config import ModelConfig
from tests.cli.console import console
from tests.cli.test_inspect import assert_one_sentence


def synth(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["synth", *map(str, arguments)])


def test_writes_a_usable_model(tmp_path: Path, nano_folder: Path) -> None:
    """`synth` writes the same bytes as the library, for the given size and seed."""
    result = synth(tmp_path / "out", "--size", "nano", "--seed", "1")
    assert result.exit_code == 0, result.output
    target = tmp_path / "out" / "lm"
    for path in nano_folder.iterdir():
        assert (target / path.name).read_bytes() == path.read_bytes()
    assert take_inventory(target).valid
    assert {path.name for path in target.parent.iterdir()} == {"lm", "codec", "bigvgan"}


def test_defaults(tmp_path: Path) -> None:
    """The defaults are size nano and seed 0."""
    for name, options in (("plain", []), ("stated", ["--size", "nano", "--seed", "0"])):
        assert synth(tmp_path / name, *options).exit_code == 0
    stated = tmp_path / "stated" / "lm"
    assert ModelConfig.from_file(stated / "config.json").hidden_size == 64
    for path in (tmp_path / "plain" / "lm").iterdir():
        assert path.read_bytes() == (stated / path.name).read_bytes()


@pytest.mark.parametrize(
    "name", ["short", "a" * 150, "a space [x]"], ids=["short", "long", "space and brackets"]
)
def test_says_where_it_wrote(tmp_path: Path, name: str) -> None:
    """A long path is printed on one line."""
    result = synth(tmp_path / name, "--only", "lm")
    assert result.stdout == f"wrote {tmp_path / name / 'lm'}\n"
    assert result.stderr == ""


@pytest.mark.parametrize("part", ["codec", "bigvgan"])
def test_one_part_alone_and_its_inventory(tmp_path: Path, part: str) -> None:
    """`--only` writes one part, and `inspect` reports it as usable."""
    assert synth(tmp_path, "--only", part).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == [part]
    result = CliRunner().invoke(app, ["inspect", str(tmp_path / part), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["usable"]
    assert len(report["blocks"]) == {"codec": 6, "bigvgan": 1}[part]
    assert all(block["verdict"] == "ok" for block in report["blocks"])


def test_a_missing_extra_is_reported_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the packages of the extra `voice` only `--only lm` works."""
    monkeypatch.setattr("mosslive.cli.synth.find_spec", lambda name: None)
    result = synth(tmp_path / "out")
    assert "pip install 'mosslive[voice]'" in str(result.exception)
    assert list(tmp_path.iterdir()) == []
    assert synth(tmp_path / "out", "--only", "lm").exit_code == 0


def test_damaged_codec_is_reported(tmp_path: Path) -> None:
    """A truncated weight file is one fault; the other parts are still checked."""
    assert synth(tmp_path, "--only", "codec").exit_code == 0
    path = tmp_path / "codec" / "flow" / "hift.pt"
    path.write_bytes(path.read_bytes()[:1000])
    result = CliRunner().invoke(app, ["inspect", str(tmp_path / "codec")])
    assert result.exit_code == 1
    assert "HiFT vocoder: truncated shards" in " ".join(result.output.split())


def test_existing_output(tmp_path: Path) -> None:
    """An existing output raises and stays unchanged."""
    (tmp_path / "lm").mkdir()
    result = synth(tmp_path)
    assert isinstance(result.exception, FolderExists)
    assert list((tmp_path / "lm").iterdir()) == []


def test_existing_output_prints_one_line(tmp_path: Path) -> None:
    """For an existing output the command prints one line and exits with code 1."""
    (tmp_path / "lm").mkdir()
    assert_one_sentence(console("synth", tmp_path), tmp_path / "lm", "exists already")
    assert [path.name for path in tmp_path.iterdir()] == ["lm"]


def test_output_that_is_a_file(tmp_path: Path) -> None:
    """A file in place of the output folder gives one line, no traceback."""
    path = tmp_path / "file"
    path.write_text("mine")
    assert_one_sentence(console("synth", path), path)
    assert path.read_text() == "mine"


def test_vocabulary_file_that_does_not_exist(tmp_path: Path) -> None:
    """A bad `--vocab` file gives one line, and nothing is written."""
    missing = tmp_path / "ranks"
    done = console("synth", tmp_path / "out", "--vocab", missing)
    assert_one_sentence(done, missing, "not a tiktoken ranks file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [["--size", "huge"], ["--seed", "-1"], ["--seed", "x"], ["--sise", "nano"]]
)
def test_bad_options(tmp_path: Path, arguments: list[str]) -> None:
    """Bad options exit before anything is written."""
    result = synth(tmp_path / "out", *arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.stderr
    assert list(tmp_path.iterdir()) == []
