"""The bound references agree with `ReferenceModel`, which reads the files itself."""

from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive.bench.lm.bound_reference import BoundModel, EagerReference, Wiring, reference_logits
from mosslive.bench.lm.compiled_reference import CompiledReference
from mosslive.bench.lm.prefix_batch import PrefixBatch, make_prefix_batch, speech_rows
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
def test_a_last_row_is_the_end_of_its_own_sequence(
    streams: int, context: int, prefixes: int
) -> None:
    """One masked pass over all streams gives each stream the logits it gets alone."""
    batch = make_prefix_batch(_CONFIG, streams, context, prefixes)
    together = reference_logits(_WIRING, batch, batch.last_indices, torch.float32)
    for stream in {0, streams // 2, streams - 1}:
        beginning = batch.prefixes[stream % len(batch.prefixes)][: batch.lengths[stream]]
        rows = [*beginning, batch.last_rows[stream]]
        alone = reference_logits(
            _WIRING, PrefixBatch([rows], [], []), torch.tensor([len(rows) - 1]), torch.float32
        )
        assert all(_close(together[c][stream], alone[c][0]) for c in CHANNELS)


def test_every_form_of_the_reference_gives_the_same_logits() -> None:
    """A whole sequence, a growing cache and a cache of fixed size give equal logits."""
    rows = speech_rows(_CONFIG, 24, 0)
    ids = torch.tensor(rows)
    wanted = reference_logits(_WIRING, PrefixBatch([rows], [], []), torch.arange(24), torch.float32)
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
    """Slices of fused matrices give the same logits as the tensors of the files."""
    checkpoint = Checkpoint.open(nano_folder)
    wiring = Wiring(checkpoint.config, load_weights(checkpoint, torch.device("cpu"), torch.float32))
    rows = speech_rows(checkpoint.config, 12, 0)
    ours = reference_logits(wiring, PrefixBatch([rows], [], []), torch.arange(12), torch.float32)
    wanted = ReferenceModel(nano_folder).logits(torch.tensor(rows))
    assert all(_close(ours[c], w) for c, w in zip(CHANNELS, wanted, strict=True))


def test_float8_weights_are_verified_as_they_are_stored() -> None:
    """The reference over a float8 trunk is near the bf16 one and not equal to it."""
    narrow = Wiring(_CONFIG, as_precision(_BF16, "fp8"))
    batch = PrefixBatch([speech_rows(_CONFIG, 12, 0)], [], [])
    wide, other = (
        reference_logits(wiring, batch, torch.arange(12), torch.float32)["text"]
        for wiring in (_WIRING, narrow)
    )
    share = float((other - wide).norm() / wide.norm())
    assert 0.005 < share < 0.1


def test_layers_share_the_runtimes_memory() -> None:
    """Bound layers hold no copy of the weights: at full size two would not fit."""
    model = BoundModel(_WIRING)
    layer, weights = model.trunk[1], _WIRING.weights.trunk[1]
    projections = dict(layer.named_parameters())
    assert projections["self_attn.q_proj.weight"].data_ptr() == weights.qkv.weight.data_ptr()
    end = weights.gate_up.weight[_CONFIG.intermediate_size :]
    assert projections["mlp.up_proj.weight"].data_ptr() == end.data_ptr()
