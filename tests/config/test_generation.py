"""`generation_config.json` → `Sampling`: stated fields, defaults and errors."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive.config import ConfigError, Sampling
from mosslive.config.generation import sampling_from

DRIVER = Sampling.driver()


def test_absent_fields_keep_the_driver_settings() -> None:
    """Absent and null fields keep the driver's values, not the library's defaults."""
    assert sampling_from({}) == DRIVER
    silent = {"temperature": None, "do_sample": None, "eos_token_id": [3, 5], "pad_token_id": 0}
    assert sampling_from(silent | {"transformers_version": "4.57", "num_beams": 1}) == DRIVER


@settings(derandomize=True, deadline=None, max_examples=30)
@given(
    stated=st.fixed_dictionaries(
        {},
        optional={
            "temperature": st.floats(0.1, 2),
            "top_k": st.integers(0, 100),
            "top_p": st.floats(0.1, 1),
            "repetition_penalty": st.floats(0.5, 2),
            "max_new_tokens": st.integers(1, 2000),
            "min_new_tokens": st.integers(0, 100),
        },
    )
)
def test_stated_fields_are_used(stated: dict[str, Any]) -> None:
    """Each field of the file changes exactly one setting."""
    names = {"max_new_tokens": "max_new", "min_new_tokens": "min_new"}
    found = vars(sampling_from({"do_sample": True} | stated))
    wanted = vars(DRIVER) | {names.get(name, name): value for name, value in stated.items()}
    assert found == wanted


def test_not_sampling_is_greedy() -> None:
    """With do_sample false, temperature, top_k and top_p are ignored, as in transformers: such
    files may state a temperature of 0. The penalty and the lengths still apply."""
    raw = {"do_sample": False, "temperature": 0.0, "top_k": -1, "repetition_penalty": 1.0}
    found = sampling_from(raw | {"max_new_tokens": 200})
    assert found == Sampling.driver(greedy=True, repetition_penalty=1.0, max_new=200)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"num_beams": 4}, "num_beams is 4; allowed: 1"),
        ({"min_p": 0.1}, "min_p is 0.1; allowed: None"),
        ({"do_sample": 1}, "do_sample is 1; allowed: true or false"),
        ({"temperature": 0}, "temperature is 0; allowed"),
        ({"max_new_tokens": 0}, "max_new is 0; allowed"),
        ({"do_samples": [True, False]}, r"do_samples is .* does not know"),
    ],
)
def test_unsupported_sampling_fields_raise(raw: dict[str, Any], message: str) -> None:
    """A field that changes sampling and is not implemented is an error, never ignored."""
    with pytest.raises(ConfigError, match=message):
        sampling_from(raw)
