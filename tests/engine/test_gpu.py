"""The same language model on a GPU: the definition must not depend on the device."""

from pathlib import Path

import pytest
import torch

from mosslive import DRIVER_SYSTEM, LanguageModel, Sampling, Turn, load_lm
from mosslive.rows import ReplyKind

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU on this machine"),
]


@pytest.fixture(scope="module")
def gpu_lm(nano_folder: Path) -> LanguageModel:
    return load_lm(nano_folder, device="cuda")


def prompt(lm: LanguageModel, reply: ReplyKind) -> torch.Tensor:
    turns = [Turn("system", text=DRIVER_SYSTEM[reply]), Turn("user", codes=range(40))]
    return lm.prompt(turns, reply=reply)


def test_float32_logits_equal_the_cpu(gpu_lm: LanguageModel, nano_lm: LanguageModel) -> None:
    """Logits differ only by the order of summation; TF32 must be off."""
    rows = prompt(nano_lm, "speech")
    for ours, wanted in zip(gpu_lm.forward(rows), nano_lm.forward(rows), strict=True):
        assert (ours.cpu() - wanted).abs().max() <= 1e-4 * wanted.abs().max()


@pytest.mark.parametrize("reply", ["speech", "text"])
@pytest.mark.parametrize(
    "sampling", [Sampling(greedy=True, max_new=60), Sampling.driver(seed=11, max_new=60)]
)
def test_rows_equal_the_cpu(
    gpu_lm: LanguageModel, nano_lm: LanguageModel, reply: ReplyKind, sampling: Sampling
) -> None:
    """The same seed means the same reply on any device."""
    rows = prompt(nano_lm, reply)
    assert list(gpu_lm.generate(rows, sampling)) == list(nano_lm.generate(rows, sampling))
    assert gpu_lm.pool.free == gpu_lm.pool.total


def test_greedy_ties_take_the_lowest_index_on_the_gpu() -> None:
    """`torch.argmax` returns the first maximum, which greedy sampling depends on."""
    from mosslive.kernels import greedy

    logits = torch.zeros(151_680, device="cuda")
    logits[[140_000, 77_001, 77_000, 151_679]] = 2.0
    assert greedy(logits) == 77_000
    assert greedy(torch.zeros(16_385, device="cuda")) == 0
