"""Small models, built once per process, and fixtures for all tests.

Tests must not change the folders; `nano_copy` is a copy that a test may damage.
"""

import gc
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    # Must be set before any kernel is defined. Triton then interprets kernels on CPU tensors.
    os.environ.setdefault("TRITON_INTERPRET", "1")

from mosslive import LanguageModel, load_lm
from mosslive.checkpoint import synthesise
from mosslive.checkpoint.bigvgan import GENERATOR_FILE
from mosslive.codec import Codec, Sound, Voice, load_codec
from mosslive.codec.bigvgan import BigVgan
from mosslive.codec.random_networks import CODEC_SIZES, bigvgan_config, random_tensors
from mosslive.codec.synth import synthesise_bigvgan
from mosslive.config.bigvgan import BigVganConfig
from mosslive.config.published import MOSS_SPEECH
from tests.codec.conftest import quick_codec, speech
from tests.hub_server import LARGE_BYTES, Hub, serving_hub
from tests.kernels.interpreter import speed_up


def pytest_configure() -> None:
    # The models are tiny. One thread computes them faster than several threads can wake each
    # other, above all on a busy machine.
    torch.set_num_threads(1)
    if os.environ.get("TRITON_INTERPRET") == "1":
        speed_up()


def pytest_collection_finish() -> None:
    """Takes what the imports made out of every later garbage collection: a third of a second
    each."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # so that all is freed at the end; some packages report objects that are left


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


@pytest.fixture(scope="session")
def codec_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A codec in the published layout, and a BigVGAN of the published mel."""
    out = tmp_path_factory.mktemp("codec")
    synthesise_bigvgan(out, "nano", seed=1)
    return quick_codec(out, seed=1)


@pytest.fixture(scope="session")
def codec(codec_folder: Path) -> Codec:
    """Runs every step in Python. Recording the steps takes seconds for each kind of stream."""
    return load_codec(codec_folder, trace_cpu_steps=False)


@pytest.fixture
def untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every codec runs its steps in Python, as `codec` does."""

    def plain(function: Callable[..., object], *_: Tensor) -> Callable[..., object]:
        return function

    for place in ("mosslive.codec.flow_step", "mosslive.codec.hift.stream"):
        monkeypatch.setattr(f"{place}.Traced", plain)


@pytest.fixture(scope="session")
def flow_bigvgan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BigVGAN for the flow's mel, with two layers per block instead of the published nine."""
    blocks = {"resblock_kernel_sizes": [3, 5], "resblock_dilation_sizes": [[1], [3]]}
    config = bigvgan_config(CODEC_SIZES["nano"], "flow") | blocks
    with torch.device("meta"):
        network = BigVgan(BigVganConfig.from_dict(config))
    out = tmp_path_factory.mktemp("vocoder")
    torch.save({"generator": random_tensors(network, "flow")}, out / GENERATOR_FILE)
    (out / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return out


@pytest.fixture(scope="session")
def voice(codec: Codec) -> Voice:
    return codec.voice(Sound(torch.from_numpy(speech(2.0, 24_000)), 24_000))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nano_folder: Path) -> Iterator[Hub]:
    """A hub with the nano model as `fnlp/MOSS-Speech`, and an empty cache."""
    from huggingface_hub import constants

    with serving_hub() as served:
        template = f"{served.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", served.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
        # Between attempts.
        monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)
        monkeypatch.setenv("MOSSLIVE_CACHE", str(tmp_path / "mosslive"))
        monkeypatch.chdir(tmp_path)
        source = shutil.copytree(nano_folder, tmp_path / "published")
        (source / "README.md").write_text("a card")
        (source / "pytorch_model.bin").write_bytes(bytes(LARGE_BYTES))
        served.add(MOSS_SPEECH, source)
        yield served
