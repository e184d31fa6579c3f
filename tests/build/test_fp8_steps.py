"""Steps of a float8 engine on a CPU, recorded and plain."""

from pathlib import Path

from mosslive import LanguageModel
from mosslive.cache import PagePool
from mosslive.engine.load import load_stepper
from mosslive.engine.stepper import PlainStepper
from mosslive.engine.traced_runner import TracedRunner
from tests.engine.models import SETTINGS, answer, fresh, prompt_rows


def test_recorded_steps_of_float8_give_the_same_rows(fp8_engine: Path) -> None:
    """A recorded step computes the input scales of each row anew, not those of the recording."""
    stepper, tokenizer = load_stepper(fp8_engine, "cpu")
    assert isinstance(stepper, PlainStepper)
    lm = LanguageModel(stepper.runner, tokenizer)
    recorded = LanguageModel(TracedRunner(lm.runner.decoder, PagePool(64, 16), 512), tokenizer)
    rows, sampling = prompt_rows(lm, "mixed to speech"), SETTINGS["greedy"]
    assert answer(recorded, rows, sampling) == answer(fresh(lm), rows, sampling)
