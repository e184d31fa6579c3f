"""The memory that a model needs, read from its folder."""

from pathlib import Path

import torch

from mosslive.build import build_engine
from mosslive.build.load import load_engine_folder
from mosslive.cache import row_bytes
from mosslive.engine.footprint import footprint
from mosslive.engine.load import load_stepper, rows_within
from mosslive.engine.stepper import PlainStepper


def test_an_engine_folder_states_its_weights(nano_folder: Path, tmp_path: Path) -> None:
    """Weights of an engine folder are those that loading allocates; so are the bytes of a row."""
    folder = build_engine(nano_folder, tmp_path / "engine", torch.device("cpu")).folder
    config, _, weights = load_engine_folder(folder, torch.device("cpu"))
    found = footprint(folder)
    assert found.row_bytes == row_bytes(config, torch.bfloat16)
    heads = sum(tail.head.weight.nbytes + tail.embed.nbytes for tail in weights.tails.values())
    assert heads < found.weight_bytes < 10 * heads


def test_a_published_folder_is_counted_by_its_shapes(nano_folder: Path) -> None:
    """Its weights take twice as much in float32, and rows are those of the loaded model."""
    half, exact = footprint(nano_folder), footprint(nano_folder, "float32")
    assert exact.weight_bytes == 2 * half.weight_bytes
    stepper, _ = load_stepper(nano_folder, kv_rows=64)
    assert isinstance(stepper, PlainStepper)
    assert exact.row_bytes == row_bytes(stepper.config, torch.float32)


def test_nothing_is_allocated_before_the_caller_allows_it(nano_folder: Path) -> None:
    """`before_pages` is called once, after the weights are read."""
    read: list[int] = []
    order: list[str] = []
    load_stepper(
        nano_folder,
        kv_rows=64,
        progress=read.append,
        before_pages=lambda: order.append("read" if read else "nothing read"),
    )
    assert order == ["read"]


def test_a_planned_pool_leaves_less_unused() -> None:
    """Without a goal 15 % stay free; with one at most 2 GiB, and never more rows than the goal."""
    gib = 1 << 30
    assert rows_within(100 * gib, gib) == 85
    assert rows_within(100 * gib, gib, goal=1000) == 98
    assert rows_within(100 * gib, gib, goal=60) == 60
    assert rows_within(4 * gib, gib, goal=60) == 3
    assert rows_within(0, gib, goal=60) == 1
