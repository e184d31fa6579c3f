"""Engines of the nano model, built once per process; copy one (`engine_copy`) to damage it."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from mosslive.build import Fp8Options, build_engine
from mosslive.checkpoint import Checkpoint

CPU = torch.device("cpu")


@pytest.fixture(scope="session")
def bf16_engine(nano_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "bf16"
    return build_engine(nano_folder, out, CPU, shard_bytes=300_000).folder


@pytest.fixture(scope="session")
def fp32_engine(nano_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "fp32"
    return build_engine(nano_folder, out, CPU, dtype="float32").folder


@pytest.fixture(scope="session")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spoken and a written reply. The synthetic conversations are much longer, and processors
    without bfloat16 need minutes for them."""
    codes, role = list(range(20)), "assistant"
    spoken = [{"role": "user", "text": "Hello."}, {"role": role, "codes": codes}]
    written = [{"role": "user", "codes": codes}, {"role": role, "text": "Hello to you, too."}]
    path = tmp_path_factory.mktemp("calibration") / "turns.jsonl"
    path.write_text("".join(json.dumps({"turns": turns}) + "\n" for turns in (spoken, written)))
    return path


@pytest.fixture(scope="session")
def fp8_engine(
    nano_folder: Path, calibration: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("built") / "fp8"
    return build_engine(nano_folder, out, CPU, fp8=Fp8Options(calibration=calibration)).folder


@pytest.fixture
def engine_copy(bf16_engine: Path, tmp_path: Path) -> Path:
    return shutil.copytree(bf16_engine, tmp_path / "engine")


@pytest.fixture(scope="session")
def nano_checkpoint(nano_folder: Path) -> Checkpoint:
    return Checkpoint.open(nano_folder)
