"""The decoder: a trunk of Qwen3 layers, then a text tail and an audio tail with their heads.

Three functions of flattened rows. It keeps no state: keys and values go to the caller's pages, and
the caller decides which tail runs, on which rows, and when.
"""

from torch import Tensor

from mosslive.config import ModelConfig
from mosslive.kernels import LayerPages, PagedBatch, RotaryTable
from mosslive.kernels.dispatch import AUTO
from mosslive.kernels.kernel_set import KernelSet
from mosslive.model.weights import DecoderWeights, LayerWeights
from mosslive.rows import Channel


class Decoder:
    def __init__(
        self, config: ModelConfig, weights: DecoderWeights, kernels: KernelSet | None = None
    ) -> None:
        """`kernels`: default: the Triton kernels on a GPU, else the PyTorch definitions."""
        self.config = config
        self.weights = weights
        norm = weights.tails["text"].norm
        self.device, self.dtype = norm.device, norm.dtype
        self.kernels = kernels or AUTO.kernels(self.device, self.dtype)
        # Whether attention reads `AttentionMetadata`; the definition reads spans.
        self.reads_metadata = self.kernels.is_triton
        self._rotary = RotaryTable(
            config.rope_theta,
            config.head_dim,
            config.max_position_embeddings,
            self.dtype,
            self.device,
        )

    def trunk(
        self, text: Tensor, audio: Tensor, pages: list[LayerPages], batch: PagedBatch
    ) -> Tensor:
        """text, audio int64 [T], the two ids of each row → residual stream after the shared layers
        [T, H]; there is no norm here."""
        tails, pad = self.weights.tails, self.config.modality_pad_token_id
        hidden = self.kernels.embed(text, audio, tails["text"].embed, tails["audio"].embed, pad)
        return self._run(self.weights.trunk, hidden, pages, batch)

    def tail(
        self,
        tail: Channel,
        hidden: Tensor,
        pages: list[LayerPages],
        batch: PagedBatch,
        wanted: Tensor | None = None,
        spare: bool = False,
    ) -> Tensor:
        """Trunk output [T, H] → the tail's residual stream [T, H], before its final norm; or [n, H]
        of the rows `wanted`, int64 [n]. All rows' keys and values go to the pages. `spare`:
        `hidden` is not needed afterwards and may be overwritten."""
        # Layers add to the stream in place, and the other tail needs the trunk's output.
        stream = hidden if spare else hidden.clone()
        return self._run(self.weights.tails[tail].layers, stream, pages, batch, wanted)

    def logits(self, tail: Channel, hidden: Tensor) -> Tensor:
        """[n, H] after a tail → [n, V] in the decoder's dtype."""
        weights = self.weights.tails[tail]
        normed = self.kernels.rms_norm(hidden, weights.norm, self.config.rms_norm_eps)
        return self.kernels.linear(normed, weights.head)

    def _run(
        self,
        layers: list[LayerWeights],
        hidden: Tensor,
        pages: list[LayerPages],
        batch: PagedBatch,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """The output of a half layer is added to the stream by the norm that follows, as one op."""
        kernels, eps = self.kernels, self.config.rms_norm_eps
        cos, signed_sin = self._rotary.cos, self._rotary.signed_sin
        delta = None
        for weights, layer_pages in zip(layers, pages, strict=True):
            qkv = kernels.norm_linear(hidden, delta, weights.input_norm, eps, weights.qkv)
            attended = kernels.attend(
                qkv, weights.qk_norm, eps, cos, signed_sin, layer_pages, batch
            ).flatten(1)
            if wanted is not None and weights is layers[-1]:  # no later layer reads the others
                hidden, attended = hidden[wanted], attended[wanted]
            delta = kernels.linear(attended, weights.o)
            delta = kernels.norm_feed_forward(
                hidden, delta, weights.post_norm, eps, weights.gate_up, weights.down
            )
        return hidden if delta is None else hidden + delta
