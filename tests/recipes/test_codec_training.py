"""Training of the codec: initial flow, the assistant's rows, and the vocoder's pitch."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mosslive.codec.estimator import Estimator
from mosslive.codec.flow_past import Whole
from recipes.bundled.augment import features
from recipes.bundled.bank import HEARD_SAMPLES, Bank
from recipes.bundled.codec_model import MEL_SCALE, CodecModel
from recipes.bundled.corpus import Utterance
from recipes.bundled.flow_start import (
    begin_straight,
    restart_if_noise_stays,
    subtracted_noise_share,
)
from recipes.bundled.judge_codec import judge_codec
from recipes.bundled.pitch_places import placed_pitch
from recipes.bundled.sizes import BUNDLED, TOY
from recipes.bundled.train_codec import CodecBatches, CodecTraining
from recipes.bundled.train_vocoder import _render, fresh_hift

_CODES = 14


@pytest.fixture
def estimator() -> Estimator:
    torch.manual_seed(0)
    return Estimator(BUNDLED.flow.estimator).requires_grad_(False)


def test_estimator_begins_at_the_straight_line(estimator: Estimator) -> None:
    """A new estimator has a velocity close to its condition minus its noise."""
    begin_straight(estimator)
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(2, 80, 24, generator=generator)
    mu = -5 + 2.4 * torch.randn(noise.shape, generator=generator)
    rows = torch.cat((noise, mu, torch.zeros(2, 160, 24)), 1)
    found = estimator(rows, torch.zeros(1), Whole(24, None, noise))
    assert (found - (mu - noise)).std() < 0.25 * (mu - noise).std()
    assert subtracted_noise_share(estimator) == pytest.approx(1, abs=0.15)


def test_estimator_that_leaves_the_noise_is_replaced(estimator: Estimator) -> None:
    """A carried estimator is kept only if it subtracts its noise."""
    assert subtracted_noise_share(estimator) < 0.5
    assert restart_if_noise_stays(estimator)
    kept = {name: tensor.clone() for name, tensor in estimator.state_dict().items()}
    assert not restart_if_noise_stays(estimator)
    assert all(torch.equal(kept[name], now) for name, now in estimator.state_dict().items())


@pytest.fixture
def bank() -> Bank:
    """One utterance of each role; the mel's values are the numbers of its frames."""
    generator = torch.Generator().manual_seed(2)
    codes = 2 * _CODES + 2
    heard = torch.randint(-9000, 9000, (codes, HEARD_SAMPLES), generator=generator).to(torch.int16)
    heard[0] = heard[-1] = 0
    frames = torch.arange(4 * (_CODES + 1)).view(-1, 4, 1)
    mel = frames.expand(-1, -1, 80).half()
    said = [
        Utterance(0, "a", ["a"], "hts", "assistant", "train", 0, 1),
        Utterance(1, "b", ["b"], "other", "user", "train", 1, 1),
    ]
    sound = torch.zeros(codes, 1920, dtype=torch.int16)
    first, count = np.asarray([1, 1 + _CODES]), np.asarray([_CODES, _CODES])
    return Bank(sound, heard, mel, torch.zeros(_CODES + 1, 4), first, count, said)


def test_assistants_rows_stay_as_recorded(bank: Bank) -> None:
    """The assistant's rows are not augmented; most begin on a code, and the mel moves with the
    others."""
    how = CodecTraining(spoken_rows=8, heard_rows=4, width_codes=_CODES + 3, shifted=0.5)
    given, mel, _, _ = CodecBatches(bank, ["a", "b"], how).next(4)
    assert given.shape[0] == 12
    heard = bank.heard[1 : 1 + _CODES].flatten().float() / 32768
    shifts = []
    for row in range(8):
        # The utterance's last frame is number 59 and stands 55 frames after its first.
        begin = int(mel[row, 0].argmax()) - 55
        shifts.append(-begin % 4)
        silence = torch.zeros(2 * how.width_codes * HEARD_SAMPLES)
        wave = torch.cat((heard[max(0, -begin) * 320 :], silence))
        wave = torch.cat((torch.zeros(max(0, begin) * 320), wave))[: len(silence) // 2]
        torch.testing.assert_close(given[row], features(wave[None])[0], atol=1e-4, rtol=0)
    assert shifts[:4] == [0, 0, 0, 0]
    assert any(shifts[4:])


def test_pitch_is_placed_where_a_frame_begins() -> None:
    """An estimate 3 % off is refined to within 0.3 % of a rising pitch; silence has no pitch."""
    time = torch.arange(40 * 1920) / 24_000
    hz = 150 + 20 * time  # at each sample
    turns = hz.double().cumsum(0) / 24_000
    hum = sum(torch.sin(2 * torch.pi * h * turns) for h in range(1, 25)) / 40
    assert isinstance(hum, torch.Tensor)
    sound = (hum * 32767).to(torch.int16).view(-1, 1920)
    wanted = hz[::480].view(-1, 4)
    rough = 1.03 * wanted
    rough[30:] = 0
    found = placed_pitch(sound, rough)
    assert not found[30:].any()
    assert ((found / wanted - 1).abs()[1:29] < 0.003).all()
    shared = placed_pitch(torch.cat((sound, sound)), rough[:5])
    torch.testing.assert_close(shared, found[:5])


def test_rows_with_a_given_pitch_use_it() -> None:
    """Rows with a given pitch use it; only the others use the predicted pitch."""
    torch.manual_seed(0)
    hift = fresh_hift(TOY.hift)
    mel, pitch = torch.randn(2, 80, 12), torch.full((2, 12), 200.0)
    given, own = (
        _render(hift, mel, pitch, taught, torch.Generator().manual_seed(1))[1]
        for taught in (1.0, 0.0)
    )
    with torch.no_grad():
        hift.f0_predictor.classifier.bias.fill_(90.0)
    again, other = (
        _render(hift, mel, pitch, taught, torch.Generator().manual_seed(1))[1]
        for taught in (1.0, 0.0)
    )
    torch.testing.assert_close(again, given)
    assert not torch.allclose(other, own)


def test_judge_measures_what_the_flow_adds(bank: Bank) -> None:
    """The mel distance shows a flow that leaves its noise in."""
    torch.manual_seed(0)
    model = CodecModel(TOY, 2)
    for weight in model.flow.estimator.parameters():
        weight.data.zero_()
    held = replace(bank, utterances=[replace(u, split="heldout") for u in bank.utterances])
    found = judge_codec(model, held, ["a", "b"])
    mel = bank.mel[1 : 1 + _CODES].flatten(0, 1).T.float()
    noise = model.flow.noise[:, : mel.shape[1]]
    assert found["flow"] == pytest.approx((noise - mel).abs().mean().item() / MEL_SCALE, rel=1e-4)
    assert "mu" in found
