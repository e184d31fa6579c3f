"""The estimator and its solver for one chunk of many streams, as a sequence of fused operations.

The same function as `estimator.Estimator` with `flow_solver.solve`, with channels last. Weights are
packed once: norms are folded into the products after them, q, k and v are one product, the 1x1
convolution of a ResNet block is part of its first convolution, and terms that depend on the time
alone are computed for every Euler step beforehand. Invariant: it writes only the pages of the
chunks it computes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mosslive.codec.estimator import Estimator, Stage, Transformer, time_embedding
from mosslive.codec.flow_pages import PageStore
from mosslive.codec.flow_solver import FlowSettings
from mosslive.kernels.flow_chunks import Chunks
from mosslive.kernels.flow_conv import TAPS, Activation
from mosslive.kernels.kernel_set import KernelSet


@dataclass(frozen=True, eq=False)
class _Product:
    weight: Tensor  # [N, K], compute type
    bias: Tensor  # [N] float32


@dataclass(frozen=True, eq=False)
class _Convolution:
    weight: Tensor  # [N, 3 · C], compute type
    bias: Tensor  # [N] float32
    offset: int  # of its tail among those of one Euler step


@dataclass(frozen=True, eq=False)
class _Block:
    """A transformer block."""

    qkv: _Product
    out: _Product
    ff_in: _Product
    ff_out: _Product


@dataclass(frozen=True, eq=False)
class _Stage:
    first: _Convolution  # its outputs, then those of the 1x1 convolution
    first_norm: tuple[Tensor, Tensor]
    times: Tensor  # [steps, C]
    second: _Convolution
    second_norm: tuple[Tensor, Tensor]
    blocks: list[_Block]


class EstimatorStep:
    """Packed weights; `solve` runs them."""

    def __init__(
        self, estimator: Estimator, settings: FlowSettings, dtype: torch.dtype, kernels: KernelSet
    ) -> None:
        """`dtype`: of the inputs of products. Sums and everything else are float32."""
        self._settings, self._dtype, self._kernels = settings, dtype, kernels
        self._dims = estimator.dims
        device = estimator.final_proj.weight.device
        grid = torch.tensor(settings.grid[:-1], device=device)[:, None]  # [steps, 1]
        times = torch.cat([time_embedding(t, estimator.dims.inputs) for t in grid])
        self._mish_times = F.mish(estimator.time_mlp(times))  # [steps, hidden]
        self._tail_values = 0  # assigned so far
        self._down = self._stage(estimator.down)
        self._down_leave = self._convolution(estimator.down.conv)
        self._middle = [self._stage(stage) for stage in estimator.middle]
        self._up = self._stage(estimator.up)
        self._up_leave = self._convolution(estimator.up.conv)
        self._final = self._convolution(estimator.final_block.conv)
        self._final_norm = _norm(estimator.final_block.norm)
        proj = estimator.final_proj
        self._proj = (proj.weight[:, :, 0], _bias(proj))
        assert self._tail_values == estimator.tail_values(), "every convolution has its tail"

    def solve(
        self, noise: Tensor, condition: Tensor, store: PageStore, chunks: Chunks, window: int | None
    ) -> Tensor:
        """noise [B, T, bands], condition [B, T, inputs - bands]: mu, speaker and known frames →
        mel [B, T, bands]. All float32."""
        settings, (streams, columns, bands) = self._settings, noise.shape
        inputs = noise.new_zeros(settings.halves, streams, columns, self._dims.inputs)
        inputs[:, :, :, :bands] = noise
        inputs[0, :, :, bands:] = condition
        rows = inputs.view(-1, self._dims.inputs)  # conditional half, then unconditional
        x = noise.reshape(-1, bands).clone(memory_format=torch.contiguous_format)
        layers = len(store.layers) // settings.steps
        for step, (now, then) in enumerate(pairwise(settings.grid)):
            run = _Run(
                self._kernels,
                chunks,
                window,
                store.layers[step * layers : (step + 1) * layers],
                store.tails,
                step * self._tail_values,
                step,
            )
            velocity = self._velocity(rows, run)
            if settings.guidance:
                self._kernels.euler_(x, velocity, rows, then - now, settings.guidance)
            else:
                x += (then - now) * velocity
                rows[:, :bands] = x
        return x.view(noise.shape)

    def _velocity(self, rows: Tensor, run: "_Run") -> Tensor:
        skip = run.stage(self._down, rows)
        x = run.convolve(self._down_leave, skip)
        for stage in self._middle:
            x = run.stage(stage, x)
        x = run.stage(self._up, torch.cat((x, skip), 1))
        x = run.convolve(self._final, run.convolve(self._up_leave, x))
        weight, bias = self._proj
        return F.linear(self._kernels.norm_mish_add(x, *self._final_norm, None), weight, bias)

    # Packing

    def _stage(self, stage: Stage) -> _Stage:
        resnet = stage.resnet
        first = self._convolution(resnet.block1.conv, joined=resnet.res_conv)
        second = self._convolution(resnet.block2.conv)
        blocks = [self._block(block) for block in stage.blocks]
        return _Stage(
            first,
            _norm(resnet.block1.norm),
            resnet.time(self._mish_times),
            second,
            _norm(resnet.block2.norm),
            blocks,
        )

    def _block(self, block: Transformer) -> _Block:
        attention, feed = block.attn1, block.ff
        qkv = [linear.weight for linear in (attention.to_q, attention.to_k, attention.to_v)]
        return _Block(
            self._folded(torch.cat(qkv), None, block.norm1),
            self._product(attention.out),
            self._folded(feed.first.weight, feed.first.bias, block.norm3),
            self._product(feed.second),
        )

    def _convolution(self, conv: nn.Conv1d, joined: nn.Conv1d | None = None) -> _Convolution:
        weight, bias = conv.weight, _bias(conv)
        if joined is not None:
            weight = torch.cat((weight, F.pad(joined.weight, (TAPS - 1, 0))))
            bias = torch.cat((bias, _bias(joined)))
        offset = self._tail_values
        self._tail_values += (TAPS - 1) * conv.in_channels
        by_tap = weight.transpose(1, 2).flatten(1)  # [N, 3 · C]
        return _Convolution(by_tap.to(self._dtype), bias, offset)

    def _product(self, linear: nn.Linear) -> _Product:
        return _Product(linear.weight.to(self._dtype), _bias(linear))

    def _folded(self, weight: Tensor, bias: Tensor | None, norm: nn.LayerNorm) -> _Product:
        """weight · (n · scale + shift) + bias = (weight · scale) · n + (weight · shift + bias)"""
        shift = weight @ norm.bias
        moved = shift if bias is None else shift + bias
        return _Product((weight * norm.weight).to(self._dtype), moved)


class _Run:
    """One evaluation of the estimator, with the pages of one Euler step."""

    def __init__(
        self,
        kernels: KernelSet,
        chunks: Chunks,
        window: int | None,
        layers: Sequence[Tensor],
        tails: Tensor,
        first_value: int,
        step: int,
    ) -> None:
        """`layers`: the pages of this step's attention layers, [2, P, 2, H, T, D] each; `tails`
        [P, 2, V], of which this step's begin at `first_value`."""
        self._kernels, self._chunks, self._window = kernels, chunks, window
        self._layers, self._tails, self._first_value = iter(layers), tails, first_value
        self._step = step

    def stage(self, stage: _Stage, x: Tensor) -> Tensor:
        """ResNet and transformer blocks: [M, C] → [M, channels], float32."""
        channels = len(stage.second.bias)
        both = self.convolve(stage.first, x)  # [M, 2 · channels]
        activation = Activation(*stage.first_norm, stage.times[self._step])
        y = self.convolve(stage.second, both[:, :channels], activation)
        x = self._kernels.norm_mish_add(y, *stage.second_norm, both[:, channels:])
        for block in stage.blocks:
            self._transform(block, x)
        return x

    def convolve(
        self, conv: _Convolution, x: Tensor, activation: Activation | None = None
    ) -> Tensor:
        offset = self._first_value + conv.offset
        rows = self._kernels.conv_rows(
            x, self._tails, offset, self._chunks, conv.weight.dtype, activation
        )
        return self._kernels.conv_product(rows, conv.weight, conv.bias)

    def _transform(self, block: _Block, x: Tensor) -> None:
        kernels, chunks, pages = self._kernels, self._chunks, next(self._layers)
        q = kernels.norm_qkv(x, block.qkv.weight, block.qkv.bias, pages, chunks)
        attended = kernels.chunk_attention(q, pages, chunks, self._window)
        kernels.add_linear_(x, attended.reshape(len(x), -1), block.out.weight, block.out.bias)
        hidden = kernels.norm_linear_gelu(x, block.ff_in.weight, block.ff_in.bias)
        kernels.add_linear_(x, hidden, block.ff_out.weight, block.ff_out.bias)


def _bias(layer: nn.Linear | nn.Conv1d) -> Tensor:
    assert layer.bias is not None
    return layer.bias


def _norm(norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    return norm.weight, norm.bias
