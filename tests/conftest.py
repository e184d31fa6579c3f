"""Shared fixtures: small models, built once per process.

Tests must not change `nano_folder`; `nano_copy` is a copy that a test may damage.
"""

import os
import shutil
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    # Set before any kernel is defined: Triton then runs kernels on CPU tensors.
    os.environ.setdefault("TRITON_INTERPRET", "1")

from mosslive import LanguageModel, load_lm
from mosslive.checkpoint import synthesise
from mosslive.codec.flow_step import FlowStep
from mosslive.codec.hift_stream import HiftStream


def pytest_configure() -> None:
    # The models are tiny: one thread is faster than several, which would mostly wait for each
    # other, above all on a busy machine.
    torch.set_num_threads(1)


_RECORDED = {FlowStep: FlowStep._on_cpu, HiftStream: HiftStream._on_cpu}


def _flow_as_written(step: FlowStep, *given: torch.Tensor) -> torch.Tensor:
    return step._compute(*given, *step._memory)


_AS_WRITTEN = {FlowStep: _flow_as_written, HiftStream: HiftStream._compute}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Records a codec's steps only in tests marked `recorded`, which compare recordings with direct
    runs. Recording takes seconds for each of the hundreds of codecs of the other tests."""
    chosen = _RECORDED if item.get_closest_marker("recorded") else _AS_WRITTEN
    for kind, form in chosen.items():
        kind._on_cpu = form  # type: ignore[attr-defined]
    torch.manual_seed(0)  # for fixtures; see below


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """Seeds PyTorch, so that the random numbers of a test do not depend on earlier tests, whose
    order is arbitrary with several processes."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def nano_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthesise(tmp_path_factory.mktemp("nano"), "nano", seed=1)


@pytest.fixture(scope="session")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthesise(tmp_path_factory.mktemp("small"), "small", seed=1)


@pytest.fixture(scope="session")
def nano_lm(nano_folder: Path) -> LanguageModel:
    """Shared by tests; each must free all its pages."""
    return load_lm(nano_folder)


@pytest.fixture
def nano_copy(nano_folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(nano_folder, tmp_path / "lm")
