"""The shipped model can be carried out of the package and exported again without loss."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mosslive.checkpoint.layout import SINGLE_FILE
from mosslive.config.folders import LM_FOLDER, find_parts
from recipes.bundled.budget import load_carried, save_carried
from recipes.bundled.lm_stored import checkpoint_tensors, trained_tensors

pytestmark = pytest.mark.training


def test_shipped_checkpoint_survives_being_carried(tmp_path: Path) -> None:
    """Every tensor of the shipped model survives carrying, bit by bit."""
    checkpoint = load_file(find_parts("bundled").model / LM_FOLDER / SINGLE_FILE)
    save_carried(tmp_path, "lm", trained_tensors(checkpoint))
    again = checkpoint_tensors(load_carried(tmp_path, "lm") or {})
    assert again.keys() == checkpoint.keys()
    for name, tensor in checkpoint.items():
        assert again[name].dtype == tensor.dtype
        assert torch.equal(again[name].float(), tensor.float()), name


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("carry", "nowhere", "OUT"), "not a model of the recipe"),
        (("export", "nowhere", "OUT"), "no sizes.json"),
        (("export", "nowhere", "OUT", "--codec-of", "x", "--one-flow"), "no --one-flow"),
    ],
)
def test_commands_refuse_what_is_not_there(
    tmp_path: Path, command: tuple[str, ...], message: str
) -> None:
    name, *rest = (str(tmp_path / word) if word in ("nowhere", "OUT") else word for word in command)
    found = subprocess.run(
        [sys.executable, "-m", f"recipes.bundled.{name}", *rest], capture_output=True, text=True
    )
    assert found.returncode == 2
    assert message in found.stderr
    assert not list(tmp_path.iterdir())
