"""BigVGAN's generator: a log-mel in, a waveform out, hop samples for each frame.

Stages of upsampling, each followed by the mean of residual blocks with anti-aliased snakes. Has no
state. `compute` is written once over a `LayerRunner`, which applies one layer; the whole form runs
a layer over all samples, the streaming form (`step`) over the new ones. Does not know files,
streams, or where a mel comes from. The input must be a mel of `mel_settings`, the settings of the
training. Invariant: T frames give exactly hop · T samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mosslive.checkpoint.bigvgan import EDGE_KERNEL
from mosslive.codec.bigvgan.snake import SNAKE_REACH_SAMPLES, AntiAliasedSnake
from mosslive.codec.convolution import Convolution, Upsampling
from mosslive.codec.mel import MelSettings
from mosslive.codec.recording_cache import RecordingCache
from mosslive.codec.weight_norm import fold_weight_norm
from mosslive.config.bigvgan import BigVganConfig
from mosslive.errors import MossliveError
from mosslive.kernels.dispatch import AUTO, Dispatch


class LayerRunner(Protocol):
    """Applies single layers: over all samples at once, or over the new samples of a stream."""

    def layer(self, module: nn.Module, x: Tensor) -> Tensor:
        """Applies a convolution, a transposed convolution or a snake to x [B, C, T]."""

    def add(self, conv: Convolution, x: Tensor, parts: Sequence[Tensor], scale: float) -> Tensor:
        """(The convolution of x + signals of the same rate) · scale, [B, C, T]."""


class _AllSamples:
    def layer(self, module: nn.Module, x: Tensor) -> Tensor:
        result: Tensor = module(x)
        return result

    def add(self, conv: Convolution, x: Tensor, parts: Sequence[Tensor], scale: float) -> Tensor:
        result: Tensor = conv(x, addends=parts, scale=scale)
        return result


class Reach(NamedTuple):
    """How many frames before and after its own a sample can depend on."""

    behind: int
    ahead: int


def reach_of(config: BigVganConfig) -> Reach:
    """Traces the samples of frame 0 back to the first and last frame that they depend on."""
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
        self, x: Tensor, runner: LayerRunner, others: Sequence[Tensor] = (), scale: float = 1
    ) -> Tensor:
        """x [B, C, T], results of other blocks → (this block's + theirs) · scale."""
        snakes, last = iter(self.activations), len(self.convs2) - 1
        for index, (dilated, plain) in enumerate(zip(self.convs1, self.convs2, strict=True)):
            y = runner.layer(dilated, runner.layer(next(snakes), x))
            y = runner.layer(next(snakes), y)
            assert isinstance(plain, Convolution)
            # The last convolution adds everything, so that no sum needs a kernel of its own.
            parts = (x, *others) if index == last else (x,)
            x = runner.add(plain, y, parts, scale if index == last else 1)
        return x


class BigVganNetwork(nn.Module):
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
        # Two nested lists, because the published names have two indices.
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
    ) -> Self:
        """`tensors`: published names, weight norm folded or not. Rates and dilations cannot be read
        from shapes, so the config gives all dimensions, and the shapes must agree with it."""
        with torch.device("meta"):  # allocates nothing: the tensors become the parameters
            network = cls(config, dispatch)
        try:
            network.load_state_dict(fold_weight_norm(tensors), strict=True, assign=True)
        except RuntimeError as error:
            raise MossliveError(f"the tensors do not fit the BigVGAN config: {error}") from None
        return network.requires_grad_(False).eval()

    @property
    def mel_settings(self) -> MelSettings:
        """The mel that this checkpoint was trained on; its only valid input."""
        return MelSettings.from_bigvgan(asdict(self.config))

    @torch.no_grad()
    def forward(self, mel: Tensor | NDArray[Any]) -> Tensor:
        """mel [B, bands, T] or [bands, T] → wave [B, hop · T] or [hop · T] in [-1, 1]."""
        frames = self.accept(mel)
        if frames.shape[-1]:
            wave = self.compute(frames, _AllSamples())
        else:
            wave = frames.new_zeros(frames.shape[0], 0)
        return wave if mel.ndim == 3 else wave[0]

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

    def compute(self, mel: Tensor, runner: LayerRunner) -> Tensor:
        """mel [B, bands, T] → wave [B, samples], float32 or float64. A streaming runner
        returns only the samples that it can finish."""
        x = runner.layer(self.conv_pre, self.dispatch(mel).signal_layout(mel))  # [B, C, T]
        count = len(self.config.resblock_kernel_sizes)
        for stage in range(len(self.ups)):
            x = runner.layer(self.get_submodule(f"ups.{stage}.0"), x)  # [B, C / 2, rate · T]
            results: list[Tensor] = []
            for block in self.resblocks[stage * count : (stage + 1) * count]:
                mean = len(results) == count - 1
                results.append(block(x, runner, results if mean else (), 1 / count if mean else 1))
            x = results[-1]
        x = runner.layer(self.activation_post, x)
        wave = runner.layer(self.conv_post, x)[:, 0]
        wave = wave if wave.dtype == torch.float64 else wave.float()
        return wave.tanh() if self.config.use_tanh_at_final else wave.clamp(-1, 1)


def _conv(
    inputs: int,
    outputs: int,
    kernel: int,
    *,
    dilation: int = 1,
    bias: bool = True,
    dispatch: Dispatch,
) -> Convolution:
    """Returns as many samples as it takes; pads with zeros at both ends."""
    return Convolution(
        inputs,
        outputs,
        kernel,
        padding=dilation * (kernel - 1) // 2,
        dilation=dilation,
        bias=bias,
        dispatch=dispatch,
    )
