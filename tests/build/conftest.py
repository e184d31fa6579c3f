"""Engines of the nano model, built once per process; copy one (`engine_copy`) to damage it."""

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
def fp8_engine(nano_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "fp8"
    return build_engine(nano_folder, out, CPU, fp8=Fp8Options(sequences=4)).folder


@pytest.fixture
def engine_copy(bf16_engine: Path, tmp_path: Path) -> Path:
    return shutil.copytree(bf16_engine, tmp_path / "engine")


@pytest.fixture(scope="session")
def nano_checkpoint(nano_folder: Path) -> Checkpoint:
    return Checkpoint.open(nano_folder)
