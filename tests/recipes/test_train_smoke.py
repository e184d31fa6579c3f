"""The recipe's training at toy size: a few steps of every stage, and the package reads the result.

The corpus is made of hums, not of speech. Losses fall, every stage writes what the next one needs,
and files mean the same to the package as to the trainer.
"""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import mosslive
from mosslive.checkpoint.generation import folder_sampling
from mosslive.codec.codec import Codec, load_codec
from mosslive.codec.inventory import inspect_codec, inspect_voices
from mosslive.codec.sound import Sound
from mosslive.config import Sampling
from mosslive.config.folders import find_parts
from mosslive.rows import RowIds
from mosslive.rows import Turn as PromptTurn
from recipes.bundled.augment import Augment, augmented_features, features
from recipes.bundled.bank import Bank, load_bank
from recipes.bundled.budget import drop_carried, load_carried, save_carried
from recipes.bundled.carry import carry
from recipes.bundled.codec_model import CodecModel
from recipes.bundled.corpus import Corpus
from recipes.bundled.encode_bank import encode_bank, load_spoken
from recipes.bundled.export import (
    MOST_BYTES,
    Storing,
    export,
    export_lm,
    folder_bytes,
    write_codec,
    write_lm,
)
from recipes.bundled.layout import CODE_SAMPLES, LEAST_CODES
from recipes.bundled.lm_model import LmModel
from recipes.bundled.pitch import pitch_hz
from recipes.bundled.quantiser import Quantiser
from recipes.bundled.run import run
from recipes.bundled.sizes import BUNDLED, TOY
from recipes.bundled.stages import WITH_SOUND, Plan, run_lm
from recipes.bundled.train_codec import CodecTraining
from recipes.bundled.train_lm import LmTraining
from recipes.bundled.train_vocoder import VocoderTraining, fresh_hift
from recipes.bundled.vocabulary import ids, load_tokenizer

pytestmark = pytest.mark.training

_STEPS = 16


@dataclass(frozen=True)
class Trained:
    plan: Plan
    out: Path  # what was exported


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """All stages, one after another, at toy size."""
    out = tmp_path_factory.mktemp("run")
    codec = CodecTraining(spoken_rows=3, heard_rows=3, width_codes=20, rate=3e-3)
    vocoder = VocoderTraining(
        rows=2, codes=4, rate=2e-3, judges_from=_STEPS - 4, judges_width=2, look_every=5
    )
    lm = LmTraining(rate=1e-2, rows=1024, examples=40, typed=20, held_out=4, test_every=20)
    plan = Plan(
        folder, out, seconds=1e9, size="toy", device="cpu", steps=_STEPS,
        codec=codec, vocoder=vocoder, lm=lm,
    )  # fmt: skip
    run(plan, together=False)
    export(plan.carried, out / "model")
    return Trained(plan, out / "model")


def _curve(plan: Plan, stage: str) -> list[dict[str, float]]:
    return [json.loads(line) for line in plan.curves(stage).read_text().splitlines()]


def test_every_stage_learns(folder: Path, tmp_path: Path, trained: Trained) -> None:
    """Losses are finite and smaller over all steps than after the first three."""
    short = replace(trained.plan, out=tmp_path, steps=3)
    run(short, together=False)
    wanted = {"codec": ("mu", "ctc_codes"), "vocoder": ("spectra",), "lm": ("audio", "text")}
    for stage, names in wanted.items():
        for name in names:
            early = next(line[name] for line in _curve(short, stage) if name in line)
            late = next(line[name] for line in _curve(trained.plan, stage) if name in line)
            assert np.isfinite(late), (stage, name)
            assert late < early, (stage, name)


@pytest.fixture(scope="module")
def codec(trained: Trained) -> Codec:
    return load_codec(trained.out)


def test_exported_encoder_hears_the_same_codes(trained: Trained, codec: Codec, bank: Bank) -> None:
    """The stored encoder gives exactly the codes that the language model was trained on."""
    held = torch.load(trained.plan.work / "spoken.pt", weights_only=True)
    for index in range(4):
        begin, count = int(bank.first[index]), int(bank.count[index])
        heard = bank.heard[begin : begin + count].flatten().numpy()
        first = int(held["first"][index])
        assert codec.encode(heard, 16_000) == held["codes"][0][first : first + count].tolist()


def test_exported_codec_speaks_as_the_trainer(trained: Trained, codec: Codec) -> None:
    """The package renders the same sound as the trainer's bridge, flow and vocoder, offline."""
    voice = codec.voice(trained.out / "voices" / "default.voice")
    codes = [3, 9, 27, 1, 50, 33, 8, 2]
    sizes = trained.plan.sizes
    model = CodecModel(sizes, 5)
    carried = trained.plan.carried
    known = {f"encoder.{n}": t for n, t in (load_carried(carried, "encoder") or {}).items()}
    known |= {f"flow.{n}": t for n, t in (load_carried(carried, "flow") or {}).items()}
    known |= load_carried(carried, "extra") or {}
    own = model.state_dict()
    model.load_state_dict(own | {n: t for n, t in known.items() if own[n].shape == t.shape})
    prompt = voice.prompt
    joined = torch.cat((prompt.prompt_codes, torch.tensor(codes)))
    feat = torch.zeros(1, 80, 4 * len(joined))
    feat[..., : len(prompt.prompt_feat)] = prompt.prompt_feat.T
    mel = model.speak(model.quantiser.codebook[joined][None], None, feat)
    hift = fresh_hift(sizes.hift)
    hift.load_state_dict(load_carried(carried, "hift") or {})
    with torch.no_grad():
        reply = mel[..., 4 * len(prompt.prompt_codes) :]
        wave = hift(reply, torch.Generator().manual_seed(0)).wave[0]
    said = codec.decode(codes, voice)
    assert said.shape == (len(codes) * CODE_SAMPLES,)
    # The bridge is stored as a table, rounded to halves; everything else is the same network.
    np.testing.assert_allclose(said, wave.numpy(), atol=2e-3)


def test_exported_codec_streams(trained: Trained, codec: Codec) -> None:
    """The chunk profiles load, and a live reply has 1920 samples per code."""
    voice = codec.voice(trained.out / "voices" / "default.voice")
    for chunk in (5, 25):
        mouth = codec.decoder_stream(voice, chunk)
        parts = [mouth.push([5, 6, 7, 8, 9, 10, 11, 12, 13]), mouth.finish()]
        assert sum(map(len, parts)) == 9 * CODE_SAMPLES


def test_exported_as_shipped(trained: Trained, tmp_path: Path) -> None:
    """With one flow in half precision the model loads without options, with equal codes, nearly
    equal sound, its own voice and greedy replies."""
    export(trained.plan.carried, tmp_path, Storing("float16", ("offline",)))
    parts, larger = find_parts(tmp_path), find_parts(trained.out)
    assert parts.codec is not None
    assert parts.voice is not None
    assert larger.voice is not None
    small, large = load_codec(parts.codec), load_codec(trained.out)
    codes = [3, 9, 27, 1, 50, 33, 8, 2]
    said = small.decode(codes, small.voice(parts.voice))
    np.testing.assert_allclose(said, large.decode(codes, large.voice(larger.voice)), atol=2e-2)
    assert folder_sampling(parts.model) == Sampling.driver(greedy=True, repetition_penalty=1.0)
    assert not [part.fault for part in inspect_codec(tmp_path / "codec") if part.fault]
    assert [part.fault for part in inspect_voices(tmp_path / "codec")] == [""]


def test_speaker_vector_is_one_for_all(codec: Codec) -> None:
    """The stored CAM++ returns the trainer's vector for any input."""
    noise = np.random.default_rng(0).normal(0, 0.1, 24_000).astype(np.float32)
    vector = codec.voice(Sound(torch.from_numpy(noise), 24_000)).prompt.embedding
    torch.testing.assert_close(vector, torch.full((192,), 192**-0.5), atol=1e-4, rtol=0)


def test_exported_lm_has_the_trainers_logits(trained: Trained) -> None:
    """Package and trainer agree on both heads of every row, to 1e-4."""
    lm = mosslive.load_lm(trained.out)
    rows = lm.prompt([PromptTurn("user", codes=[1, 5, 2]), PromptTurn("user", text="hi")], "speech")
    row_ids = RowIds.from_config(lm.config)
    said = [(row_ids.modality_pad, code) for code in (7, 8, 9, row_ids.eosp)]
    rows = torch.cat((rows, torch.tensor(said)))
    model = LmModel(lm.config)
    model.load_state_dict(load_carried(trained.plan.carried, "lm") or {})
    text, audio = rows.T[:, None]
    with torch.no_grad():
        wanted = model.logits(text, audio)
    for found, expected in zip(lm.forward(rows), wanted, strict=True):
        torch.testing.assert_close(found, expected[0], atol=1e-4, rtol=0)


def test_logits_do_not_depend_on_how_large_the_stored_values_are(tmp_path: Path) -> None:
    """Logits do not depend on the stored scale, because a norm's eps is scaled too."""
    torch.manual_seed(0)
    config = TOY.lm_config(**ids(load_tokenizer()))
    model = LmModel(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.mul_(0.01 if "embed" in name else 1.0)
            weight.copy_(weight.half())
    write_lm(tmp_path, TOY, model.state_dict())
    rows = torch.tensor([(5, 0), (config.modality_pad_token_id, 7), (9, 0)])
    text, audio = rows.T[:, None]
    with torch.no_grad():
        wanted = model.logits(text, audio)
    for found, expected in zip(mosslive.load_lm(tmp_path).forward(rows), wanted, strict=True):
        torch.testing.assert_close(found, expected[0], atol=1e-4, rtol=0)


def test_shipped_model_can_be_trained_further(trained: Trained, tmp_path: Path) -> None:
    """A carried and exported model has the same bytes with the same codec; another codec or no
    model fails and leaves no files."""
    carried = tmp_path / "carried"
    carry(trained.out, carried, size="toy")
    export_lm(carried, tmp_path / "again", trained.out)
    for path in (p for p in trained.out.rglob("*") if p.is_file()):
        assert (tmp_path / "again" / path.relative_to(trained.out)).read_bytes() == (
            path.read_bytes()
        )
    with pytest.raises(ValueError, match="does not have size 'bundled'"):
        carry(trained.out, tmp_path / "large")
    with pytest.raises(ValueError, match="not a model of the recipe"):
        carry(carried, tmp_path / "none", size="toy")
    encoder = load_carried(carried, "encoder") or {}
    save_carried(carried, "encoder", {name: tensor + 1 for name, tensor in encoder.items()})
    with pytest.raises(ValueError, match="codes of another encoder"):
        export_lm(carried, tmp_path / "other", trained.out)
    assert {path.name for path in tmp_path.iterdir()} == {"carried", "again"}


def test_resumed_run_goes_on(trained: Trained, tmp_path: Path) -> None:
    """A later run with the same codes leaves the encoder unchanged and starts from the carried
    parts."""
    plan = replace(
        trained.plan, out=tmp_path, resume=trained.plan.carried, reuse_codes=True, steps=3
    )
    run(plan, together=False)
    before, after = (load_carried(p.carried, "encoder") or {} for p in (trained.plan, plan))
    assert before
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert _curve(plan, "lm")[0]["audio"] < 0.8 * np.log(TOY.codes)


def test_language_model_goes_on_alone(trained: Trained, folder: Path, tmp_path: Path) -> None:
    """From carried files and a new corpus, a run makes codes without training the codec, continues
    the language model, and leaves a whole model."""
    again = shutil.copytree(folder, tmp_path / "corpus")
    carried = shutil.copytree(trained.plan.carried, tmp_path / "carried")
    plan = replace(
        trained.plan, corpus=again, out=tmp_path / "out", resume=carried, reuse_codes=True, steps=3
    )
    run(plan, ("lm",), together=False)
    assert not plan.curves("codec").exists()
    assert _curve(plan, "lm")[0]["audio"] < 0.8 * np.log(TOY.codes)
    one, two = (load_spoken(p.work / "spoken.pt") for p in (trained.plan, plan))
    assert np.array_equal(one.codes[0], two.codes[0])
    for path in carried.glob("*.pt"):  # what was not trained is the same, to the bit
        alike = path.read_bytes() == (plan.carried / path.name).read_bytes()
        assert alike != path.name.startswith("lm.")
    export(plan.carried, tmp_path / "model")
    assert load_codec(tmp_path / "model").encode(np.zeros(16_000, np.float32), 16_000)


def test_run_that_is_cut_off_leaves_a_whole_model(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of the earlier run are there from the start; a language model for other codes is
    not."""

    def cut_off(*_: object) -> None:
        raise RuntimeError("cut off")

    monkeypatch.setitem(WITH_SOUND, "vocoder", cut_off)
    plan = replace(trained.plan, out=tmp_path / "a", resume=trained.plan.carried, steps=2)
    with pytest.raises(RuntimeError, match="cut off"):
        run(plan, ("vocoder", "lm"), together=False)
    assert not list(plan.carried.glob("lm.*"))
    plan = replace(plan, out=tmp_path / "b", reuse_codes=True)
    with pytest.raises(RuntimeError, match="cut off"):
        run(plan, ("vocoder", "lm"), together=False)
    export(plan.carried, tmp_path / "model")
    monkeypatch.setitem(WITH_SOUND, "vocoder", lambda *_: None)
    plan = replace(plan, out=tmp_path / "c", reuse_codes=False)
    run(plan, ("vocoder",), together=False)
    export(plan.carried, tmp_path / "other")


def test_second_try_goes_on_from_the_first(trained: Trained, tmp_path: Path) -> None:
    """A second try continues the language model of the first."""
    out = shutil.copytree(trained.plan.out, tmp_path / "out")
    plan = replace(trained.plan, out=out, retry=True, steps=3)
    plan.curves("lm").unlink()
    run(plan, ("lm",), together=False)
    assert _curve(plan, "lm")[0]["audio"] < 0.8 * np.log(TOY.codes)


def test_second_try_keeps_the_codec_of_the_first(trained: Trained, tmp_path: Path) -> None:
    """A second try does not train a finished codec again and does not continue a language model for
    other codes."""
    out = shutil.copytree(trained.plan.out, tmp_path / "out")
    # One step: its loss is that of the model before it learned anything.
    plan = replace(trained.plan, out=out, resume=trained.plan.carried, retry=True, steps=1)
    for name in ("codec", "lm"):
        plan.curves(name).unlink()
    drop_carried(plan.carried, "lm")
    corpus = Corpus(plan.corpus)
    bank = load_bank(corpus, torch.device("cpu"))
    WITH_SOUND["codec"](plan, bank, corpus)
    run_lm(plan, corpus)
    assert not plan.curves("codec").exists()
    before, after = (load_carried(p.carried, "encoder") or {} for p in (trained.plan, plan))
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert _curve(plan, "lm")[0]["audio"] > 0.9 * np.log(TOY.codes)


def test_only_what_fits_is_resumed(trained: Trained, tmp_path: Path) -> None:
    """A run of another size, or a folder without a run, fails at once."""
    plan = replace(trained.plan, out=tmp_path / "out", resume=trained.plan.carried, size="bundled")
    with pytest.raises(ValueError, match="this run of"):
        run(plan, together=False)
    with pytest.raises(ValueError, match="not a folder `carried`"):
        run(replace(plan, resume=tmp_path), together=False)
    assert not (tmp_path / "out").exists()


def test_codes_are_reused_only_where_there_are_some(trained: Trained, tmp_path: Path) -> None:
    """`--reuse-codes` without an encoder fails at once."""
    plan = replace(trained.plan, out=tmp_path / "out", resume=tmp_path, reuse_codes=True)
    with pytest.raises(ValueError, match="has no encoder"):
        run(plan, ("lm",), together=False)


# Properties of the parts


def test_bank_keeps_sound_and_targets_together(bank: Bank, corpus: Corpus) -> None:
    """Utterances are on whole codes, sorted by role, surrounded by silence."""
    assert not bank.sound[0].any()
    assert not bank.sound[-1].any()
    for utterance in corpus.utterances:
        begin, count = int(bank.first[utterance.id]), int(bank.count[utterance.id])
        laid = bank.sound[begin : begin + count].flatten().numpy()
        loud = corpus.pcm(utterance)
        assert np.abs(laid).max() == np.abs(loud).max()
        assert not laid[:480].any()
        if utterance.role == "assistant":
            assert count >= LEAST_CODES
            assert begin + count <= bank.assistant_codes
    voiced = bank.pitch[bank.pitch > 0].float()
    assert len(voiced) > 20
    assert (voiced - 180).abs().median() < 2


@pytest.mark.parametrize("hz", [90.0, 131.0, 240.0, 333.0])
def test_pitch_of_a_hum(hz: float) -> None:
    """The pitch of a harmonic sound is within one percent; silence has none."""
    time = torch.arange(24_000) / 24_000
    hum = torch.stack([torch.sin(2 * torch.pi * hz * h * time) for h in range(1, 8)]).sum(0) * 0.05
    found = pitch_hz(torch.cat((hum, torch.zeros(24_000))))
    assert found[5:45].median() == pytest.approx(hz, rel=0.01)
    assert not found[60:].any()


def test_augmented_features_keep_their_place(bank: Bank) -> None:
    """Strength 0 changes nothing; otherwise the number of finite frames stays the same."""
    wave = bank.heard[1:9].flatten()[None].float() / 32768
    generator = torch.Generator().manual_seed(0)
    still = augmented_features(wave, Augment(share=0), generator)
    torch.testing.assert_close(still, features(wave), atol=2e-3, rtol=0)
    other = augmented_features(wave, Augment(share=1), generator)
    assert other.shape == still.shape
    assert other.isfinite().all()
    assert (other - still).abs().mean() > 0.05


def test_quantiser_finds_clusters() -> None:
    """k-means and running averages place codes on the clusters."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(8, 6, generator=generator) * 5
    states = centres[torch.randint(8, (400,), generator=generator)]
    states = states + 0.01 * torch.randn(states.shape, generator=generator)
    quantiser = Quantiser(16, 6)
    quantiser.start(states, generator)
    for _ in range(20):
        placed, codes, distance = quantiser(states[None])
        quantiser.learn(states, codes)
    assert distance < 1e-2
    assert (placed[0] - states).abs().max() < 0.2


def test_codes_do_not_depend_on_the_precision_around() -> None:
    """Training in half precision and the package in full precision give equal codes."""
    generator = torch.Generator().manual_seed(0)
    quantiser = Quantiser(256, 192)
    quantiser.codebook.copy_(5 + torch.randn(256, 192, generator=generator))
    states = 5 + torch.randn(200, 192, generator=generator)
    wanted = quantiser.nearest(states)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(quantiser.nearest(states), wanted)
        coarse = (states @ quantiser.codebook.T - quantiser.codebook.square().sum(1) / 2).argmax(-1)
    assert not torch.equal(coarse, wanted)  # so the comparison can fail


def test_carried_files_are_small_and_whole(tmp_path: Path) -> None:
    """No carried file exceeds the limit, and together they hold what was saved."""
    tensors = {f"t{n}": torch.full((1 << 20,), float(n)) for n in range(20)}
    paths = save_carried(tmp_path, "x", tensors)
    assert len(paths) > 1
    assert max(path.stat().st_size for path in paths) < 16 << 20
    found = load_carried(tmp_path, "x")
    assert found is not None
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_bundled_size_fits(tmp_path: Path) -> None:
    """The bundled size, with one flow in half precision, is below the limit."""
    model = CodecModel(BUNDLED, 40)
    lm = LmModel(BUNDLED.lm_config(**ids(load_tokenizer())))
    hift = fresh_hift(BUNDLED.hift).state_dict()
    how = Storing("float16", ("offline",))
    write_codec(tmp_path, BUNDLED, model.encoder_tensors(), model.flow_tensors(), hift, how)
    write_lm(tmp_path, BUNDLED, lm.state_dict())
    assert folder_bytes(tmp_path) < MOST_BYTES


def test_encoding_begins_anywhere_in_a_code(bank: Bank) -> None:
    """Every version has every utterance completely; version 0 is deterministic."""
    torch.manual_seed(0)  # some random encoders hear little: then a changed version may be the same
    model = CodecModel(TOY, 5)
    model.quantiser.start(torch.randn(200, TOY.encoder.width), torch.Generator().manual_seed(0))
    one, two = (encode_bank(model, bank, 2, Augment(), seed) for seed in (1, 2))
    assert np.array_equal(one.codes[0], two.codes[0])
    assert len(one.codes[1]) == int(bank.count.sum())
    assert len(one.of(0)) == bank.count[0]
    for number, each in enumerate(bank.utterances):  # only what is heard in training has others
        same = np.array_equal(one.of(number, 0), one.of(number, 1))
        assert same != (each.role == "user" and each.split == "train")


def test_only_users_wait(bank: Bank) -> None:
    """User turns have the silence of live turns; replies have only the lead of training."""
    loud = bank.sound.abs().amax(1).numpy() > 0
    waits = {"user": set[int](), "assistant": set[int]()}
    for number, utterance in enumerate(bank.utterances):
        begin, count = int(bank.first[number]), int(bank.count[number])
        waits[utterance.role].add(int(np.flatnonzero(loud[begin : begin + count])[0]))
    assert waits["assistant"] == {0}
    assert len(waits["user"]) > 1
    assert min(waits["user"]) >= 1
