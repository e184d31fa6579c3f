"""Embeddings: each row looks up one of two tables."""

import torch
from torch import Tensor
from torch.nn import functional as F


def embed(text: Tensor, audio: Tensor, text_table: Tensor, audio_table: Tensor, pad: int) -> Tensor:
    """text, audio int64 [T]; tables [V, H] → [T, H]: the audio table where `text` is `pad`, else
    the text table. A selection, not a sum: the network does not see the other id of a row."""
    spoken = F.embedding(audio, audio_table)
    written = F.embedding(text, text_table)
    return torch.where((text == pad)[:, None], spoken, written)
