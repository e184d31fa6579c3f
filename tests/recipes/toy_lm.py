"""A toy language model, and batches of hums for it."""

import torch

from recipes.bundled.lm_batch import Batches
from recipes.bundled.lm_meant import Meanings
from recipes.bundled.lm_model import LmModel
from recipes.bundled.lm_rows import Examples, RowBuilder
from recipes.bundled.sizes import TOY
from recipes.bundled.vocabulary import ids, load_tokenizer


def batches_of(
    builder: RowBuilder, made: Examples, rows: int, device: str | torch.device = "cpu"
) -> Batches:
    where = torch.device(device)
    return Batches(made, builder.spoken.on(where), builder.ids, where, rows, seed=0)


def fresh() -> LmModel:
    torch.manual_seed(0)
    return LmModel(TOY.lm_config(**ids(load_tokenizer())))


def fresh_meanings() -> Meanings:
    """Returns non-zero weights: from zero weights no gradient reaches the trunk."""
    made = Meanings(TOY.lm_config(**ids(load_tokenizer())))
    torch.nn.init.normal_(made.letters.weight, generator=torch.Generator().manual_seed(0))
    return made
