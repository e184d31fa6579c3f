"""The references that judge and race the decoder agree with the one that reads the files itself."""

from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive.bench.lm.bound_reference import BoundModel, EagerReference, Wiring, forest_logits
from mosslive.bench.lm.compiled_reference import CompiledReference
from mosslive.bench.lm.prefix_batch import Forest, make_forest, speech_rows
from mosslive.bench.lm.weights import as_precision, random_config, random_weights
from mosslive.bench.reference import ReferenceModel
from mosslive.checkpoint import Checkpoint
from mosslive.model import load_weights
from mosslive.rows import CHANNELS

_CONFIG = random_config("nano")
_BF16 = random_weights(_CONFIG, torch.device("cpu"))
_WIRING = Wiring(_CONFIG, as_precision(_BF16, "fp32"))


def _close(ours: torch.Tensor, wanted: torch.Tensor) -> bool:
    return bool((ours - wanted).abs().max() < 1e-5 * wanted.abs().max())


@settings(derandomize=True, deadline=None, max_examples=8)
@given(st.integers(1, 9), st.integers(8, 20), st.integers(1, 3))
def test_a_leaf_is_the_end_of_its_own_sequence(streams: int, context: int, trunks: int) -> None:
    """One masked pass over all streams gives each what it would get alone."""
    forest = make_forest(_CONFIG, streams, context, trunks)
    together = forest_logits(_WIRING, forest, forest.leaf_indices, torch.float32)
    for leaf in {0, streams // 2, streams - 1}:
        beginning = forest.trunks[leaf % len(forest.trunks)][: forest.lengths[leaf]]
        rows = [*beginning, forest.leaves[leaf]]
        alone = forest_logits(
            _WIRING, Forest([rows], [], []), torch.tensor([len(rows) - 1]), torch.float32
        )
        assert all(_close(together[c][leaf], alone[c][0]) for c in CHANNELS)


def test_every_form_of_the_reference_gives_the_same_logits() -> None:
    """Whole sequence, growing cache, and cache of fixed size are one function."""
    rows = speech_rows(_CONFIG, 24, 0)
    ids = torch.tensor(rows)
    wanted = forest_logits(_WIRING, Forest([rows], [], []), torch.arange(24), torch.float32)
    eager = EagerReference(BoundModel(_WIRING))
    first = eager.forward(ids[:20])
    compiled = CompiledReference(_WIRING, 32, compile=lambda function: function)
    compiled.take(eager.kept())
    for position in range(20, 24):
        row = ids[position : position + 1]
        grown = eager.forward(row)
        fixed = compiled.step(row, torch.tensor([position]))
        for channel in CHANNELS:
            assert _close(grown[channel][0], wanted[channel][position])
            assert _close(fixed[channel][0], wanted[channel][position])
    assert all(_close(first[channel], wanted[channel][:20]) for channel in CHANNELS)


def test_bound_layers_are_the_published_ones(nano_folder: Path) -> None:
    """Slices of joint matrices give what the files' own tensors give."""
    checkpoint = Checkpoint.open(nano_folder)
    wiring = Wiring(checkpoint.config, load_weights(checkpoint, torch.device("cpu"), torch.float32))
    rows = speech_rows(checkpoint.config, 12, 0)
    ours = forest_logits(wiring, Forest([rows], [], []), torch.arange(12), torch.float32)
    wanted = ReferenceModel(nano_folder).logits(torch.tensor(rows))
    assert all(_close(ours[c], w) for c, w in zip(CHANNELS, wanted, strict=True))


def test_float8_weights_are_judged_as_they_are_stored() -> None:
    """The reference over a float8 trunk is near the wide one, and not the same."""
    narrow = Wiring(_CONFIG, as_precision(_BF16, "fp8"))
    forest = Forest([speech_rows(_CONFIG, 12, 0)], [], [])
    wide, other = (
        forest_logits(wiring, forest, torch.arange(12), torch.float32)["text"]
        for wiring in (_WIRING, narrow)
    )
    share = float((other - wide).norm() / wide.norm())
    assert 0.005 < share < 0.1


def test_layers_borrow_the_runtimes_memory() -> None:
    """At full size there is no room, and no reason, for a second copy."""
    model = BoundModel(_WIRING)
    layer, weights = model.trunk[1], _WIRING.weights.trunk[1]
    projections = dict(layer.named_parameters())
    assert projections["self_attn.q_proj.weight"].data_ptr() == weights.qkv.weight.data_ptr()
    end = weights.gate_up.weight[_CONFIG.intermediate_size :]
    assert projections["mlp.up_proj.weight"].data_ptr() == end.data_ptr()
