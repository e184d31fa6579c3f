"""Sampling settings: the two published sets, and an error for every bad value."""

import dataclasses
import math
from typing import Any

import pytest

from mosslive.config import ConfigError, Sampling

HUGE = 10**400  # an integer beyond every float

# field → (bad values, what the message must say is allowed)
BAD: dict[str, tuple[list[Any], str]] = {
    "greedy": ([1, 0, "yes", None], "true or false"),
    "temperature": ([0, 0.009, -1, math.nan, math.inf, True, "1", None, HUGE], "0.01 to 100"),
    "repetition_penalty": ([0, -0.5, 101, math.nan, True, "1.1", None, HUGE], "0.01 to 100"),
    "top_p": ([0, -0.1, 1.5, math.nan, math.inf, True, "0.9", None, HUGE], "above 0 and at most 1"),
    "top_k": ([-1, 1.5, 20.0, math.nan, True, "20", None], "0 or more"),
    "max_new": ([0, -1, 1.5, math.nan, True, "500", None], "1 or more rows"),
    "min_new": ([-1, 0.5, math.nan, True, "0", None], "0 or more rows"),
    "seed": ([-1, 2**64, 0.0, math.nan, True, "0", None], "0 to 2**64 - 1"),
    "ignored_audio": (["", "drop", None, 0], "sample or pad"),
}


def test_plain_settings_leave_the_distribution_alone() -> None:
    """`Sampling()` turns every filter and penalty off."""
    assert dataclasses.asdict(Sampling()) == {
        "greedy": False,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "repetition_penalty": 1.0,
        "max_new": 500,
        "min_new": 0,
        "seed": 0,
        "ignored_audio": "sample",
    }


@pytest.mark.parametrize(
    ("published", "temperature", "repetition_penalty", "max_new", "min_new"),
    [(Sampling.driver, 0.6, 1.1, 500, 0), (Sampling.model_card, 0.7, 1.0, 1000, 10)],
    ids=["driver", "model_card"],
)
def test_published_sets(
    published: Any, temperature: float, repetition_penalty: float, max_new: int, min_new: int
) -> None:
    """`driver` and `model_card` have the published numbers."""
    sampling: Sampling = published()
    assert not sampling.greedy
    assert (sampling.top_p, sampling.top_k) == (0.95, 20)
    assert (sampling.temperature, sampling.repetition_penalty) == (temperature, repetition_penalty)
    assert (sampling.max_new, sampling.min_new) == (max_new, min_new)
    assert sampling.ignored_audio == "sample"
    assert published(max_new=7, seed=3) == dataclasses.replace(sampling, max_new=7, seed=3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(name, value, id=f"{name}-{'huge' if value is HUGE else value}")
        for name, (values, _) in BAD.items()
        for value in values
    ],
)
def test_bad_values_raise(name: str, value: Any) -> None:
    """The message names the field, the value and what is allowed, for presets as well."""
    for make in (Sampling, Sampling.driver, Sampling.model_card):
        with pytest.raises(ConfigError) as caught:
            make(**{name: value})
        stated, _, allowed = str(caught.value).partition("; allowed: ")
        assert stated == f"{name} is {value!r}"
        assert BAD[name][1] in allowed


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": 0.01, "top_p": 1e-9, "repetition_penalty": 0.01},
        {"temperature": 5, "top_p": 1, "repetition_penalty": 2},
        {"top_k": 10**6, "max_new": 1, "min_new": 100},
        {"seed": 2**64 - 1, "ignored_audio": "pad", "greedy": True},
    ],
)
def test_edges_are_accepted(values: dict[str, Any]) -> None:
    """The limits themselves are legal, and integers are legal as real numbers."""
    sampling = Sampling(**values)
    assert {name: getattr(sampling, name) for name in values} == values


@pytest.mark.parametrize("make", [Sampling, Sampling.driver, Sampling.model_card])
def test_misspelled_setting_raises(make: Any) -> None:
    """A misspelled setting is an error, never ignored."""
    with pytest.raises(TypeError, match="temprature"):
        make(temprature=0.5)


def test_settings_cannot_be_changed() -> None:
    """Checked settings are immutable."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Sampling().top_p = 2.0  # type: ignore[misc]
