"""`mosslive build`, `verify` and `inspect` on engine folders: output and exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mosslive.build import verify as verify_module
from mosslive.build.verify import Limits
from mosslive.checkpoint import CheckpointError, faults
from mosslive.checkpoint.engine_folder import open_engine
from mosslive.checkpoint.layout import CAPABILITIES_FILE, GENERATION_FILE
from mosslive.cli.app import app
from mosslive.errors import MossliveError

WIDE = {"COLUMNS": "200"}  # no table is narrowed, no line of these tests is broken


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], env=WIDE, catch_exceptions=False)


def document(*arguments: str | Path, exit_code: int = 0) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == exit_code
    (line,) = result.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.fixture(scope="module")
def engine(nano_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("engines") / "plain"
    assert run("build", nano_folder, out).exit_code == 0
    return out


def test_build_verify_inspect(nano_folder: Path, tmp_path: Path) -> None:
    """`build`, `verify` and `inspect` work one after another and print their tables."""
    out = tmp_path / "new" / "engine"
    built = run("build", nano_folder.parent, out)  # the parent, as `mosslive synth` lays it out
    assert built.exit_code == 0
    assert "probes compared with float32, bfloat16" in built.stdout
    assert "900.4 kB of weights" in built.stderr
    verified = run("verify", out)
    assert verified.exit_code == 0
    heads = [line for line in verified.stdout.splitlines() if "passed" in line]
    assert [line.split("│")[1].strip() for line in heads] == ["text", "audio"]
    inspected = run("inspect", out)
    assert inspected.exit_code == 0
    assert "usable" in inspected.stdout
    assert "trunk layers" in inspected.stdout
    assert "default sampling: greedy False" in inspected.stdout


def test_fp8_report(nano_folder: Path, tmp_path: Path) -> None:
    """`build --fp8` prints ratios by layer, kept matrices, heads and replies without an end."""
    calibration = tmp_path / "rows.jsonl"  # the default sequences are long and take seconds
    calibration.write_text(6 * "[[1, 2], [3, 4], [5, 6], [7, 8]]\n", encoding="utf-8")
    options = ("--fp8", "trunk", "--calibration", calibration, "--keep", "trunk.1.o")
    replies = ("--sequences", "4", "--replies", "2", "--reply-rows", "12")
    result = run("build", nano_folder, tmp_path / "out", *options, *replies)
    assert result.exit_code == 0
    assert "fp8 on 4 sequences" in result.stdout
    rows = [line.split("│")[1:-1] for line in result.stdout.splitlines() if "│ trunk." in line]
    assert [row[0].strip() for row in rows] == ["trunk.0", "trunk.1", "trunk.2"]
    marked = [(n, m) for n, row in enumerate(rows) for m, cell in enumerate(row) if "*" in cell]
    assert marked == [(1, 2)]
    assert "replies without an end: " in result.stdout
    assert "probes compared with float32, fp8" in result.stdout


def test_fp8_json(nano_folder: Path, tmp_path: Path) -> None:
    """`--json` prints one line with everything the tables show."""
    calibration = tmp_path / "rows.jsonl"
    calibration.write_text("[[1, 2], [3, 4], [5, 6]]\n", encoding="utf-8")
    options = ("--fp8", "trunk", "--calibration", calibration, "--keep-below", "99")
    replies = ("--replies", "1", "--reply-rows", "3")
    found = document("build", nano_folder, tmp_path / "out", *options, *replies)
    assert found["folder"] == str(tmp_path / "out")
    assert found["verdict"]["passed"]
    assert len(found["fp8"]["kept"]) == 12
    assert found["fp8"]["sequences"] == 1
    assert found["fp8"]["free_running"]["replies"] == 1
    assert set(found["fp8"]["heads"]) == {"text"}  # no row of these is followed by speech
    settings = open_engine(tmp_path / "out").manifest.settings["fp8"]
    assert settings["calibration"] == str(calibration)


def test_verify_json_and_exit_code(engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify` exits with 1 and `passed` false if the logits differ from the source's."""
    good = document("verify", engine)
    assert (good["passed"], good["device"], good["precision"]) == (True, "cpu", "bfloat16")
    assert {"error", "cosine", "argmax_agreement"} <= good["heads"]["audio"].keys()
    monkeypatch.setitem(verify_module.LIMITS, "bfloat16", Limits(error=1e-9, cosine=1))
    assert not document("verify", engine, exit_code=1)["passed"]
    result = run("verify", engine)
    assert result.exit_code == 1
    assert "FAILED" in result.stderr


def test_verify_reads_every_byte(engine: Path) -> None:
    """A flipped bit anywhere in a weight file is found by the file's hash."""
    (path,) = engine.glob("weights-*")
    data = bytearray(path.read_bytes())
    data[-1] ^= 128
    intact = path.read_bytes()
    path.write_bytes(data)
    try:
        with pytest.raises(faults.DamagedEngine, match="SHA-256"):
            run("verify", engine)
        report = document("inspect", engine, exit_code=1)
        assert [fault["kind"] for fault in report["faults"]] == ["DamagedEngine"]
        assert document("inspect", engine, "--no-values")["usable"]
    finally:
        path.write_bytes(intact)


def test_inspect_of_half_an_engine(engine: Path, tmp_path: Path) -> None:
    """An unfinished copy is recognised as an engine folder and reported as unfinished."""
    (path,) = engine.glob("weights-*")
    (tmp_path / path.name).write_bytes(path.read_bytes())
    report = document("inspect", tmp_path, exit_code=1)
    (fault,) = report["faults"]
    assert fault["kind"] == "NotAnEngine"
    assert "was not finished" in fault["message"]


def test_inspect_shows_the_sampling(nano_copy: Path, tmp_path: Path) -> None:
    """An engine folder has its source's generation_config.json and reports the same sampling."""
    stated = {"do_sample": False, "repetition_penalty": 1.25}
    (nano_copy / GENERATION_FILE).write_text(json.dumps(stated))
    engine = tmp_path / "engine"
    assert run("build", nano_copy, engine).exit_code == 0
    sampling = document("inspect", engine)["sampling"]
    assert (sampling["greedy"], sampling["repetition_penalty"]) == (True, 1.25)
    assert sampling == document("inspect", nano_copy)["sampling"]


def test_inspect_shows_the_capabilities(nano_copy: Path, tmp_path: Path) -> None:
    """An engine carries its source's capabilities.json; a bad one makes a folder unusable."""
    file = nano_copy / CAPABILITIES_FILE
    file.write_text('{"context_rows": 300, "voices": false}')
    engine = tmp_path / "engine"
    assert run("build", nano_copy, engine).exit_code == 0
    stated = document("inspect", engine)["capabilities"]
    assert (stated["context_rows"], stated["voices"]) == (300, False)
    assert stated == document("inspect", nano_copy)["capabilities"]
    assert "context of 300 rows" in run("inspect", nano_copy).output
    file.write_text('{"context": 300}')
    (fault,) = document("inspect", nano_copy, exit_code=1)["faults"]
    assert fault["names"] == [CAPABILITIES_FILE]


def test_inspect_of_an_engine_with_unsupported_sampling(nano_copy: Path, tmp_path: Path) -> None:
    """An engine folder with an unsupported generation_config.json is reported as unusable."""
    (nano_copy / GENERATION_FILE).write_text('{"num_beams": 3}')
    assert run("build", nano_copy, tmp_path / "engine").exit_code == 0
    (fault,) = document("inspect", tmp_path / "engine", exit_code=1)["faults"]
    assert fault["names"] == [GENERATION_FILE]
    assert "num_beams is 3" in fault["message"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--keep", "trunk.0"), "need --fp8 trunk"),
        (("--fp8", "all"), "'all' is not"),
        (("--fp8", "trunk", "--sequences", "0"), "greater than or equal to 1"),
        (("--dtype", "float16"), "'float16' is not"),
    ],
)
def test_bad_options(
    nano_folder: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    """Bad options exit with code 2 and the reason, and write nothing."""
    result = run("build", nano_folder, tmp_path / "out", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_errors_are_ours(nano_folder: Path, engine: Path, tmp_path: Path) -> None:
    """Bad input raises a `MossliveError`, which `main` prints as one line."""
    with pytest.raises(CheckpointError, match="not an engine folder"):
        run("verify", nano_folder)
    with pytest.raises(MossliveError, match="exists already"):
        run("build", nano_folder, engine)
    with pytest.raises(MossliveError, match="Unknown device 'tpu'; use cpu or cuda"):
        run("verify", engine, "--device", "tpu")
    with pytest.raises(MossliveError, match=r"keep is 'trunk\.7'"):
        run("build", nano_folder, tmp_path / "out", "--fp8", "trunk", "--keep", "trunk.7")
