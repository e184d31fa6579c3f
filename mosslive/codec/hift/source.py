"""Pitch of a mel and the excitation made from it: HiFT's harmonic source.

Knows mel frames, Hz and samples; not the network that filters the source, and no stream.
Invariant: nothing here is computed below float32, whatever the caller's precision, because an
error of the pitch grows with every frame of the phase sum.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mosslive.codec.convolution import Convolution
from mosslive.errors import MossliveError
from mosslive.kernels.arithmetic import arithmetic
from mosslive.kernels.dispatch import AUTO, Dispatch

_F0_LAYERS = 5  # fixed by the published network, as is their kernel of 3


@dataclass(frozen=True)
class SourceSettings:
    """How a pitch becomes an excitation. Amplitudes are of the waveform, full scale 1."""

    sample_rate_hz: int = 24000
    voiced_above_hz: float = 10.0
    sine_amplitude: float = 0.1
    voiced_noise: float = 0.003  # standard deviation, added to the sines
    unvoiced_noise: float = 0.1 / 3  # standard deviation where there are no sines


class F0Predictor(nn.Module):
    """mel [B, M, T] → pitch in Hz [B, T], never negative."""

    def __init__(self, mel_bins: int, channels: int, dispatch: Dispatch = AUTO) -> None:
        super().__init__()
        self.dispatch = dispatch
        layers: list[nn.Module] = []
        for index in range(_F0_LAYERS):
            width = channels if index else mel_bins
            convolution = Convolution(width, channels, 3, padding=1, dispatch=dispatch)
            layers += [convolution, nn.Identity()]
        # Published names count an ELU after each layer, which the layer computes itself.
        self.condnet = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, 1)

    @arithmetic("fp32")
    def forward(self, mel: Tensor) -> Tensor:
        dtype = self.classifier.weight.dtype
        if dtype not in (torch.float32, torch.float64):
            raise MossliveError(
                f"the pitch of HiFT must stay in float32, its weights are {dtype}: keep the module "
                "in float32 and use autocast for the rest"
            )
        with torch.autocast(mel.device.type, enabled=False):
            x = mel.to(dtype)
            x = self.dispatch(x).signal_layout(x)
            for layer in self.condnet:
                if isinstance(layer, Convolution):
                    x = layer(x, activation="elu")
            f0: Tensor = self.classifier(x.transpose(1, 2)).squeeze(-1).abs()  # [B, T]
        return f0


class HarmonicSource(nn.Module):
    """Pitch → sines at its multiples and noise, mixed to one channel."""

    def __init__(self, settings: SourceSettings, harmonics: int, samples_per_frame: int) -> None:
        super().__init__()
        self.settings = settings
        self.samples_per_frame = samples_per_frame
        self.l_linear = nn.Linear(harmonics + 1, 1)  # the pitch itself and its harmonics

    @property
    def sines(self) -> int:
        return self.l_linear.in_features

    @arithmetic("fp32")
    def forward(self, f0: Tensor, noise: Tensor | None, begin: int = 0) -> Tensor:
        """f0 [B, T] in Hz, noise [B, S · T, H] standard normal or None for none → the samples from
        `begin` on, [B, S · T - begin]."""
        settings, dtype = self.settings, self.l_linear.weight.dtype
        with torch.autocast(f0.device.type, enabled=False):
            f0 = f0.to(dtype)
            voiced = (f0 > settings.voiced_above_hz).to(dtype)
            voiced = voiced.repeat_interleave(self.samples_per_frame, 1)[:, begin:, None]
            sines = settings.sine_amplitude * self._phase(f0)[:, begin:].sin() * voiced
            if noise is not None:
                level = voiced * settings.voiced_noise + (1 - voiced) * settings.unvoiced_noise
                sines = sines + level * noise[:, begin:].to(dtype)
            mixed: Tensor = self.l_linear(sines).squeeze(-1).tanh()
        return mixed

    def _phase(self, f0: Tensor) -> Tensor:
        """Radians of each sine at each sample, [B, S · T, H]. The sum runs over frames, whole turns
        dropped from each step; the factors are applied in the published order, since the rounding
        of large phases is audible in a comparison. Between the middles of frames it is linear."""
        multiples = torch.arange(1, self.sines + 1, device=f0.device, dtype=f0.dtype)
        turns = (f0[:, None] * multiples[:, None] / self.settings.sample_rate_hz) % 1  # [B, H, T]
        phase = turns.cumsum(-1) * 2 * math.pi * self.samples_per_frame
        scale = float(self.samples_per_frame)
        return F.interpolate(phase, scale_factor=scale, mode="linear").transpose(1, 2)

    def draw_noise(self, frames: int, generator: torch.Generator) -> Tensor:
        """[S · frames, H] standard normal, drawn on the generator's device and moved to ours.

        The published code also draws initial phases before and a second noise after, without
        effect; drawing them too gives the same noise for the same seed, in later calls as well.
        """
        samples = frames * self.samples_per_frame
        place = generator.device
        torch.rand(self.sines, generator=generator, device=place)
        noise = torch.randn(samples, self.sines, generator=generator, device=place)
        torch.randn(samples, generator=generator, device=place)
        return noise.to(self.l_linear.weight.device)

    def drawing(
        self, frames: int, device: torch.device
    ) -> Callable[[Tensor, torch.Generator], None]:
        """A function that writes `draw_noise` of this length to a tensor. On a GPU it launches one
        kernel and not three: the draws without effect become steps of the generator's counter."""

        def whole(noise: Tensor, generator: torch.Generator) -> None:
            noise.copy_(self.draw_noise(frames, generator))

        if device.type != "cuda":
            return whole
        samples, one = frames * self.samples_per_frame, torch.Generator(device)
        torch.rand(self.sines, generator=one, device=device)
        before = one.get_offset()
        torch.randn(samples, generator=one, device=device)
        after = one.get_offset() - before

        def skipping(noise: Tensor, generator: torch.Generator) -> None:
            generator.set_offset(generator.get_offset() + before)
            noise.normal_(generator=generator)
            generator.set_offset(generator.get_offset() + after)

        # How far a draw moves the counter is PyTorch's choice: use it only where it agrees.
        one, other = (torch.Generator(device).manual_seed(1) for _ in range(2))
        found = torch.empty(samples, self.sines, device=device)
        for _ in range(2):
            skipping(found, one)
            if not torch.equal(found, self.draw_noise(frames, other)):
                return whole
        return skipping
