"""A grown language model computes the same function and can learn in its new layers."""

from dataclasses import replace

import pytest
import torch

from recipes.bundled.lm_grow import grown
from recipes.bundled.lm_model import LmModel
from recipes.bundled.sizes import TOY
from recipes.bundled.vocabulary import ids, load_tokenizer
from tests.recipes.toy_lm import fresh


def _larger(shared: int, modality: int) -> LmModel:
    sizes = replace(TOY, lm_shared=shared, lm_modality=modality)
    return LmModel(sizes.lm_config(**ids(load_tokenizer())))


@pytest.mark.parametrize(("shared", "modality"), [(1, 1), (2, 1), (5, 3)])
def test_logits_stay_the_same(shared: int, modality: int) -> None:
    """Growing keeps the logits bit by bit; with as many layers every tensor is unchanged."""
    small, large = fresh(), _larger(shared, modality)
    large.load_state_dict(grown(small.state_dict(), large.config))
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(large.config.vocab_size, (2, 9), generator=generator)
    text[:, ::2] = large.config.modality_pad_token_id
    audio = torch.randint(TOY.codes, (2, 9), generator=generator)
    with torch.no_grad():
        for mine, theirs in zip(large.logits(text, audio), small.logits(text, audio), strict=True):
            assert torch.equal(mine, theirs)


def test_new_layers_learn() -> None:
    """Zero outputs get a gradient, so one step makes them non-zero."""
    large = _larger(2, 2)
    large.load_state_dict(grown(fresh().state_dict(), large.config))
    text = torch.full((1, 6), large.config.modality_pad_token_id)
    logits = large.logits(text, torch.arange(6)[None])
    loss = logits.text.logsumexp(-1).mean() + logits.audio.logsumexp(-1).mean()
    outputs = [
        output
        for block in (large.model.shared_block, large.model.text_block, large.model.audio_block)
        for name, output in block.layers[1].named_parameters()
        if name.endswith(("o_proj.weight", "down_proj.weight"))
    ]
    assert len(outputs) == 6
    for output, slope in zip(outputs, torch.autograd.grad(loss, outputs), strict=True):
        assert not output.any()
        assert slope.abs().max() > 0


def test_a_model_does_not_shrink() -> None:
    """Fewer layers raise an error."""
    with pytest.raises(ValueError, match="shared_block has 2 layers; allowed: 1 to 1"):
        grown(_larger(2, 1).state_dict(), fresh().config)
