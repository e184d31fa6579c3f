"""Steps of one row as PyTorch runs them without Python, against the plain runner.

Guards: a recorded step has no length, position or page of its recording in it, leaves the same in
the pages, and gives the same rows.
"""

from pathlib import Path

import pytest
import torch

from mosslive import LanguageModel, load_lm
from mosslive.cache import PagePool
from mosslive.engine.load import load_stepper
from mosslive.engine.runner import Runner
from mosslive.engine.stepper import PlainStepper, Tails
from mosslive.engine.traced_runner import TracedRunner
from mosslive.kernels.trace import Traced
from tests.engine.models import (
    PROMPTS,
    SETTINGS,
    answer,
    fresh,
    prompt_rows,
    storage_tensors,
    wandering_lm,
)

wandering = pytest.fixture(scope="module")(wandering_lm)


def traced(lm: LanguageModel, page_size: int = 16) -> LanguageModel:
    runner = TracedRunner(lm.runner.decoder, PagePool(64, page_size), 512)
    return LanguageModel(runner, lm.tokenizer)


@pytest.fixture
def few_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many numbers each recorded call was given."""
    calls: list[int] = []
    plain = Traced.__call__

    def seen(self: Traced[torch.Tensor], *inputs: torch.Tensor) -> torch.Tensor:
        calls.append(len(inputs[0]))
        return plain(self, *inputs)

    monkeypatch.setattr(Traced, "__call__", seen)
    return calls


@pytest.mark.parametrize("tails", ["lazy", "both"])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_rows_are_those_of_the_plain_runner(
    wandering: LanguageModel, prompt: str, settings: str, tails: Tails
) -> None:
    rows, sampling = prompt_rows(wandering, prompt), SETTINGS[settings]
    wanted = answer(fresh(wandering, page_size=3), rows, sampling, tails=tails)
    assert answer(traced(wandering, page_size=3), rows, sampling, tails=tails) == wanted


def test_halves_too(nano_folder: Path) -> None:
    """Guards: what a recording fixes is no type of ours."""
    lm = load_lm(nano_folder, dtype="bfloat16")
    rows, sampling = prompt_rows(lm, "mixed to speech"), SETTINGS["greedy"]
    assert answer(traced(lm), rows, sampling) == answer(fresh(lm), rows, sampling)


def test_what_lies_in_the_pages_is_the_same(wandering: LanguageModel, few_calls: list[int]) -> None:
    """Guards: what a recorded step writes is written, though nothing in it reads that again."""
    rows, sampling = prompt_rows(wandering, "mixed to speech"), SETTINGS["greedy"]
    plain, recorded = fresh(wandering), traced(wandering)
    for tensor in storage_tensors(recorded.runner):
        tensor.fill_(float("nan"))
    generations = [lm.generate(rows, sampling) for lm in (plain, recorded)]
    for _ in range(12):
        assert len({next(generation) for generation in generations}) == 1
    assert len(few_calls) > 12
    assert len(set(few_calls)) > 10, "each step sees one row more"
    held = slice(0, len(rows) // 16 + 1)
    pairs = zip(storage_tensors(plain.runner), storage_tensors(recorded.runner), strict=True)
    for wanted, found in pairs:
        torch.testing.assert_close(found[held], wanted[held], equal_nan=True)


def test_an_engine_on_a_cpu_has_it(nano_folder: Path) -> None:
    stepper, _ = load_stepper(nano_folder, "cpu")
    assert isinstance(stepper, PlainStepper)
    assert isinstance(stepper.runner, TracedRunner)
    assert isinstance(stepper.runner, Runner)
