"""The decoder: a trunk of Qwen3 layers, then a text tail and an audio tail with their heads.

Three functions of flattened rows. It keeps no state: keys and values go where the caller's pages
say, and the caller decides which tail runs, on which rows, and when.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from mosslive.config import ModelConfig
from mosslive.kernels import (
    LayerPages,
    PagedBatch,
    RotaryTable,
    paged_attention,
    rms_norm,
    rotate,
    silu_mul,
    write_pages,
)
from mosslive.model.weights import DecoderWeights, LayerWeights
from mosslive.rows import Channel


class Decoder:
    def __init__(self, config: ModelConfig, weights: DecoderWeights) -> None:
        self.config = config
        self.weights = weights
        norm = weights.tails["text"].norm
        self.device, self.dtype = norm.device, norm.dtype
        self._rotary = RotaryTable(
            config.rope_theta,
            config.head_dim,
            config.max_position_embeddings,
            self.dtype,
            self.device,
        )

    def embed(self, rows: Tensor) -> Tensor:
        """rows [T, 2] → [T, H]: the audio table for speech rows, else the text table. A selection,
        never a sum: the other channel of a row does not reach the network."""
        text, audio = rows.unbind(1)
        speech = text == self.config.modality_pad_token_id
        tails = self.weights.tails
        spoken = F.embedding(audio, tails["audio"].embed)
        written = F.embedding(text, tails["text"].embed)
        return torch.where(speech[:, None], spoken, written)

    def trunk(self, rows: Tensor, pages: list[LayerPages], batch: PagedBatch) -> Tensor:
        """rows [T, 2] → residual stream after the shared layers [T, H]; there is no norm here."""
        return self._run(self.weights.trunk, self.embed(rows), pages, batch)

    def tail(
        self, tail: Channel, hidden: Tensor, pages: list[LayerPages], batch: PagedBatch
    ) -> Tensor:
        """Trunk output [T, H] → the tail's residual stream [T, H], before its final norm."""
        return self._run(self.weights.tails[tail].layers, hidden, pages, batch)

    def logits(self, tail: Channel, hidden: Tensor) -> Tensor:
        """[n, H] after a tail → float32 [n, V]."""
        weights = self.weights.tails[tail]
        normed = rms_norm(hidden, weights.norm, self.config.rms_norm_eps)
        return F.linear(normed, weights.head).float()

    def _run(
        self, layers: list[LayerWeights], hidden: Tensor, pages: list[LayerPages], batch: PagedBatch
    ) -> Tensor:
        angles = self._rotary.at(batch.positions)
        for weights, layer_pages in zip(layers, pages, strict=True):
            hidden = self._layer(weights, hidden, layer_pages, batch, angles)
        return hidden

    def _layer(
        self,
        weights: LayerWeights,
        hidden: Tensor,
        pages: LayerPages,
        batch: PagedBatch,
        angles: tuple[Tensor, Tensor],
    ) -> Tensor:
        eps, width = self.config.rms_norm_eps, self.config.head_dim
        heads, kv_heads = self.config.num_attention_heads, self.config.num_key_value_heads
        normed = rms_norm(hidden, weights.input_norm, eps)
        qkv = F.linear(normed, weights.qkv).view(-1, heads + 2 * kv_heads, width)
        qk, v = qkv[:, : heads + kv_heads], qkv[:, heads + kv_heads :]
        qk = rotate(rms_norm(qk, weights.qk_norm, eps), *angles)  # the norm comes before RoPE
        q, k = qk[:, :heads], qk[:, heads:]
        write_pages(pages.k, k, batch.slots)
        write_pages(pages.v, v, batch.slots)
        attended = paged_attention(q, pages.k, pages.v, batch)
        hidden = hidden + F.linear(attended.flatten(1), weights.o)
        normed = rms_norm(hidden, weights.post_norm, eps)
        return hidden + F.linear(silu_mul(F.linear(normed, weights.gate_up)), weights.down)
