"""Small models, built once per process, and fixtures for all tests.

Tests must not change `nano_folder`; `nano_copy` is a copy that a test may damage.
"""

import os
import shutil
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    # Must be set before any kernel is defined. Triton then interprets kernels on CPU tensors.
    os.environ.setdefault("TRITON_INTERPRET", "1")

from mosslive import LanguageModel, load_lm
from mosslive.checkpoint import synthesise


def pytest_configure() -> None:
    # The models are tiny. One thread computes them faster than several threads can wake each
    # other, above all on a busy machine.
    torch.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Random numbers of fixtures do not depend on which tests ran before."""
    torch.manual_seed(0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """Random numbers of a test without a generator of its own do not depend on which tests and
    fixtures ran before. With several processes that order is chance."""
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
