"""Trains the codec: first encoder, codebook and flow together, then the flow alone.

Unchanged rows of the assistant's voice teach the mel; augmented rows of all voices teach the words.
If the first were augmented too, their codes would lose pitch and timbre, and the mel would be an
average. The second stage starts when the codes are final and can run while the language model
trains. Knows no vocoder. Invariant: the loop reads nothing back from the device.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from recipes.bundled.augment import Augment, augmented_features, features
from recipes.bundled.bank import HEARD_SAMPLES, Bank, Rows, on_device, plan_rows
from recipes.bundled.budget import Budget, Curves, optimiser, set_rate, take_step
from recipes.bundled.codec_model import MEL_SCALE, CodecModel, Heard, Losses
from recipes.bundled.flow_start import restart_if_noise_stays

_FRAME_SAMPLES = 320  # of a mel frame, at 16 kHz
_CHUNKS: tuple[int | None, ...] = (5, 5, 5, 25, None)
_REVIVE_EVERY = 100


@dataclass(frozen=True)
class CodecTraining:
    spoken_rows: int = 40  # of the assistant's voice
    heard_rows: int = 56  # of any voice
    width_codes: int = 80
    rate: float = 1e-3
    # Before the codebook starts: the states must carry phones by then, or the codes carry none.
    free_steps: int = 700
    most_free: float = 0.35  # of the budget
    # Shares of the budget, of a run that begins from nothing; a resumed one has both at once.
    flow_from: float = 0.4  # when the flow joins
    full_strength: float = 0.5  # when voices are changed at full strength
    # Share of spoken rows that begin inside a code. Replies begin on a code border, as the language
    # model learns them, so most rows do too; the others keep codes independent of the start.
    shifted: float = 0.25
    seed: int = 7
    augment: Augment = field(default_factory=Augment)


class CodecBatches:
    """Batches of rows: features as heard and mel as it should be spoken."""

    def __init__(self, bank: Bank, phone_names: list[str], how: CodecTraining) -> None:
        self.bank, self.how = bank, how
        self.strength = 1.0  # of the changes to what is heard
        number = {name: n + 1 for n, name in enumerate(phone_names)}
        self._phones = [np.asarray([number[p] for p in u.phones]) for u in bank.utterances]
        self._phones = [each.astype(np.int64) for each in self._phones]
        self._spoken = bank.where("assistant", "train")
        users = bank.where("user", "train")
        self._heard = np.concatenate((users, users, self._spoken)) if len(users) else self._spoken
        self._host = np.random.default_rng(how.seed)
        self.generator = torch.Generator(bank.device).manual_seed(how.seed)

    def next(self, heard_rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns features [B, 128, 8W], mel of the first rows [S, 80, 4W], phones [B, P], counts
        [B]."""
        how, bank = self.how, self.bank
        said = self._plan(self._spoken, how.spoken_rows)
        rows = [said] if not heard_rows else [said, self._plan(self._heard, heard_rows)]
        codes = on_device(np.concatenate([each.codes for each in rows]), bank.device)
        count = len(codes)
        # Codes may begin anywhere in a word. Spoken rows move by whole mel frames, so that
        # the target moves along.
        step = torch.randint(0, 4, (count,), generator=self.generator, device=bank.device)
        fine = torch.randint(0, 320, (count,), generator=self.generator, device=bank.device)
        fine[: how.spoken_rows] = 0
        step[: round(how.spoken_rows * (1 - how.shifted))] = 0
        start = step * _FRAME_SAMPLES + fine
        samples = torch.arange(how.width_codes * HEARD_SAMPLES, device=bank.device)
        wave = bank.heard[codes].flatten(1).gather(1, start[:, None] + samples).float() / 32768
        mel_features = features(wave[: how.spoken_rows])
        if heard_rows:
            changes = how.augment.scaled(self.strength)
            other = augmented_features(wave[how.spoken_rows :], changes, self.generator)
            mel_features = torch.cat((mel_features, other))
        mel = bank.mel[codes[: how.spoken_rows]].flatten(1, 2)  # [S, 4(W + 1), 80]
        frames = torch.arange(4 * how.width_codes, device=bank.device)
        place = step[: how.spoken_rows, None] + frames
        mel = mel.gather(1, place[..., None].expand(-1, -1, mel.shape[2])).mT.float()
        phones, counts = _joined(rows)
        return mel_features, mel, on_device(phones, bank.device), torch.from_numpy(counts)

    def _plan(self, among: NDArray[np.int64], rows: int) -> Rows:
        return plan_rows(self.bank, among, self._phones, rows, self.how.width_codes, self._host)

    def chunk(self) -> int | None:
        return _CHUNKS[int(self._host.integers(len(_CHUNKS)))]

    def coin(self) -> bool:
        return bool(self._host.integers(2))


def _joined(rows: list[Rows]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    widest = max(each.phones.shape[1] for each in rows)
    tables = [np.pad(r.phones, ((0, 0), (0, widest - r.phones.shape[1]))) for r in rows]
    return np.concatenate(tables), np.concatenate([each.phone_counts for each in rows])


def train_codec(
    model: CodecModel,
    bank: Bank,
    phone_names: list[str],
    budget: Budget,
    how: CodecTraining,
    curves: Path,
    resumed: bool = False,
) -> dict[str, float]:
    """Trains encoder, codebook and flow together. `resumed`: a codebook exists."""
    batches = CodecBatches(bank, phone_names, how)
    restart_if_noise_stays(model.flow.estimator)
    chosen = optimiser([(model, how.rate)])
    log = Curves(curves, "codec", budget)
    device, quantised = bank.device, resumed
    kept: list[Tensor] = []
    step = 0
    while (done := budget.progress(step)) < 1:
        set_rate(chosen, budget.rate(step))
        if not resumed:
            batches.strength = min(1.0, 0.4 + 0.6 * done / how.full_strength)
        mel_features, mel, phones, counts = batches.next(how.heard_rows)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            heard = model.hear(mel_features)
            if not quantised:
                kept = [*kept[-15:], heard.states.detach()]
                if step >= how.free_steps or done >= how.most_free:
                    model.quantiser.start(torch.cat(kept).flatten(0, 1), batches.generator)
                    quantised, kept = True, []
            with_flow = resumed or done >= how.flow_from
            losses = _losses(model, batches, heard, mel, phones, counts, quantised, with_flow)
        take_step(chosen, losses.total())
        if quantised and (step + 1) % _REVIVE_EVERY == 0 and done < 0.8:
            model.quantiser.revive(heard.states.detach().flatten(0, 1), batches.generator)
        log.add(step, vars(losses) | {"perplexity": model.quantiser.perplexity()})
        step += 1
    log.flush(step)
    return log.last


def _losses(
    model: CodecModel,
    batches: CodecBatches,
    heard: Heard,
    mel: Tensor,
    phones: Tensor,
    counts: Tensor,
    quantised: bool,
    with_flow: bool,
) -> Losses:
    vectors, commit = heard.states, heard.states.new_zeros(())
    if quantised:
        vectors, codes, commit = model.quantiser(heard.states)
        model.quantiser.learn(heard.states.detach(), codes)
    mu_loss, flow_loss = _spoken_losses(model, batches, vectors[: len(mel)], mel, with_flow)
    by_state, by_code = model.phone_losses(heard, vectors, phones, counts)
    return Losses(mu_loss, flow_loss, commit, by_state, by_code)


def _spoken_losses(
    model: CodecModel, batches: CodecBatches, vectors: Tensor, mel: Tensor, with_flow: bool
) -> tuple[Tensor, Tensor]:
    chunk, finalize = batches.chunk(), batches.coin()
    mu = model.mu(vectors, chunk, finalize)
    mel = mel[..., : mu.shape[2]]
    mu_loss = F.l1_loss(mu, mel) / MEL_SCALE
    if not with_flow:
        return mu_loss, mu_loss.new_zeros(())
    # A prompt is a beginning whose mel is known; half of the rows have one.
    device = mel.device
    lengths = torch.rand(len(mel), generator=batches.generator, device=device) * mel.shape[2] * 0.6
    some = torch.rand(len(mel), generator=batches.generator, device=device) < 0.5
    prompt = torch.arange(mel.shape[2], device=device) < (lengths * some)[:, None]
    known = mel * prompt[:, None]
    flow_loss = model.flow_loss(mel, mu.detach(), known, chunk, batches.generator)
    return mu_loss, flow_loss


def train_flow(
    model: CodecModel,
    bank: Bank,
    phone_names: list[str],
    budget: Budget,
    how: CodecTraining,
    curves: Path,
) -> dict[str, float]:
    """Trains the flow alone, on final codes."""
    batches = CodecBatches(bank, phone_names, how)
    restart_if_noise_stays(model.flow.estimator)
    chosen = optimiser([(model.flow, how.rate / 2), (model.bridge, how.rate / 2)])
    log = Curves(curves, "flow", budget)
    device, step = bank.device, 0
    while budget.progress(step) < 1:
        set_rate(chosen, budget.rate(step))
        mel_features, mel, _, _ = batches.next(0)
        # In full precision, because the package computes codes in float32.
        with torch.no_grad():
            codes = model.quantiser.nearest(model.hear(mel_features).states)
            vectors = model.quantiser.codebook[codes]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            mu_loss, flow_loss = _spoken_losses(model, batches, vectors, mel, True)
        take_step(chosen, 2 * mu_loss + flow_loss)
        log.add(step, {"mu": mu_loss, "flow": flow_loss})
        step += 1
    log.flush(step)
    return log.last
