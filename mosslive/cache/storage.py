"""The tensors behind the pages: keys and values of all layers, and the trunk's output per row.

An idle tail needs the trunk's output to catch up later. Sizes come from the config. Does not know
which page belongs to which table.
"""

import torch

from mosslive.cache.table import PageCopy
from mosslive.config import ModelConfig
from mosslive.kernels import LayerPages
from mosslive.rows import CHANNELS, Channel


class PageStorage:
    """One page more than the pool has: the last one takes writes that are never read."""

    def __init__(
        self,
        config: ModelConfig,
        pages: int,
        page_size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.scratch_slot = pages * page_size
        # Not initialised: on a CPU, memory of untouched pages is never committed.
        shape = (pages + 1, page_size, config.num_key_value_heads, config.head_dim)

        def layers(count: int) -> list[LayerPages]:
            return [
                LayerPages(*(torch.empty(shape, device=device, dtype=dtype) for _ in range(2)))
                for _ in range(count)
            ]

        self.trunk = layers(config.num_shared_layers)
        self.tails: dict[Channel, list[LayerPages]] = {
            tail: layers(config.num_modality_layers) for tail in CHANNELS
        }
        self.hidden = torch.empty(
            (pages + 1, page_size, config.hidden_size), device=device, dtype=dtype
        )

    def apply(self, copies: list[PageCopy]) -> None:
        for source, target, rows in copies:
            self.hidden[target, :rows] = self.hidden[source, :rows]
            for layers in (self.trunk, *self.tails.values()):
                for k, v in layers:
                    k[target, :rows] = k[source, :rows]
                    v[target, :rows] = v[source, :rows]


def row_bytes(config: ModelConfig, dtype: torch.dtype) -> int:
    """Memory of one row in the pages: keys and values of every layer, and the trunk's output."""
    keys = 2 * config.layers * config.num_key_value_heads * config.head_dim
    return (keys + config.hidden_size) * dtype.itemsize
