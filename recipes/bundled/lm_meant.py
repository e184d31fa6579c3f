"""Teaches the trunk the letters of a spoken reply.

If only the text tail works out the letters, the audio tail, which sees nothing of the text tail,
can say something else. So a linear map, discarded after training, predicts the letters from the
trunk. Knows letters and states, not the corpus.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from mosslive.config import ModelConfig

NOTHING = -1  # target of rows outside a spoken reply, at its end, and after the end of its text
# Which letters a row predicts, counted from the letter of the next code. Several, because there are
# more letters than rows, and because a word must be known before its first code.
AHEAD = (0, 1, 2, 3, 5, 8)


def letters_meant(letters: NDArray[np.int16], rows: int) -> NDArray[np.int16]:
    """Spreads the ids of a text evenly over the rows that speak it: [rows, len(AHEAD)]. One voice
    at one pace speaks about evenly."""
    place = (np.arange(rows) * len(letters) // max(1, rows))[:, None] + np.asarray(AHEAD)
    inside = place < len(letters)
    return np.where(inside, letters[place * inside], NOTHING).astype(np.int16)


class Meanings(nn.Module):
    """Maps states of the trunk to logits of the letters ahead."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.vocabulary = config.vocab_size
        self.letters = nn.Linear(config.hidden_size, len(AHEAD) * config.vocab_size, bias=False)
        nn.init.zeros_(self.letters.weight)  # the first gradient of the trunk is zero

    def forward(self, states: Tensor, ahead: int = len(AHEAD)) -> Tensor:
        """[N, H] → [N, ahead, V], the nearest letters first."""
        normed = F.rms_norm(states.float(), states.shape[-1:]).to(states.dtype)
        weight = self.letters.weight[: ahead * self.vocabulary].to(states.dtype)
        return F.linear(normed, weight).view(-1, ahead, self.vocabulary)


def meant_loss(logits: Tensor, wanted: Tensor, ignored: int) -> Tensor:
    """logits [N, A, V], wanted [N, A] → the mean over the letters that are not ignored."""
    total = F.cross_entropy(
        logits.flatten(0, 1).float(), wanted.flatten(), ignore_index=ignored, reduction="sum"
    )
    return total / torch.clamp((wanted != ignored).sum(), min=1)
