"""The benchmark of the CPU step prints no unverified time."""

import json
from pathlib import Path

import pytest
from torch import Tensor
from typer.testing import CliRunner

from mosslive.bench import reference
from mosslive.bench.lm.step import measure_step
from mosslive.bench.verified import NotVerified
from mosslive.cli.app import app


def test_last_line_is_json_with_its_conditions(nano_folder: Path) -> None:
    """The last line is JSON with the conditions; the ratio is that of the two medians."""
    arguments = ["bench", "step", "--model", str(nano_folder), "--context", "40", "--steps", "10"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    last = json.loads(result.stdout.splitlines()[-1])
    assert last["context_rows"] == 40
    assert last["dtype"] == "float32"
    assert last["ratio"] == pytest.approx(last["step_ms"] / last["products_ms"])
    assert 0 <= last["logit_error"] <= 1e-4


def test_a_wrong_output_gets_no_number(nano_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An output that differs from the reference raises `NotVerified`."""
    honest = reference.ReferenceModel.logits

    def shifted(self: reference.ReferenceModel, rows: Tensor) -> tuple[Tensor, Tensor]:
        text, audio = honest(self, rows)
        return text, audio.roll(1, dims=1)

    monkeypatch.setattr(reference.ReferenceModel, "logits", shifted)
    with pytest.raises(NotVerified, match="differ from the reference"):
        measure_step(nano_folder, context=20, steps=10, dtype="float32")
