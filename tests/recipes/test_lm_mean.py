"""The mean of models is between them; models that do not fit are not mixed."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from recipes.bundled.budget import load_carried, save_carried
from recipes.bundled.lm_mean import mean_of
from recipes.bundled.sizes import SIZES_FILE

pytestmark = pytest.mark.training

Made = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    def make(name: str, lm: list[float] | None, encoder: float = 1.0) -> Path:
        folder = tmp_path / name
        save_carried(folder, "encoder", {"codebook.weight": torch.full((2, 2), encoder)})
        if lm is not None:
            save_carried(folder, "lm", {"w": torch.tensor(lm), "v": torch.ones(1)})
        (folder / SIZES_FILE).write_text(json.dumps({"size": "bundled", "hift": ""}))
        return folder

    return make


def test_mean_lies_between_by_its_shares(made: Made, tmp_path: Path) -> None:
    """Shares are relative weights; the default is equal weights."""
    folders = [made("a", [0.0, 8.0]), made("b", [4.0, 0.0])]
    for name, shares, wanted in (
        ("alike", [], [2.0, 4.0]),
        ("shared", [1.0, 3.0], [3.0, 2.0]),
        ("same", [0.25, 0.75], [3.0, 2.0]),
    ):
        mean_of(tmp_path / name, folders, shares)
        held = load_carried(tmp_path / name, "lm")
        assert held is not None
        assert torch.equal(held["w"], torch.tensor(wanted))
        assert torch.equal(held["v"], torch.ones(1))
        assert {path.name for path in (tmp_path / name).iterdir()} == {
            path.name for path in folders[0].iterdir()
        }


def test_mean_of_a_model_with_itself_is_the_model(made: Made, tmp_path: Path) -> None:
    one = made("a", [0.1, -3.3])
    mean_of(tmp_path / "out", [one, one, one])
    before, after = load_carried(one, "lm"), load_carried(tmp_path / "out", "lm")
    assert before is not None
    assert after is not None
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_what_does_not_belong_together_is_refused(made: Made, tmp_path: Path) -> None:
    """Another encoder, other sizes or bad shares fail before anything is written."""
    one, other = made("a", [1.0]), made("b", [2.0])
    out = tmp_path / "out"
    for folders, shares, message in (
        ([one], [], "1 model; give two or more"),
        ([one, other], [1.0], "1 shares of 2 models"),
        ([one, other], [1.0, 0.0], "a share of 0; allowed: finite, above 0"),
        ([one, other], [1.0, float("nan")], "a share of nan"),
        ([one, other], [float("inf"), 1.0], "a share of inf"),
        ([one, made("deaf", [1.0], 2.0)], [], "another encoder"),
        ([one, made("large", [1.0, 1.0])], [], "another size"),
        ([one, made("mute", None)], [], "no language model"),
    ):
        with pytest.raises(ValueError, match=message):
            mean_of(out, folders, shares)
    assert not out.exists()


def test_damaged_folders_are_named(made: Made, tmp_path: Path) -> None:
    """Missing or truncated files fail with the name of their folder and leave no partial folder."""
    one, cut, bare = made("a", [1.0]), made("cut", [1.0]), made("bare", [1.0])
    deaf = made("deaf", [1.0])
    for file in (cut / "lm.0.pt", deaf / "encoder.0.pt"):
        file.write_bytes(file.read_bytes()[:100])
    (bare / SIZES_FILE).unlink()
    for folders, message in (
        ([one, cut], r"cut/lm\.0\.pt cannot be read"),
        ([one, deaf], r"deaf/encoder\.0\.pt cannot be read"),
        ([bare, one], r"no sizes\.json"),
    ):
        with pytest.raises(ValueError, match=message):
            mean_of(tmp_path / "deep" / "out", folders)
    assert not (tmp_path / "deep").exists()


def test_command_makes_a_folder_once(made: Made, tmp_path: Path) -> None:
    """The command takes shares after the folders and does not overwrite a folder."""
    out = tmp_path / "out"

    def run(*given: str | Path) -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [sys.executable, "-m", "recipes.bundled.lm_mean", out, *given]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    one, other = made("a", [0.0]), made("b", [4.0])
    assert "two or more" in run(one).stderr
    assert not out.exists()
    assert run(one, other, "--shares", "0.75", "0.25").returncode == 0
    held = load_carried(out, "lm")
    assert held is not None
    assert held["w"].tolist() == [1.0]
    again = run(one, other)
    assert again.returncode == 2
    assert "out" in again.stderr
    assert torch.equal((load_carried(out, "lm") or {})["w"], held["w"])
