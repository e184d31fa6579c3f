"""The strongest plain form of the reference: compiled layers, a fixed-size cache, one CUDA graph.

One compiled layer serves all, because they differ in their tensors only. Both tails and heads run,
as in the eager form. Knows no pages. Records nothing without a GPU.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mosslive.bench.lm.bound_reference import BoundModel, Wiring, run_layer
from mosslive.kernels.graph import Graphed
from mosslive.rows import CHANNELS, Channel

Slot = tuple[Tensor, Tensor]  # keys and values of a layer, [1, H_kv, capacity, D] each


class _FixedCache:
    """The cache interface that an attention layer calls. Writes the row at `index`."""

    def __init__(self, slot: Slot, index: Tensor) -> None:
        self._slot, self._index = slot, index

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> Slot:
        k, v = self._slot
        k.index_copy_(2, self._index, keys)
        v.index_copy_(2, self._index, values)
        return k, v


def _layer_step(
    layer: nn.Module, hidden: Tensor, mask: Tensor, rope: Slot, slot: Slot, index: Tensor
) -> Tensor:
    return run_layer(
        layer,
        hidden,
        attention_mask=mask,
        position_embeddings=rope,
        past_key_values=_FixedCache(slot, index),
    )


class CompiledReference:
    """`capacity`: the largest number of rows. `compile` takes a function and returns its compiled
    form."""

    def __init__(
        self,
        wiring: Wiring,
        capacity: int,
        compile: Callable[[Any], Any] = lambda f: torch.compile(f, fullgraph=True, dynamic=False),
    ) -> None:
        # Separate layers, because their numbers are changed below. The tensors are shared.
        self._model = model = BoundModel(wiring)
        self._capacity = capacity
        self._layer_step = compile(_layer_step)
        config = wiring.config
        shape = (1, config.num_key_value_heads, capacity, config.head_dim)
        self._slots: list[Slot] = []
        for block in (model.trunk, *(model.tails[tail] for tail in CHANNELS)):
            for layer in block:
                # With different numbers the compiler would specialise each layer.
                layer.self_attn.layer_idx = 0  # type: ignore[union-attr]
                k, v = (
                    torch.zeros(shape, device=wiring.device, dtype=wiring.dtype) for _ in range(2)
                )
                self._slots.append((k, v))
        row = torch.zeros(1, 2, dtype=torch.int64, device=wiring.device)
        self._step = Graphed(torch.no_grad()(self._plain_step), row, row[0, :1])

    def take(self, kept: list[Slot]) -> None:
        """Copies keys and values that another form has computed."""
        for slot, given in zip(self._slots, kept, strict=True):
            for own, other in zip(slot, given, strict=True):
                own[:, :, : other.shape[2]] = other

    def step(self, row: Tensor, position: Tensor) -> dict[Channel, Tensor]:
        """row int64 [1, 2], position int64 [1] → logits [1, V] by tail, float32. The next
        call overwrites them."""
        return self._step(row, position)

    def _plain_step(self, row: Tensor, position: Tensor) -> dict[Channel, Tensor]:
        model, wiring = self._model, self._model.wiring
        hidden = wiring.embed(row[None], wiring.dtype)
        rope = wiring.rotary(hidden, position[None])
        mask = (torch.arange(self._capacity, device=row.device) <= position)[None, None, None]
        slots = iter(self._slots)

        def run(layers: list[nn.Module], hidden: Tensor) -> Tensor:
            for layer in layers:
                hidden = self._layer_step(layer, hidden, mask, rope, next(slots), position)
            return hidden

        hidden = run(model.trunk, hidden)
        return {
            tail: wiring.head(tail, model.norms[tail](run(model.tails[tail], hidden)))[0].float()
            for tail in CHANNELS
        }
