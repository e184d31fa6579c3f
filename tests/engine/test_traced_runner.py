"""`TracedRunner` against `Runner`: a trace contains no length, position or page of its recording,
writes the same pages, and gives the same rows."""

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
    switching_lm,
)

switching = pytest.fixture(scope="module")(switching_lm)


def traced(lm: LanguageModel, page_size: int = 16) -> LanguageModel:
    runner = TracedRunner(lm.runner.decoder, PagePool(64, page_size), 512)
    return LanguageModel(runner, lm.tokenizer)


@pytest.fixture
def traced_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by the length of the input of each traced call."""
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
    switching: LanguageModel, prompt: str, settings: str, tails: Tails
) -> None:
    """Replies with traced steps have the rows of replies with plain steps."""
    rows, sampling = prompt_rows(switching, prompt), SETTINGS[settings]
    wanted = answer(fresh(switching, page_size=3), rows, sampling, tails=tails)
    assert answer(traced(switching, page_size=3), rows, sampling, tails=tails) == wanted


def test_rows_are_the_same_in_bfloat16(nano_folder: Path) -> None:
    """A trace contains no fixed dtype."""
    lm = load_lm(nano_folder, dtype="bfloat16")
    rows, sampling = prompt_rows(lm, "mixed to speech"), SETTINGS["greedy"]
    assert answer(traced(lm), rows, sampling) == answer(fresh(lm), rows, sampling)


def test_the_pages_are_the_same(switching: LanguageModel, traced_calls: list[int]) -> None:
    """A trace keeps its writes to the pages, although nothing in it reads them again."""
    rows, sampling = prompt_rows(switching, "mixed to speech"), SETTINGS["greedy"]
    plain, recorded = fresh(switching), traced(switching)
    for tensor in storage_tensors(recorded.runner):
        tensor.fill_(float("nan"))
    generations = [lm.generate(rows, sampling) for lm in (plain, recorded)]
    for _ in range(12):
        assert len({next(generation) for generation in generations}) == 1
    assert len(traced_calls) > 12
    assert len(set(traced_calls)) > 10, "each step sees one row more"
    held = slice(0, len(rows) // 16 + 1)
    pairs = zip(storage_tensors(plain.runner), storage_tensors(recorded.runner), strict=True)
    for wanted, found in pairs:
        torch.testing.assert_close(found[held], wanted[held], equal_nan=True)


def test_an_engine_on_a_cpu_uses_it(nano_folder: Path) -> None:
    """`load_stepper` returns a `PlainStepper` on a `TracedRunner` for a CPU."""
    stepper, _ = load_stepper(nano_folder, "cpu")
    assert isinstance(stepper, PlainStepper)
    assert isinstance(stepper.runner, TracedRunner)
    assert isinstance(stepper.runner, Runner)
