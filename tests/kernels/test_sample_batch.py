"""The batched sampler: its definition against the one-row functions, its kernel against it."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mosslive.kernels.gpu.philox import uniform as uniform_twin
from mosslive.kernels.gpu.sample_batch import sample_batch as triton_kernel
from mosslive.kernels.graph import Graphed
from mosslive.kernels.philox import uniform
from mosslive.kernels.sample import sample_token
from mosslive.kernels.sample_batch import SamplingBatch, sample_batch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")


def sampling_of(
    rows: int,
    *,
    legal: int | list[int],
    greedy: bool | list[bool] = False,
    temperature: float | list[float] = 1.0,
    top_k: int | list[int] = 0,
    top_p: float | list[float] = 1.0,
    penalty: float | list[float] = 1.0,
    seen: Tensor | None = None,
    seed: int | list[int] = 0,
    step: int | list[int] | None = None,
    channel: int = 1,
) -> SamplingBatch:
    """One value stands for all rows; steps count up unless given."""

    def column(value: float | list[int] | list[float] | list[bool], dtype: torch.dtype) -> Tensor:
        values = value if isinstance(value, list) else [value] * rows
        return torch.tensor(values, dtype=dtype, device=DEVICE)

    return SamplingBatch(
        legal=column(legal, torch.int32),
        greedy=column(greedy, torch.bool),
        temperature=column(temperature, torch.float32),
        top_k=column(top_k, torch.int32),
        top_p=column(top_p, torch.float32),
        penalty=column(penalty, torch.float32),
        seen=seen,
        seed=column(seed, torch.int64),
        step=column(list(range(rows)) if step is None else step, torch.int64),
        channel=channel,
    )


def logits_of(rows: int, size: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (4 * torch.randn(rows, size, generator=generator)).to(DEVICE, dtype)


def on_cpu(batch: SamplingBatch) -> SamplingBatch:
    """A GPU divides by a host's number through its reciprocal; a CPU, as the kernel, divides."""
    moved: dict[str, Any] = {n: v.cpu() for n, v in vars(batch).items() if isinstance(v, Tensor)}
    return replace(batch, **moved)


def check(logits: Tensor, batch: SamplingBatch) -> None:
    assert (
        triton_kernel(logits, batch).tolist() == sample_batch(logits.cpu(), on_cpu(batch)).tolist()
    )


def test_definition_samples_each_row_by_its_own_settings() -> None:
    """Settings, seed and step of a row reach the one-row functions, illegal ids do not."""
    logits = logits_of(3, 50, 1)
    logits[:, 40:] = 99
    given = sampling_of(
        3, legal=40, temperature=[0.5, 1.0, 2.0], top_k=[3, 0, 7], seed=-5, step=[4, 9, 2**33 + 1]
    )
    wanted = [
        sample_token(logits[0, :40], 0.5, 3, 1.0, uniform(2**64 - 5, 4, 1)),
        sample_token(logits[1, :40], 1.0, 0, 1.0, uniform(2**64 - 5, 9, 1)),
        sample_token(logits[2, :40], 2.0, 7, 1.0, uniform(2**64 - 5, 1, 1)),
    ]
    assert sample_batch(logits, given).tolist() == wanted


@triton.jit
def _uniforms(seeds, steps, numbers, channel, count: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, count)
    tl.store(numbers + at, uniform_twin(tl.load(seeds + at), tl.load(steps + at), channel))


def test_random_numbers_are_the_same_bits() -> None:
    """Any 64-bit seed, steps beyond 32 bits (which wrap), both channels: exactly equal."""
    generator = torch.Generator().manual_seed(6)
    seeds = torch.randint(-(2**63), 2**63 - 1, (64,), generator=generator)
    steps = torch.randint(0, 2**34, (64,), generator=generator)
    for channel in (0, 1):
        numbers = torch.empty(64, dtype=torch.float64, device=DEVICE)
        _uniforms[(1,)](seeds.to(DEVICE), steps.to(DEVICE), numbers, channel, count=64)
        pairs = zip(seeds.tolist(), steps.tolist(), strict=True)
        assert numbers.tolist() == [uniform(seed % 2**64, step, channel) for seed, step in pairs]


@pytest.mark.parametrize("sampler", [sample_batch, triton_kernel])
def test_bad_logits_give_no_id(sampler: Callable[[Tensor, SamplingBatch], Tensor]) -> None:
    """NaN or +inf anywhere legal, or nothing finite: -1. Ids that are not legal do not matter."""
    logits = logits_of(6, 70, 2)
    logits[0, 3] = math.nan
    logits[1, 69] = math.inf
    logits[2] = -math.inf
    logits[3, 60:] = math.nan
    logits[4, :59] = -math.inf
    given = sampling_of(
        6, legal=[70, 70, 70, 60, 60, 70], greedy=[True, False, False, True, False, True]
    )
    found = sampler(logits, given).tolist()
    assert found[:3] == [-1, -1, -1]
    assert found[3] == int(logits[3, :60].argmax())
    assert found[4] == 59
    assert found[5] == int(logits[5].argmax())


def test_greedy_kernel_takes_the_lowest_of_equals() -> None:
    """Ties within a group of ids, across groups, and across the chunks of several programs."""
    logits = torch.zeros(5, 5000, device=DEVICE)
    logits[1, [4999, 4998, 63, 64]] = 1
    logits[2, [2047, 2048]] = 1
    logits[3, [70, 71]] = 1
    logits[4] = -3
    given = sampling_of(5, legal=5000, greedy=True, temperature=0.0)
    assert triton_kernel(logits, given).tolist() == [0, 63, 2047, 70, 0]


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize(
    ("top_k", "top_p"),
    [
        (20, 0.95),
        (50, 1.0),
        (1, 0.5),
        (65, 0.9),
        (0, 1.0),
        (0, 0.7),
        (199, 1.0),
        (900, 0.99),
    ],
)
def test_kernel_samples_the_same_ids(top_k: int, top_p: float, rounded: bool) -> None:
    """Whatever top_k and top_p; with rounded values too, as bf16 has them: ties are common."""
    logits = logits_of(6, 1700, 3)
    logits = (logits * 4).round() / 4 if rounded else logits
    check(logits, sampling_of(6, legal=1700, temperature=0.8, top_k=top_k, top_p=top_p, seed=77))


def test_kernel_handles_more_ties_than_it_gathers() -> None:
    """All ids equal, or two values only: the order among equals is by id, however many."""
    logits = torch.zeros(8, 2100, device=DEVICE)
    logits[4:, ::3] = 1
    given = sampling_of(
        8, legal=2100, top_k=[20, 0, 20, 0] * 2, top_p=[1.0, 0.3, 0.4, 1.0] * 2, seed=3
    )
    check(logits, given)


def test_kernel_reads_half_precision_and_every_kind_of_row_together() -> None:
    """Greedy, penalised and plain rows, each with its own settings, in one batch."""
    logits = logits_of(8, 500, 4, torch.float16)
    seen = torch.rand(8, 500, generator=torch.Generator().manual_seed(1)).to(DEVICE) < 0.3
    given = sampling_of(
        8,
        legal=[500, 499, 300, 33, 32, 1, 500, 64],
        greedy=[True, False, False, True, False, False, True, False],
        temperature=[0.0, 0.7, 1.5, 1.0, 0.6, 1.0, 1.0, 0.01],
        top_k=[0, 20, 0, 5, 31, 4, 0, 64],
        top_p=[1.0, 0.9, 0.8, 1.0, 1.0, 0.5, 1.0, 0.6],
        penalty=[1.3, 1.0, 1.2, 1.0, 0.8, 2.0, 1.0, 1.1],
        seen=seen,
        seed=[2**63 - 1, -1, 5, 6, 7, 8, 9, 10],
        channel=0,
    )
    check(logits, given)
    # The same histories, but in a table of more rows, in another order.
    seen_rows = torch.tensor([4, 0, 9, 2, 5, 1, 1, 7], device=DEVICE)
    table = torch.ones(10, 500, dtype=torch.bool, device=DEVICE)
    table[seen_rows] = seen
    seen[5] = seen[6]  # row 1 belongs to both
    table[1] = seen[6]
    by_index = replace(given, seen=table, seen_rows=seen_rows)
    check(logits, by_index)
    assert triton_kernel(logits, by_index).tolist() == triton_kernel(logits, given).tolist()


@settings(derandomize=True, deadline=None, max_examples=15)
@given(
    st.integers(0, 2**32),
    st.integers(1, 130),
    st.sampled_from([0, 1, 2, 20, 50, 64, 100]),
    st.floats(0, 1, width=32),
    st.floats(0.0625, 5, width=32),
    st.sampled_from([0.25, 2.0, 40.0]),
)
def test_any_settings(
    seed: int, size: int, top_k: int, top_p: float, temperature: float, spread: float
) -> None:
    """Flat and steep rows, vocabularies smaller than top_k, masked ids, any temperature."""
    logits = logits_of(3, size, seed) * spread
    logits[1, : size // 2] = -math.inf
    given = sampling_of(3, legal=size, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    check(logits, given)


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("size", [16_386, 151_680])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_full_vocabularies(size: int, dtype: torch.dtype) -> None:
    """The published sizes, captured as a graph: top-k 1..50 and everything off."""
    given = sampling_of(
        8,
        legal=size - 1,
        greedy=[True] + [False] * 7,
        temperature=0.7,
        top_k=[0, 20, 50, 1, 0, 0, 1000, 64],
        top_p=[1.0, 0.95, 1.0, 1.0, 0.9, 1.0, 0.95, 0.5],
    )
    graph = Graphed(lambda logits: triton_kernel(logits, given), logits_of(8, size, 0, dtype))
    for seed in range(10):
        logits = logits_of(8, size, seed, dtype)
        assert graph(logits).tolist() == sample_batch(logits.cpu(), on_cpu(given)).tolist()
