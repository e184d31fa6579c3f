"""The flow's estimator: the velocity of noisy mel frames at a time t, under a condition.

A U-Net that does not change the time resolution: causal ResNet blocks, each followed by a few
transformer blocks. No position enters; only the past distinguishes frames. It does not know of
guidance or of the solver.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mosslive.codec.flow_past import Past, causal
from mosslive.codec.flow_tensors import count_of, shape_of
from mosslive.errors import MossliveError

PUBLISHED_HEAD_DIM = 64  # no tensor shows it
_ROOT = "decoder.estimator."


@dataclass(frozen=True)
class EstimatorDims:
    bands: int  # mel bands, in and out
    inputs: int  # noisy mel, mu, speaker and condition, one after another
    channels: int
    time_hidden: int
    inner: int  # heads · head_dim
    head_dim: int
    ffn: int
    n_blocks: int  # transformer blocks after each ResNet block
    mid_blocks: int

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], head_dim: int) -> "EstimatorDims":
        inner, channels = shape_of(tensors, f"{_ROOT}mid_blocks.0.1.0.attn1.to_q.weight", 2)
        if inner % head_dim:
            raise MossliveError(
                f"flow: the estimator's attention is {inner} wide, which is not a multiple of "
                f"head_dim {head_dim}"
            )
        return cls(
            bands=shape_of(tensors, f"{_ROOT}final_proj.weight", 3)[0],
            inputs=shape_of(tensors, f"{_ROOT}down_blocks.0.0.block1.block.0.weight", 3)[1],
            channels=channels,
            time_hidden=shape_of(tensors, f"{_ROOT}time_mlp.linear_1.weight", 2)[0],
            inner=inner,
            head_dim=head_dim,
            ffn=shape_of(tensors, f"{_ROOT}mid_blocks.0.1.0.ff.net.2.weight", 2)[1],
            n_blocks=count_of(tensors, f"{_ROOT}mid_blocks.0.1"),
            mid_blocks=count_of(tensors, f"{_ROOT}mid_blocks"),
        )

    @property
    def heads(self) -> int:
        return self.inner // self.head_dim


def time_embedding(t: Tensor, width: int) -> Tensor:
    """t [1] → [1, width]: sines, then cosines, of 1000 · t at falling frequencies."""
    half = width // 2
    steps = torch.arange(half, device=t.device, dtype=torch.float32)
    angle = 1000 * t[:, None].float() * torch.exp(steps * (-math.log(10000.0) / (half - 1)))
    return torch.cat((angle.sin(), angle.cos()), 1).to(t.dtype)


class _TimeMlp(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(width, hidden)
        self.linear_2 = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear_2(F.silu(self.linear_1(x)))
        return y


class _Block(nn.Module):
    """Causal convolution, LayerNorm over channels, Mish."""

    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        # Numbered as published: the layers between and after these two have no weights.
        self.block = nn.ModuleDict(
            {"0": nn.Conv1d(inputs, channels, 3), "2": nn.LayerNorm(channels)}
        )

    @property
    def conv(self) -> nn.Conv1d:
        conv = self.block["0"]
        assert isinstance(conv, nn.Conv1d)
        return conv

    @property
    def norm(self) -> nn.LayerNorm:
        norm = self.block["2"]
        assert isinstance(norm, nn.LayerNorm)
        return norm

    def forward(self, x: Tensor, past: Past) -> Tensor:
        return F.mish(self.norm(causal(self.conv, x, past).mT)).mT  # [R, C, T]


class Resnet(nn.Module):
    def __init__(self, inputs: int, dims: EstimatorDims) -> None:
        super().__init__()
        self.block1 = _Block(inputs, dims.channels)
        self.block2 = _Block(dims.channels, dims.channels)
        self.mlp = nn.ModuleDict({"1": nn.Linear(dims.time_hidden, dims.channels)})
        self.res_conv = nn.Conv1d(inputs, dims.channels, 1)

    @property
    def time(self) -> nn.Linear:
        return _as_linear(self.mlp["1"])

    def forward(self, x: Tensor, time: Tensor, past: Past) -> Tensor:
        """x [R, C, T], time [1, hidden] with Mish applied: the same vector for every frame."""
        h = self.block1(x, past) + self.time(time)[:, :, None]
        y: Tensor = self.block2(h, past) + self.res_conv(x)
        return y


class _Attention(nn.Module):
    def __init__(self, dims: EstimatorDims) -> None:
        super().__init__()
        self._heads = (dims.heads, dims.head_dim)
        self.to_q = nn.Linear(dims.channels, dims.inner, bias=False)
        self.to_k = nn.Linear(dims.channels, dims.inner, bias=False)
        self.to_v = nn.Linear(dims.channels, dims.inner, bias=False)
        self.to_out = nn.ModuleDict({"0": nn.Linear(dims.inner, dims.channels)})

    @property
    def out(self) -> nn.Linear:
        return _as_linear(self.to_out["0"])

    def forward(self, x: Tensor, past: Past) -> Tensor:
        q, k, v = (
            linear(x).unflatten(2, self._heads).transpose(1, 2)  # [R, H, T, D]
            for linear in (self.to_q, self.to_k, self.to_v)
        )
        y: Tensor = self.out(past.attend(q, k, v).transpose(1, 2).flatten(2))
        return y


class _FeedForward(nn.Module):
    def __init__(self, dims: EstimatorDims) -> None:
        super().__init__()
        first = nn.ModuleDict({"proj": nn.Linear(dims.channels, dims.ffn)})
        self.net = nn.ModuleDict({"0": first, "2": nn.Linear(dims.ffn, dims.channels)})

    @property
    def first(self) -> nn.Linear:
        first = self.net["0"]
        assert isinstance(first, nn.ModuleDict)
        return _as_linear(first["proj"])

    @property
    def second(self) -> nn.Linear:
        return _as_linear(self.net["2"])

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(F.gelu(self.first(x)))
        return y


class Transformer(nn.Module):
    def __init__(self, dims: EstimatorDims) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dims.channels)
        self.attn1 = _Attention(dims)
        self.norm3 = nn.LayerNorm(dims.channels)
        self.ff = _FeedForward(dims)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        x = x + self.attn1(self.norm1(x), past)
        y: Tensor = x + self.ff(self.norm3(x))
        return y


class Stage(nn.ModuleList):
    """0: ResNet block, 1: its transformer blocks, and in the outer stages 2: a convolution."""

    def __init__(self, inputs: int, dims: EstimatorDims, outer: bool) -> None:
        blocks = nn.ModuleList(Transformer(dims) for _ in range(dims.n_blocks))
        parts: list[nn.Module] = [Resnet(inputs, dims), blocks]
        if outer:
            parts.append(nn.Conv1d(dims.channels, dims.channels, 3))
        super().__init__(parts)

    @property
    def resnet(self) -> Resnet:
        resnet = self[0]
        assert isinstance(resnet, Resnet)
        return resnet

    @property
    def blocks(self) -> list[Transformer]:
        blocks = self[1]
        assert isinstance(blocks, nn.ModuleList)
        return [block for block in blocks if isinstance(block, Transformer)]

    @property
    def conv(self) -> nn.Conv1d:
        """Of the outer stages only."""
        conv = self[2]
        assert isinstance(conv, nn.Conv1d)
        return conv

    def run(self, x: Tensor, time: Tensor, past: Past) -> Tensor:
        """ResNet and transformer blocks: [R, inputs, T] → [R, C, T]"""
        x = self.resnet(x, time, past).mT
        for block in self.blocks:
            x = block(x, past)
        return x.mT


class Estimator(nn.Module):
    def __init__(self, dims: EstimatorDims) -> None:
        super().__init__()
        self.dims = dims
        width = dims.channels
        self.time_mlp = _TimeMlp(dims.inputs, dims.time_hidden)
        self.down_blocks = nn.ModuleList([Stage(dims.inputs, dims, outer=True)])
        self.mid_blocks = nn.ModuleList(
            Stage(width, dims, outer=False) for _ in range(dims.mid_blocks)
        )
        self.up_blocks = nn.ModuleList([Stage(2 * width, dims, outer=True)])
        self.final_block = _Block(width, width)
        self.final_proj = nn.Conv1d(width, dims.bands, 1)

    def forward(self, x: Tensor, t: Tensor, past: Past) -> Tensor:
        """x [R, inputs, T], t [1] in 0..1 → velocity [R, bands, T]."""
        time = F.mish(self.time_mlp(time_embedding(t, self.dims.inputs)))
        skip = self.down.run(x, time, past)
        x = causal(self.down.conv, skip, past)
        for stage in self.middle:
            x = stage.run(x, time, past)
        x = self.up.run(torch.cat((x, skip), 1), time, past)
        x = causal(self.up.conv, x, past)
        y: Tensor = self.final_proj(self.final_block(x, past))
        return y

    @property
    def down(self) -> Stage:
        stage = self.down_blocks[0]
        assert isinstance(stage, Stage)
        return stage

    @property
    def middle(self) -> list[Stage]:
        return [stage for stage in self.mid_blocks if isinstance(stage, Stage)]

    @property
    def up(self) -> Stage:
        stage = self.up_blocks[0]
        assert isinstance(stage, Stage)
        return stage

    @property
    def layers(self) -> int:
        """Number of attention layers, which call their past in a fixed order."""
        return self.dims.n_blocks * (self.dims.mid_blocks + 2)

    def tail_values(self) -> int:
        """Values that a stream stores between chunks for all convolutions, per row."""
        convs = (part for part in self.modules() if isinstance(part, nn.Conv1d))
        return sum(conv.in_channels * (conv.kernel_size[0] - 1) for conv in convs)


def _as_linear(module: nn.Module) -> nn.Linear:
    assert isinstance(module, nn.Linear)
    return module
