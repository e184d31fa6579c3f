"""`mosslive inspect`: correct numbers, complete lists of faults, exit codes."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mosslive.checkpoint import CheckpointError
from mosslive.cli.app import app
from mosslive.config import Sampling
from tests.checkpoint.test_faults import HEADER_FAULTS, Q_NORM, Damage, poison, put
from tests.checkpoint.test_inventory import all_tensors
from tests.cli.console import console, installed

WIDE = {"COLUMNS": "200"}  # no table is narrowed, no line of these tests is broken
BLOCKS = {  # block → tensors in the nano model
    "text embedding": 1,
    "audio embedding": 1,
    "trunk, 3 layers": 33,
    "text tail, 2 layers": 22,
    "audio tail, 2 layers": 22,
    "final norms": 2,
    "text head": 1,
    "audio head": 1,
}


def inspect(*arguments: str | Path) -> Result:
    return CliRunner().invoke(
        app, ["inspect", *map(str, arguments)], env=WIDE, catch_exceptions=False
    )


def report(*arguments: str | Path) -> dict[str, Any]:
    result = inspect(*arguments, "--json")
    document: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if document["usable"] else 1)
    return document


def assert_one_sentence(done: subprocess.CompletedProcess[str], *said: str | Path) -> None:
    """Asserts exit code 1 and one line on standard error, no traceback."""
    (line,) = done.stderr.splitlines()
    assert line.startswith("mosslive: ")
    assert [part for part in map(str, said) if part not in line] == []
    assert (done.returncode, done.stdout) == (1, "")


def test_table(nano_folder: Path) -> None:
    """The table has one line per block and a line of totals."""
    result = inspect(nano_folder)
    assert result.exit_code == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
    tensors = all_tensors(nano_folder)
    count = sum(tensor.numel() for tensor in tensors.values())
    assert [line[:2] for line in cells[:-1]] == [[b, str(n)] for b, n in BLOCKS.items()]
    assert {(line[4], line[5]) for line in cells[:-1]} == {("BF16", "ok")}
    assert cells[0][2:4] == ["40,960", "81,920"]
    assert cells[-1] == ["total", "83", f"{count:,}", f"{2 * count:,}", "", "usable"]
    assert lines[0].strip() == str(nano_folder)


def test_json(nano_folder: Path) -> None:
    """The JSON totals equal those of the files and the sums of the blocks."""
    document = report(nano_folder)
    tensors = all_tensors(nano_folder)
    blocks = document.pop("blocks")
    assert document.pop("capabilities")["context_rows"] is None  # a published folder states none
    assert document == {
        "folder": str(nano_folder),
        "tensors": len(tensors),
        "expected_tensors": len(tensors),
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
        "bytes": sum(tensor.nbytes for tensor in tensors.values()),
        "values_read": True,
        "sampling": vars(Sampling.driver()),
        "faults": [],
        "usable": True,
    }
    assert {block["block"]: block["tensors"] for block in blocks} == BLOCKS
    for name in ("tensors", "expected_tensors", "parameters", "bytes"):
        assert sum(block[name] for block in blocks) == document[name]
    assert {(block["dtype"], block["verdict"]) for block in blocks} == {("BF16", "ok")}


@pytest.mark.parametrize(("damage", "fault", "said"), HEADER_FAULTS)
def test_damaged_folder(
    nano_copy: Path, damage: Damage, fault: type[CheckpointError], said: str
) -> None:
    """Every fault gives exit code 1 and is listed with its kind, names and message."""
    names = damage(nano_copy)
    document = report(nano_copy)
    (found,) = document["faults"]
    assert found["kind"] == fault.__name__
    assert sorted(found["names"]) == sorted(names)
    assert said in found["message"]
    assert not document["values_read"]  # bytes behind bad headers were not taken for values


def test_damaged_folder_as_table(nano_copy: Path) -> None:
    """The table marks the faulty block and the total; standard error gives the reason."""
    put(nano_copy, Q_NORM, None)
    result = inspect(nano_copy)
    assert result.exit_code == 1
    at_fault = [line for line in result.stdout.splitlines() if "1 at fault" in line]
    assert len(at_fault) == 1
    assert "trunk, 3 layers" in at_fault[0]
    assert "not usable" in result.stdout
    assert Q_NORM in result.stderr
    assert "the index lists missing files or tensors" in result.stderr


def test_several_faults_are_all_listed(nano_copy: Path) -> None:
    """All faults are listed at once."""
    put(nano_copy, Q_NORM, None)
    (nano_copy / "model-00009-of-00009.safetensors").write_bytes(b"")
    kinds = {fault["kind"]: fault["names"] for fault in report(nano_copy)["faults"]}
    assert kinds == {
        "DanglingIndex": [Q_NORM],
        "UnexpectedTensors": ["model-00009-of-00009.safetensors"],
    }


def test_bad_values(nano_copy: Path) -> None:
    """Values are read by default, and NaN is a fault."""
    names = poison(float("nan"))(nano_copy)
    document = report(nano_copy)
    (found,) = document["faults"]
    assert found["kind"] == "NonFiniteValues"
    assert sorted(found["names"]) == sorted(names)
    verdicts = {block["block"]: block["verdict"] for block in document["blocks"]}
    assert verdicts["trunk, 3 layers"] == verdicts["text tail, 2 layers"] == "1 at fault"
    assert verdicts["audio tail, 2 layers"] == "ok"
    assert document["values_read"]


def test_no_values(nano_copy: Path) -> None:
    """`--no-values` reads headers only and says so."""
    poison(float("nan"))(nano_copy)
    document = report(nano_copy, "--no-values")
    assert (document["usable"], document["values_read"]) == (True, False)
    result = inspect(nano_copy, "--no-values")
    assert result.exit_code == 0
    assert "The values were not read (--no-values)" in result.stderr


def test_bad_generation_config(nano_copy: Path) -> None:
    """An unsupported generation_config.json makes the folder unusable."""
    (nano_copy / "generation_config.json").write_text('{"num_beams": 3}')
    document = report(nano_copy)
    assert not document["usable"]
    assert "num_beams is 3" in document["faults"][0]["message"]


def test_parent_folder(nano_copy: Path) -> None:
    """The parent folder, as given to `mosslive synth`, is accepted."""
    assert report(nano_copy.parent) == report(nano_copy)


@pytest.mark.parametrize("name", ["[x]", "[red]", "[/x]"])
def test_folder_name_is_printed_as_it_is(
    nano_copy: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Square brackets in a path are printed as they are, not as markup."""
    # Relative: a title is broken where its table ends, and the folders of tests can be long.
    monkeypatch.chdir(nano_copy.parent)
    folder = Path("models", name)
    folder.parent.mkdir(parents=True)
    nano_copy.rename(folder)
    result = inspect(folder, "--no-values")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].strip() == str(folder)


def test_folder_that_does_not_exist(tmp_path: Path) -> None:
    """A wrong path gives one line and exit code 1."""
    missing = tmp_path / "nowhere"
    assert_one_sentence(console("inspect", missing), missing, "no such folder")


def test_bad_config(nano_copy: Path) -> None:
    """A bad config gives one line with field, value and what is allowed."""
    path = nano_copy / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"channels": 9}))
    assert_one_sentence(console("inspect", nano_copy), path, "channels is 9; allowed: 2")


def test_exit_code_of_a_damaged_folder(nano_copy: Path) -> None:
    """With `--json` faults go to standard output alone, without a traceback."""
    (nano_copy / "model-00002-of-00004.safetensors").unlink()
    done = installed("inspect", nano_copy, "--json")
    assert (done.returncode, done.stderr) == (1, "")
    assert [fault["kind"] for fault in json.loads(done.stdout)["faults"]] == ["DanglingIndex"]


@pytest.mark.parametrize("content", [None, "{}"], ids=["missing", "empty"])
def test_a_folder_without_its_tokenizer_is_not_usable(nano_copy: Path, content: str | None) -> None:
    """A tokenizer that `load_lm` rejects makes the folder unusable."""
    path = nano_copy / "tokenizer.json"
    path.unlink() if content is None else path.write_text(content)
    result = CliRunner().invoke(app, ["inspect", str(nano_copy), "--json"])
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert not report["usable"]
    assert "tokenizer.json" in report["faults"][0]["message"]
