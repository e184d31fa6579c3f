"""What a model needs, by arithmetic, and the table of the README."""

import re
from pathlib import Path

import pytest

from mosslive.checkpoint.synth import synth_config
from mosslive.checkpoint.vocabulary import learned_vocabulary
from mosslive.engine.footprint import footprint
from mosslive.server.hardware import (
    USABLE_GIB,
    LmPrecision,
    Sizes,
    Talk,
    conversations,
    gpu_bytes,
    lm_bytes,
    published_sizes,
)

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def sizes() -> Sizes:
    return published_sizes()


def test_weights_are_those_of_the_files(nano_folder: Path, sizes: Sizes) -> None:
    """The weights by arithmetic are those that the server plans with; fp8 has fewer bytes than
    bf16, float32 twice as many."""
    config = synth_config("nano", learned_vocabulary())
    assert abs(lm_bytes(config)["bf16"] / footprint(nano_folder).weight_bytes - 1) < 0.01
    assert sizes.lm["fp8"] < sizes.lm["bf16"] == sizes.lm["float32"] // 2
    assert sizes.row == 172_032


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_what_fits_needs_no_more_than_there_is(sizes: Sizes, precision: LmPrecision) -> None:
    """The number of conversations is the largest whose memory fits, and grows with the GPU."""
    talk = Talk(2048, 20.0)
    counts = [conversations(sizes, precision, gib, talk) for gib in USABLE_GIB.values()]
    assert counts == sorted(counts)
    for gib, count in zip(USABLE_GIB.values(), counts, strict=True):
        assert gpu_bytes(sizes, precision, count + 1, talk) > gib * (1 << 30)
        assert not count or gpu_bytes(sizes, precision, count, talk) <= gib * (1 << 30)


def test_the_table_of_the_readme(sizes: Sizes) -> None:
    """Every number in the README's table of GPUs is what `mosslive bench memory` computes."""
    text = README.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) GB \| (bf16|FP8) \| (\S+) \| (\S+) \|", text, re.MULTILINE)
    assert len(rows) == 2 * len(USABLE_GIB)
    for gb, precision, *written in rows:
        kind: LmPrecision = "fp8" if precision == "FP8" else "bf16"
        for rows_each, number in zip((2048, 10_240), written, strict=True):
            found = conversations(sizes, kind, USABLE_GIB[int(gb)], Talk(rows_each, 20.0))
            assert number == (str(found) if found else "none"), (gb, precision, rows_each)
