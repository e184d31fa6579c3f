"""Small models, built once per process, and what every test may use.

`nano_folder` is read-only for tests; copy it (`nano_copy`) to damage it.
"""

import os
import shutil
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    # Before any kernel is defined: Triton then runs kernels on CPU tensors, slowly but truly.
    os.environ.setdefault("TRITON_INTERPRET", "1")

from mosslive import LanguageModel, load_lm
from mosslive.checkpoint import synthesise
from mosslive.codec.flow_step import FlowStep
from mosslive.codec.hift.stream import HiftStream


def pytest_configure() -> None:
    # The models are tiny: one thread computes them in a fraction of the time that several need to
    # wake each other, most of all on a busy machine.
    torch.set_num_threads(1)


_RECORDED = {FlowStep: FlowStep._on_cpu, HiftStream: HiftStream._on_cpu}


def _flow_as_written(step: FlowStep, *given: torch.Tensor) -> torch.Tensor:
    return step._compute(*given, *step._memory)


_AS_WRITTEN = {FlowStep: _flow_as_written, HiftStream: HiftStream._compute}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A codec's steps are recorded in tests marked `recorded` alone, which hold recordings to what
    is written: to record takes seconds for each of the hundreds of codecs that others make."""
    chosen = _RECORDED if item.get_closest_marker("recorded") else _AS_WRITTEN
    for kind, form in chosen.items():
        kind._on_cpu = form  # type: ignore[attr-defined]
    torch.manual_seed(0)  # for fixtures; see below


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """What a test draws without a generator of its own does not depend on which tests and fixtures
    came before it: with several processes that is chance."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def nano_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthesise(tmp_path_factory.mktemp("nano"), "nano", seed=1)


@pytest.fixture(scope="session")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthesise(tmp_path_factory.mktemp("small"), "small", seed=1)


@pytest.fixture(scope="session")
def nano_lm(nano_folder: Path) -> LanguageModel:
    """Shared: a test must leave all pages free, as it found them."""
    return load_lm(nano_folder)


@pytest.fixture
def nano_copy(nano_folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(nano_folder, tmp_path / "lm")
