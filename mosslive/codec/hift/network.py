"""HiFT, the vocoder of the flow's mel: 50 frames a second in, a 24 kHz waveform out.

A harmonic source follows the mel's pitch; convolutions shape its short spectra into those of
speech, which one inverse transform turns into samples. Has no state and knows no stream (`stream`
does). Invariant: T frames give exactly 480 · T samples; rows of a batch are independent.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mosslive.codec.convolution import Convolution, Upsampling, compute_in
from mosslive.codec.hift.source import F0Predictor, HarmonicSource, SourceSettings
from mosslive.codec.recording_cache import RecordingCache
from mosslive.codec.weight_norm import fold_weight_norm
from mosslive.errors import MossliveError, name_list
from mosslive.kernels.conv1d import join
from mosslive.kernels.dispatch import AUTO, Dispatch
from mosslive.kernels.trace import fork

_MOST_MAGNITUDE = 100.0  # of a spectral line; exp() of an untrained layer has no bound
_LAST_SLOPE = 0.01  # the last leaky ReLU is the published one with its default slope, not `slope`


@dataclass(frozen=True)
class HiftSettings:
    """The published network. Widths are replaced by those of the tensors. The rest cannot be read
    from shapes; a kernel of another size is an error."""

    mel_bins: int = 80
    channels: int = 512  # halved by each upsampling
    f0_channels: int = 512
    harmonics: int = 8
    upsample_rates: tuple[int, ...] = (8, 5, 3)
    upsample_kernels: tuple[int, ...] = (16, 11, 7)
    resblock_kernels: tuple[int, ...] = (3, 7, 11)
    source_kernels: tuple[int, ...] = (7, 7, 11)
    dilations: tuple[int, ...] = (1, 3, 5)
    n_fft: int = 16
    hop_samples: int = 4
    slope: float = 0.1
    audio_limit: float = 0.99
    source: SourceSettings = field(default_factory=SourceSettings)

    def __post_init__(self) -> None:
        rates, kernels = self.upsample_rates, self.upsample_kernels
        if not len(rates) == len(kernels) == len(self.source_kernels):
            raise MossliveError("HiFT needs one upsample kernel and one source kernel per rate")
        if any(k < rate or (k - rate) % 2 for rate, k in zip(rates, kernels, strict=True)):
            raise MossliveError(f"HiFT: kernels {kernels} must exceed {rates} by even numbers")
        if self.channels % 2 ** len(rates):
            raise MossliveError(f"HiFT: {self.channels} channels cannot be halved {len(rates)}×")
        if self.n_fft % 2 or self.n_fft % self.hop_samples:
            raise MossliveError(f"HiFT: n_fft {self.n_fft} must be even and a multiple of the hop")

    @property
    def samples_per_frame(self) -> int:
        return math.prod(self.upsample_rates) * self.hop_samples

    @property
    def bins(self) -> int:
        return self.n_fft // 2 + 1

    def sized_by(self, tensors: Mapping[str, Tensor]) -> "HiftSettings":
        """These settings with the widths of folded tensors."""

        def shape(name: str, axes: int) -> torch.Size:
            if name not in tensors or tensors[name].dim() != axes:
                raise MossliveError(f"HiFT has no tensor {name} of {axes} axes")
            return tensors[name].shape

        channels, mel_bins, _ = shape("conv_pre.weight", 3)
        _, f0_channels = shape("f0_predictor.classifier.weight", 2)
        harmonics = shape("m_source.l_linear.weight", 2)[1] - 1
        return replace(
            self,
            mel_bins=mel_bins,
            channels=channels,
            f0_channels=f0_channels,
            harmonics=harmonics,
        )


class HiftResult(NamedTuple):
    wave: Tensor  # [B, S · T]
    source: Tensor  # [B, S · T], as used


class _Snake(nn.Module):
    """The tensor of x + sin²(α x) / α, one α per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(channels))


class _ResBlock(nn.Module):
    """Residual pairs of convolutions, the first of each pair dilated, a snake before each."""

    def __init__(
        self, channels: int, kernel: int, dilations: tuple[int, ...], dispatch: Dispatch = AUTO
    ) -> None:
        super().__init__()
        self.dispatch = dispatch

        def conv(dilation: int = 1) -> Convolution:
            padding = dilation * (kernel - 1) // 2
            return Convolution(
                channels, channels, kernel, dilation=dilation, padding=padding, dispatch=dispatch
            )

        self.convs1 = nn.ModuleList(conv(d) for d in dilations)
        self.convs2 = nn.ModuleList(conv() for _ in dilations)
        self.activations1 = nn.ModuleList(_Snake(channels) for _ in dilations)
        self.activations2 = nn.ModuleList(_Snake(channels) for _ in dilations)

    def forward(
        self,
        x: Tensor,
        others: Sequence[Callable[[], Tensor]] = (),
        scale: float = 1,
        slope: float = 1,
    ) -> Tensor:
        """x, others [B, C, T] → leaky ReLU of (this block's result + the others) · scale. The
        convolution before a snake computes it, the last convolution the last sum; the others are
        needed only then."""
        snakes1 = [each.get_parameter("alpha") for each in self.activations1]
        snakes2 = [each.get_parameter("alpha") for each in self.activations2]
        bent, last = self.dispatch(x).snake(x, snakes1[0]), len(snakes1) - 1
        for index, (dilated, plain) in enumerate(zip(self.convs1, self.convs2, strict=True)):
            assert isinstance(plain, Convolution)
            bent = dilated(bent, activation="snake", alpha=snakes2[index])
            if index < last:
                x, bent = plain.with_snake(bent, snakes1[index + 1], addends=(x,))
            else:
                addends = (x, *(other() for other in others))
                x = plain(bent, addends=addends, scale=scale, activation="leaky", slope=slope)
        return x


class Hift(nn.Module):
    window: Tensor

    def __init__(self, settings: HiftSettings, dispatch: Dispatch = AUTO) -> None:
        super().__init__()
        self.settings, self.dispatch = settings, dispatch
        mel_bins, lines = settings.mel_bins, 2 * settings.bins  # real and imaginary parts
        self.f0_predictor = F0Predictor(mel_bins, settings.f0_channels, dispatch)
        self.m_source = HarmonicSource(
            settings.source, settings.harmonics, settings.samples_per_frame
        )
        self.conv_pre = Convolution(mel_bins, settings.channels, 7, padding=3, dispatch=dispatch)
        self.ups, self.source_downs = nn.ModuleList(), nn.ModuleList()
        self.source_resblocks, self.resblocks = nn.ModuleList(), nn.ModuleList()
        width = settings.channels
        for stage, rate in enumerate(settings.upsample_rates):
            kernel, width = settings.upsample_kernels[stage], width // 2
            self.ups.append(Upsampling(2 * width, width, kernel, rate, dispatch))
            # From the spectra's rate down to this stage's: by all rates that are still to come.
            down = math.prod(settings.upsample_rates[stage + 1 :])
            reach = 2 * down if down > 1 else 1
            self.source_downs.append(
                Convolution(lines, width, reach, down, padding=down // 2, dispatch=dispatch)
            )
            self.source_resblocks.append(
                _ResBlock(width, settings.source_kernels[stage], settings.dilations, dispatch)
            )
            self.resblocks.extend(
                _ResBlock(width, kernel, settings.dilations, dispatch)
                for kernel in settings.resblock_kernels
            )
        self.conv_post = Convolution(width, lines, 7, padding=3, dispatch=dispatch)
        self.recordings: RecordingCache[Any] = RecordingCache()  # windows of streams
        # Not in the checkpoint. On the CPU by name, so that it is real when built on "meta".
        window = torch.hann_window(settings.n_fft, periodic=True, device="cpu")
        self.register_buffer("window", window, persistent=False)

    @classmethod
    def from_tensors(
        cls,
        tensors: Mapping[str, Tensor],
        settings: HiftSettings | None = None,
        dispatch: Dispatch = AUTO,
    ) -> "Hift":
        """The network of a checkpoint, weight norm folded or not, in float32 on the tensors'
        device. `settings` gives what shapes cannot; default: as published."""
        folded = {name: tensor.float() for name, tensor in fold_weight_norm(tensors).items()}
        with torch.device("meta"):  # no memory, and no use of the global generator
            hift = cls((settings or HiftSettings()).sized_by(folded), dispatch)
        wanted = {name: tensor.shape for name, tensor in hift.state_dict().items()}
        if missing := sorted(wanted.keys() - folded.keys()):
            raise MossliveError(f"HiFT has no tensor {name_list(missing)}")
        if extra := sorted(folded.keys() - wanted.keys()):
            raise MossliveError(f"HiFT knows no tensor {name_list(extra)}")
        for name, shape in wanted.items():
            _check(name, folded[name], tuple(shape))
        hift.load_state_dict(folded, assign=True)
        return hift.to(folded["conv_pre.weight"].device).eval().requires_grad_(False)

    def compute_in(self, dtype: torch.dtype) -> None:
        """The convolutions that shape the sound compute in `dtype` from now on. Pitch, source and
        the transforms stay in float32, as do the tensors of snakes."""
        shaping = self.ups, self.source_downs, self.source_resblocks, self.resblocks
        for part in (self.conv_pre, *shaping, self.conv_post):
            compute_in(part, dtype)

    def f0(self, mel: Tensor) -> Tensor:
        """mel [B, M, T] → pitch in Hz [B, T]."""
        self._frames_of(mel)
        pitch: Tensor = self.f0_predictor(mel)
        return pitch

    def source(self, f0: Tensor, noise: Tensor | None = None, begin: int = 0) -> Tensor:
        """f0 [B, T], noise [B, S · T, harmonics + 1] or None for zero → the samples from `begin`
        on, [B, S · T - begin]."""
        if f0.dim() != 2 or not f0.shape[1]:
            raise MossliveError(f"HiFT: pitch {list(f0.shape)}; allowed: [B, T] with T ≥ 1")
        if noise is not None:
            _check("noise", noise, (f0.shape[0], *self.noise_shape(f0.shape[1])))
        samples = f0.shape[1] * self.settings.samples_per_frame
        if not 0 <= begin <= samples:
            raise MossliveError(f"HiFT: source from sample {begin} on; allowed: 0 to {samples}")
        excitation: Tensor = self.m_source(f0, noise, begin)
        return excitation

    def decode(self, mel: Tensor, source: Tensor) -> Tensor:
        """mel [B, M, T], source [B, S · T] → waveform [B, S · T] within ±audio_limit."""
        settings = self.settings
        frames = self._frames_of(mel)
        _check("source", source, (mel.shape[0], frames * settings.samples_per_frame))
        dtype = self.conv_pre.weight.dtype
        spectra = self._layout(self._spectra(source).to(dtype))  # [B, 2 · bins, N]
        x = self.conv_pre(self._layout(mel.to(dtype)), activation="leaky", slope=settings.slope)
        before: Callable[[], Tensor] = partial(_same, x)
        for stage in range(len(self.ups)):
            before = fork(partial(self._stage, stage, before), spectra)
        x = before()
        return self._samples(self.conv_post(x)).clamp(-settings.audio_limit, settings.audio_limit)

    def _layout(self, x: Tensor) -> Tensor:
        return self.dispatch(x).signal_layout(x)

    def _stage(self, stage: int, before: Callable[[], Tensor], spectra: Tensor) -> Tensor:
        """One upsampling and the blocks after it. Waits for the result of the stage `before` only
        when the source's block is almost done."""
        slope, last = self.settings.slope, stage == len(self.ups) - 1

        def up() -> Tensor:
            x: Tensor = self.ups[stage](before())
            # A centred transform has one frame more than there are hops.
            return join((x[..., 1:2], x)) if last else x

        x = self.source_resblocks[stage](self.source_downs[stage](spectra), (up,))
        count = len(self.settings.resblock_kernels)
        *others, final = self.resblocks[stage * count : (stage + 1) * count]
        results = [fork(block, x) for block in others]
        mixed: Tensor = final(x, results, 1 / count, _LAST_SLOPE if last else slope)
        return mixed

    def forward(
        self,
        mel: Tensor,
        noise: Tensor | torch.Generator | None = None,
        cached_source: Tensor | None = None,
    ) -> HiftResult:
        """mel [B, M, T]. noise: [B, S · T, harmonics + 1], or a generator to draw it from, row by
        row, or None for zero. cached_source [B, n] replaces the first n source samples."""
        f0 = self.f0(mel)
        if isinstance(noise, torch.Generator):
            drawn = [self.m_source.draw_noise(f0.shape[1], noise) for _ in range(len(f0))]
            noise = torch.stack(drawn)
        known, samples = 0, f0.shape[1] * self.settings.samples_per_frame
        if cached_source is not None:
            known = cached_source.shape[-1]
            _check("cached_source", cached_source, (len(f0), min(known, samples)))
        source = self.source(
            f0, noise, known
        )  # expensive: a sine of every harmonic for each sample
        if cached_source is not None:
            source = torch.cat((cached_source.to(source.dtype), source), 1)
        return HiftResult(self.decode(mel, source), source)

    def noise_shape(self, frames: int) -> tuple[int, int]:
        """(S · frames, harmonics + 1), of one row."""
        return frames * self.settings.samples_per_frame, self.settings.harmonics + 1

    def _frames_of(self, mel: Tensor) -> int:
        bins = self.settings.mel_bins
        if mel.dim() != 3 or mel.shape[1] != bins or not mel.shape[2]:
            raise MossliveError(f"HiFT: mel {list(mel.shape)}; allowed: [B, {bins}, T] with T ≥ 1")
        return mel.shape[2]

    def _spectra(self, source: Tensor) -> Tensor:
        """[B, L] → real, then imaginary parts of the centred spectra, [B, 2 · bins, L / hop + 1]"""
        n_fft, hop = self.settings.n_fft, self.settings.hop_samples
        padded = F.pad(source[:, None], (n_fft // 2, n_fft // 2), mode="reflect")[:, 0]
        frames = padded.unfold(-1, n_fft, hop) * self.window  # [B, N, n_fft]
        lines = torch.fft.rfft(frames)
        return torch.cat((lines.real, lines.imag), -1).transpose(1, 2)

    def _samples(self, lines: Tensor) -> Tensor:
        """The inverse: log magnitudes, then sines' arguments [B, 2 · bins, N] → [B, L]. Written out
        because torch.istft reads a value back from the device."""
        n_fft, hop, bins = self.settings.n_fft, self.settings.hop_samples, self.settings.bins
        lines = lines.to(self.window.dtype).transpose(1, 2)
        magnitude = lines[..., :bins].exp().clamp(max=_MOST_MAGNITUDE)
        phase = lines[..., bins:].sin()
        # The first and last line of a real signal are real. Transforms treat other values
        # differently, so the imaginary parts are set to zero here.
        imaginary = F.pad((magnitude * phase.sin())[..., 1:-1], (1, 1))
        frames = torch.fft.irfft(torch.complex(magnitude * phase.cos(), imaginary), n_fft)
        weight = self.window.square().expand(1, *frames.shape[1:])
        inside = slice(n_fft // 2, -(n_fft // 2))  # outside, the summed weight starts at zero
        summed = _overlap_add(frames * self.window, hop)[:, inside]
        return summed / _overlap_add(weight, hop)[:, inside]


def _same(x: Tensor) -> Tensor:
    return x


def _overlap_add(frames: Tensor, hop: int) -> Tensor:
    """[B, N, W] → [B, (N - 1) · hop + W]; W is a multiple of the hop, so whole hops are added."""
    pieces = torch.split(frames, hop, -1)  # W / hop of [B, N, hop]
    count = len(pieces)
    shifted = [F.pad(piece, (0, 0, k, count - 1 - k)) for k, piece in enumerate(pieces)]
    return torch.stack(shifted).sum(0).flatten(1)


def _check(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise MossliveError(f"HiFT: {name} {list(tensor.shape)}; allowed: {list(shape)}")
