"""BigVGAN: a log-mel in, a waveform out, hop samples for each frame.

Stages of upsampling, each followed by the mean of residual blocks with anti-aliased snakes. Keeps
no state: `compute` is written once over a `Walk`, which says how a layer is applied, and the
streaming form is another walk. Does not know files, nor where a mel comes from; only a mel of the
settings it was trained on (`mel_settings`) means anything to it. Invariant: T frames give exactly
hop · T samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mosslive.checkpoint.bigvgan import EDGE_KERNEL, read_bigvgan
from mosslive.codec.bigvgan_graph import graphed_advance
from mosslive.codec.bigvgan_stream import BigVganState, BigVganStream
from mosslive.codec.convolution import Convolution, Upsampling, compute_in
from mosslive.codec.mel import MelSettings
from mosslive.codec.place import COMPUTE, check_device
from mosslive.codec.recording_cache import RecordingCache
from mosslive.codec.snake import SNAKE_REACH_SAMPLES, AntiAliasedSnake
from mosslive.codec.weight_norm import fold_weight_norm
from mosslive.config import refuse
from mosslive.config.bigvgan import BigVganConfig
from mosslive.errors import MossliveError
from mosslive.kernels.dispatch import AUTO, Dispatch


class Walk(Protocol):
    """How the network is walked: all frames at once, or as they come."""

    def layer(self, module: nn.Module, x: Tensor) -> Tensor:
        """A convolution, a transposed one or a snake applied to x [B, C, T]."""

    def add(self, conv: Convolution, x: Tensor, parts: Sequence[Tensor], scale: float) -> Tensor:
        """(The convolution of x + signals of the same rate) · scale, [B, C, T]."""


class _Whole:
    def layer(self, module: nn.Module, x: Tensor) -> Tensor:
        result: Tensor = module(x)
        return result

    def add(self, conv: Convolution, x: Tensor, parts: Sequence[Tensor], scale: float) -> Tensor:
        result: Tensor = conv(x, addends=parts, scale=scale)
        return result


class Reach(NamedTuple):
    """Frames before and after its own that a sample can depend on."""

    behind: int
    ahead: int


def reach_of(config: BigVganConfig) -> Reach:
    """Walks backwards from the samples of frame 0 to the first and last frame they see."""
    edge = (EDGE_KERNEL - 1) // 2
    first, last = 0, config.hop_size - 1
    widen = edge + SNAKE_REACH_SAMPLES
    blocks = zip(config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True)
    widest = max(
        sum((d + 1) * (kernel - 1) // 2 + 2 * SNAKE_REACH_SAMPLES for d in dilations)
        for kernel, dilations in blocks
    )
    stages = zip(config.upsample_rates, config.upsample_kernel_sizes, strict=True)
    for rate, kernel in reversed(list(stages)):
        first, last = first - widen - widest, last + widen + widest
        # Input i of a transposed convolution touches outputs i·rate - crop .. i·rate - crop + k-1.
        crop = (kernel - rate) // 2
        first, last = -((kernel - 1 - crop - first) // rate), (last + crop) // rate
        widen = 0
    return Reach(behind=edge - first, ahead=last + edge)


class _Block(nn.Module):
    """Residual pairs of convolutions, the first of each pair dilated, a snake before each."""

    def __init__(
        self,
        channels: int,
        kernel: int,
        dilations: Sequence[int],
        log_scale: bool,
        dispatch: Dispatch,
    ) -> None:
        super().__init__()
        conv = partial(_conv, channels, channels, kernel, dispatch=dispatch)
        self.convs1 = nn.ModuleList(conv(dilation=d) for d in dilations)
        self.convs2 = nn.ModuleList(conv() for _ in dilations)
        self.activations = nn.ModuleList(
            AntiAliasedSnake(channels, log_scale, dispatch) for _ in range(2 * len(dilations))
        )

    def forward(
        self, x: Tensor, walk: Walk, others: Sequence[Tensor] = (), scale: float = 1
    ) -> Tensor:
        """x [B, C, T], results of other blocks → (this block's + theirs) · scale."""
        snakes, last = iter(self.activations), len(self.convs2) - 1
        for index, (dilated, plain) in enumerate(zip(self.convs1, self.convs2, strict=True)):
            y = walk.layer(dilated, walk.layer(next(snakes), x))
            y = walk.layer(next(snakes), y)
            assert isinstance(plain, Convolution)
            # The last sum takes in everything, so that no sum is a pass of its own.
            parts = (x, *others) if index == last else (x,)
            x = walk.add(plain, y, parts, scale if index == last else 1)
        return x


class BigVgan(nn.Module):
    def __init__(self, config: BigVganConfig, dispatch: Dispatch = AUTO) -> None:
        super().__init__()
        self.config, self.dispatch = config, dispatch
        self.sample_rate = config.sampling_rate
        self.hop = config.hop_size
        self.reach = reach_of(config)
        first, *stages = config.channels
        log_scale = config.snake_logscale
        self.conv_pre = _conv(config.num_mels, first, EDGE_KERNEL, dispatch=dispatch)
        sizes = zip(stages, config.upsample_kernel_sizes, config.upsample_rates, strict=True)
        # A list in a list: the published names have an index for each.
        self.ups = nn.ModuleList(
            nn.ModuleList([Upsampling(2 * width, width, kernel, rate, dispatch)])
            for width, kernel, rate in sizes
        )
        blocks = list(
            zip(config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True)
        )
        self.resblocks = nn.ModuleList(
            _Block(width, kernel, dilations, log_scale, dispatch)
            for width in stages
            for kernel, dilations in blocks
        )
        self.activation_post = AntiAliasedSnake(stages[-1], log_scale, dispatch)
        bias = config.use_bias_at_final
        self.conv_post = _conv(stages[-1], 1, EDGE_KERNEL, bias=bias, dispatch=dispatch)
        self.recordings: RecordingCache[Any] = RecordingCache()
        self.requires_grad_(False)

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Tensor], config: BigVganConfig, dispatch: Dispatch = AUTO
    ) -> "BigVgan":
        """`tensors`: published names, weight norm folded or not. Rates and dilations cannot be read
        from shapes, so the config gives all dimensions, and the shapes must agree with it."""
        with torch.device("meta"):  # nothing is allocated: the tensors become the parameters
            network = cls(config, dispatch)
        try:
            network.load_state_dict(fold_weight_norm(tensors), strict=True, assign=True)
        except RuntimeError as error:
            raise MossliveError(f"tensors that are not this BigVGAN's: {error}") from None
        return network.requires_grad_(False).eval()

    @property
    def mel_settings(self) -> MelSettings:
        """The only mel this checkpoint understands."""
        return MelSettings.from_bigvgan(asdict(self.config))

    @torch.no_grad()
    def forward(self, mel: Tensor | NDArray[Any]) -> Tensor:
        """mel [B, bands, T] or [bands, T] → wave [B, hop · T] or [hop · T] in [-1, 1]."""
        frames = self.accept(mel)
        if frames.shape[-1]:
            wave = self.compute(frames, _Whole())
        else:
            wave = frames.new_zeros(frames.shape[0], 0)
        return wave if mel.ndim == 3 else wave[0]

    def stream(self, look_ahead_frames: int | None = None) -> BigVganStream:
        """A waveform that follows its mel; None waits for everything a sample depends on."""
        return BigVganStream(self, look_ahead_frames)

    def advance(self, state: BigVganState, mel: Tensor) -> tuple[Tensor, BigVganState]:
        """One step of a stream, see `bigvgan_stream.advance`; on a GPU as a recorded graph, once
        shapes repeat."""
        return graphed_advance(self, state, mel)

    def accept(self, mel: Tensor | NDArray[Any]) -> Tensor:
        """Any float mel [B, bands, T] or [bands, T] → [B, bands, T] as the weights are."""
        given = mel if isinstance(mel, Tensor) else torch.tensor(mel)
        bands = self.config.num_mels
        if given.ndim not in (2, 3) or given.shape[-2] != bands or not given.is_floating_point():
            raise MossliveError(
                f"a mel of shape {list(given.shape)} and type {given.dtype}; allowed: floats "
                f"[{bands}, frames] or [batch, {bands}, frames]"
            )
        batched = given if given.ndim == 3 else given[None]
        return batched.to(self.conv_pre.weight)

    def compute(self, mel: Tensor, walk: Walk) -> Tensor:
        """mel [B, bands, T] → wave [B, samples], float32 or wider, as far as the walk gets."""
        x = walk.layer(self.conv_pre, self.dispatch(mel).signal_layout(mel))  # [B, C, T]
        count = len(self.config.resblock_kernel_sizes)
        for stage in range(len(self.ups)):
            x = walk.layer(self.get_submodule(f"ups.{stage}.0"), x)  # [B, C / 2, rate · T]
            results: list[Tensor] = []
            for block in self.resblocks[stage * count : (stage + 1) * count]:
                mean = len(results) == count - 1
                results.append(block(x, walk, results if mean else (), 1 / count if mean else 1))
            x = results[-1]
        x = walk.layer(self.activation_post, x)
        wave = walk.layer(self.conv_post, x)[:, 0]
        wave = wave if wave.dtype == torch.float64 else wave.float()
        return wave.tanh() if self.config.use_tanh_at_final else wave.clamp(-1, 1)


def load_bigvgan(path: str | Path, device: str = "cpu", dtype: str = "float32") -> BigVgan:
    """Reads a published BigVGAN folder. `dtype`: of convolutions and of what is stored between
    them: "float32", "bfloat16" or "float16"; snakes always compute in float32."""
    if dtype not in COMPUTE:
        raise refuse("dtype", dtype, ", ".join(COMPUTE))
    place = check_device(device)
    config, tensors = read_bigvgan(path)
    network = BigVgan.from_tensors(tensors, config).to(place)
    compute_in(network, COMPUTE[dtype])
    return network


def _conv(
    inputs: int,
    outputs: int,
    kernel: int,
    *,
    dilation: int = 1,
    bias: bool = True,
    dispatch: Dispatch,
) -> Convolution:
    """As many samples out as in; zeros stand beyond the ends."""
    return Convolution(
        inputs,
        outputs,
        kernel,
        padding=dilation * (kernel - 1) // 2,
        dilation=dilation,
        bias=bias,
        dispatch=dispatch,
    )
