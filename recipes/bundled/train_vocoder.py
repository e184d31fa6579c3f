"""Trains HiFT on the assistant's voice: first with spectra and pitch, later with discriminators.

The network is the package's own. Half of the windows have the break of the source that a live
stream has after its first eight frames. Once the codec's own mel exists, most windows use it
instead of the true one. Knows no codes. Invariant: no step reads a value back from the device.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mosslive.codec.hift import Hift, HiftSettings
from mosslive.codec.hift.arena import OVERLAP_FRAMES
from mosslive.codec.mel import MelSettings, log_mel
from mosslive.kernels.dispatch import TORCH_ONLY
from recipes.bundled.bank import FRAMES, Bank
from recipes.bundled.budget import Budget, Curves, optimiser, set_rate, take_step
from recipes.bundled.discriminators import Judges, judges_loss, maker_losses
from recipes.bundled.pitch_places import placed_pitch

_RESOLUTIONS = ((256, 64), (512, 128), (1024, 256), (2048, 512))
_LEAST_LINE = 1e-4
_LOSS_MEL = MelSettings(24_000, 1024, 256, 100, 0.0, 12_000.0)  # up to the top, unlike the flow's
_PITCH_UNIT_HZ = 50.0
_KEEP = 0.999  # of the running average that is exported
_FRAME_SAMPLES = 480
_MOST_LOG = 10.0


@dataclass(frozen=True)
class VocoderTraining:
    rows: int = 48
    codes: int = 9  # 36 frames: a live window is 28 long
    rate: float = 6e-4
    judges_rate: float = 4e-4
    judges_from: int = 1500
    judges_width: int = 16
    true_pitch_until: int = 500
    # After that, share of the rows. If the source does not have the pitch of the speech, spectra
    # teach noise in place of high harmonics. The other rows use the predicted pitch.
    true_pitch: float = 0.75
    rendered_share: float = 0.67  # of the rows, once there is the codec's mel
    seed: int = 5
    look_every: int = 100  # steps between checks for the codec's mel
    keep_every: int = 1000


def fresh_hift(settings: HiftSettings) -> Hift:
    """Returns a new network: pitch near a voice, and equal harmonics, which is a pulse."""
    hift = Hift(settings, TORCH_ONLY)  # Triton kernels have no gradients
    with torch.no_grad():
        hift.f0_predictor.classifier.bias.fill_(150.0)
        hift.m_source.l_linear.weight.fill_(0.3)
        hift.m_source.l_linear.bias.zero_()
        for name, weight in hift.named_parameters():
            if weight.dim() == 3 and "f0_predictor" not in name:
                fan = weight.shape[1] * weight.shape[2]
                nn.init.normal_(weight, std=min(0.5 * fan**-0.5, 0.05))
        # exp() of the first lines is a magnitude: begin with a quiet one.
        hift.conv_post.bias[: hift.settings.bins].fill_(-3.0)  # type: ignore[index]
    hift.conv_post.register_forward_hook(_within_reach)
    return hift.train()


def _within_reach(_conv_post: nn.Module, _: object, lines: Tensor) -> Tensor:
    """The package clips magnitudes at 100, e^4.6. This is the same function with the bound before
    exp(), which would overflow and give a gradient of 0 · ∞."""
    bins = lines.shape[1] // 2
    return torch.cat((lines[:, :bins].clamp(max=_MOST_LOG), lines[:, bins:]), 1)


class VocoderBatches:
    """Windows of the assistant's speech: mel as input, pitch and sound as targets."""

    def __init__(self, bank: Bank, how: VocoderTraining) -> None:
        self.bank, self.how = bank, how
        self.rendered_mel: Tensor | None = None  # [A, 4, 80]: the codec's own mel
        self.pitch = placed_pitch(bank.sound, bank.pitch)
        self.generator = torch.Generator(bank.device).manual_seed(how.seed)

    def next(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns mel [B, 80, T], pitch [B, T], sound [B, 480 · T]."""
        how, bank = self.how, self.bank
        last = bank.assistant_codes - how.codes - 1
        begin = torch.randint(1, last, (how.rows,), generator=self.generator, device=bank.device)
        codes = begin[:, None] + torch.arange(how.codes + 1, device=bank.device)
        # Windows begin on any frame.
        step = torch.randint(0, FRAMES, (how.rows, 1), generator=self.generator, device=bank.device)
        frames = step + torch.arange(how.codes * FRAMES, device=bank.device)
        true = bank.mel[codes].flatten(1, 2)
        if self.rendered_mel is not None:
            number = torch.rand(how.rows, 1, 1, generator=self.generator, device=bank.device)
            true = torch.where(
                number < how.rendered_share, self.rendered_mel[codes].flatten(1, 2), true
            )
        mel = true.gather(1, frames[..., None].expand(-1, -1, true.shape[2])).mT.float()
        pitch = self.pitch[codes].flatten(1).gather(1, frames).float()
        samples = step * _FRAME_SAMPLES
        samples = samples + torch.arange(how.codes * FRAMES * _FRAME_SAMPLES, device=bank.device)
        sound = bank.sound[codes].flatten(1).gather(1, samples).float() / 32768
        return mel, pitch, sound


def train_vocoder(
    hift: Hift,
    judges: Judges,
    bank: Bank,
    budget: Budget,
    how: VocoderTraining,
    curves: Path,
    find_rendered_mel: Callable[[], Tensor | None] = lambda: None,
    begin_step: int = 0,
    keep: Callable[[Hift], object] = lambda average: None,
) -> Hift:
    """Returns the running average of the network. `find_rendered_mel` returns the codec's own mel
    [A, 4, 80] when there is a new one. `begin_step`: steps of earlier runs, which decide whether
    discriminators are active. Calls `keep` with the average from time to time and at the end."""
    average = deepcopy(hift).requires_grad_(False)
    batches = VocoderBatches(bank, how)
    maker = optimiser([(hift, how.rate)], betas=(0.8, 0.99))
    judge = optimiser([(judges, how.judges_rate)], betas=(0.8, 0.99))
    log = Curves(curves, "vocoder", budget)
    device, step = bank.device, 0
    while budget.progress(step) < 1:
        for each in (maker, judge):
            set_rate(each, budget.rate(step, lowest=0.1))
        if step % how.look_every == 0 and (found := find_rendered_mel()) is not None:
            batches.rendered_mel = found
        mel, pitch, sound = batches.next()
        judged = begin_step + step >= how.judges_from
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            taught = 1.0 if begin_step + step < how.true_pitch_until else how.true_pitch
            heard, wave = _render(hift, mel, pitch, taught, batches.generator)
            losses = {
                "pitch": F.smooth_l1_loss(heard / _PITCH_UNIT_HZ, pitch / _PITCH_UNIT_HZ),
                "spectra": spectral_loss(wave, sound),
                "mel": mel_loss(wave, sound),
            }
            total = losses["pitch"] + 2 * losses["spectra"] + 2 * losses["mel"]
            if judged:
                losses["judges"] = judges_loss(judges(sound), judges(wave.detach()))
                take_step(judge, losses["judges"], 5.0)
                with torch.no_grad():
                    true = judges(sound)
                fooled, unlike = maker_losses(true, judges(wave))
                losses |= {"fooled": fooled, "unlike": unlike}
                total = total + fooled + 2 * unlike
        take_step(maker, total, 5.0)
        _follow(average, hift, min(_KEEP, (1 + step) / (10 + step)))
        log.add(step, losses)
        step += 1
        if step % how.keep_every == 0:
            keep(average)
    log.flush(step)
    keep(average)
    return average.eval()


def _render(
    hift: Hift, mel: Tensor, pitch: Tensor, taught: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Returns the predicted pitch [B, T] and the waveform [B, 480 · T]. `taught`: rows that use the
    given pitch and not the predicted one."""
    found = hift.f0(mel)
    # The phase accumulates the pitch, so the gradient of a waveform is useless for it.
    rows, frames = pitch.shape
    given = torch.rand(rows, 1, generator=generator, device=mel.device) < taught
    hummed = torch.where(given, pitch, found.detach())
    noise = torch.randn(rows, *hift.noise_shape(frames), generator=generator, device=mel.device)
    source = hift.source(hummed, noise)
    # A live window takes the source of its first frames from the window before, which has another
    # phase: the two halves of a batch exchange these frames.
    held = OVERLAP_FRAMES * hift.settings.samples_per_frame
    half = rows // 2
    earlier = F.pad(hummed[:half], (3, 0), mode="replicate")
    moved = hift.source(earlier, None)[:, 3 * hift.settings.samples_per_frame :]
    broken = torch.cat((moved[:, :held], source[:half, held:]), 1)
    source = torch.cat((broken, source[half:]))
    return found, hift.decode(mel, source).float()


def spectral_loss(wave: Tensor, sound: Tensor) -> Tensor:
    """[B, n] each: differences of log magnitudes and of magnitudes, at four resolutions."""
    parts = []
    for n_fft, hop in _RESOLUTIONS:
        made, true = (_lines(each, n_fft, hop) for each in (wave, sound))
        parts.append(F.l1_loss(made.log(), true.log()) * 0.5)
        parts.append((made - true).norm() / true.norm())
    return torch.stack(parts).sum() / len(_RESOLUTIONS)


def _lines(wave: Tensor, n_fft: int, hop: int) -> Tensor:
    window = torch.hann_window(n_fft, device=wave.device)
    with torch.autocast(wave.device.type, enabled=False):
        lines = torch.stft(wave.float(), n_fft, hop, window=window, return_complex=True)
        power = torch.view_as_real(lines).square().sum(-1)
        return (power + _LEAST_LINE**2).sqrt()


def mel_loss(wave: Tensor, sound: Tensor) -> Tensor:
    with torch.autocast(wave.device.type, enabled=False):
        return F.l1_loss(log_mel(wave.float(), _LOSS_MEL), log_mel(sound, _LOSS_MEL))


@torch.no_grad()
def _follow(average: Hift, hift: Hift, keep: float) -> None:
    mine: list[Tensor] = list(average.parameters())
    theirs: list[Tensor] = list(hift.parameters())
    torch._foreach_lerp_(mine, theirs, 1 - keep)
