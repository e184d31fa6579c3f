"""The codec as users meet it: files, hearing, voices, speaking, live and whole."""

import gc
import pickle
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mosslive
from mosslive.checkpoint import faults
from mosslive.codec import Codec, Sound, Voice, load_codec
from mosslive.codec.inventory import inspect_codec
from mosslive.codec.voice import BadVoice
from mosslive.config import ConfigError
from mosslive.errors import MossliveError
from tests.codec.conftest import speech


@pytest.fixture(scope="module")
def voice(codec: Codec) -> Voice:
    return codec.voice(Sound(torch.from_numpy(speech(2.1, 44100)), 44100))


def test_the_names_users_rely_on(codec_folder: Path, tmp_path: Path) -> None:
    """The public surface, from a recording to a spoken reply."""
    codec = mosslive.load_codec(codec_folder.parent, device="cpu", dtype="float32")
    pcm = speech(1.0, 16000)
    codes = codec.encode(pcm, 16000)
    assert len(codes) == 13
    soundfile.write(tmp_path / "prompt.wav", speech(1.5, 24000), 24000)
    voice = codec.voice(tmp_path / "prompt.wav")
    wave = codec.decode(codes, voice)
    assert wave.dtype == np.float32
    assert wave.shape == (1920 * 13,)
    assert codec.sample_rate == 24000
    assert np.isfinite(wave).all()
    assert wave.std() > 1e-3
    vocoder = mosslive.load_bigvgan(codec_folder.parent / "bigvgan")
    assert vocoder(torch.zeros(100, 7)).shape == (7 * 256,)


@pytest.mark.parametrize("form", ["float32", "int16", "stereo", "float64"])
def test_any_form_of_pcm_is_heard_alike(codec: Codec, form: str) -> None:
    """int16 or float, mono or stereo, of which the first channel counts."""
    pcm = (speech(1.0, 16000) * 32767).round() / 32768
    forms: dict[str, Any] = {
        "float32": pcm.astype(np.float32),
        "float64": pcm.astype(np.float64),
        "int16": (pcm * 32768).astype(np.int16),
        "stereo": np.stack((pcm, np.zeros_like(pcm)), 1).astype(np.float32),
    }
    assert codec.encode(forms[form], 16000) == codec.encode(forms["float32"], 16000)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    st.sampled_from([16000, 24000, 44100, 48000]),
    st.lists(st.integers(1, 9000), min_size=1, max_size=9),
)
def test_hearing_live_equals_hearing_whole(codec: Codec, rate: int, sizes: list[int]) -> None:
    """After finish the codes are the offline ones, at any rate and packet size, and the
    revision is stated: corrected as the result says, the live list becomes exact."""
    pcm = speech(1.0, rate, seed=len(sizes))
    stream = codec.encoder_stream(rate)
    live: list[int] = []
    position = turn = 0
    while position < len(pcm):
        step = sizes[turn % len(sizes)]
        live += stream.push(pcm[position : position + step])
        position, turn = position + step, turn + 1
    heard = stream.finish()
    assert heard.codes == codec.encode(pcm, rate)
    corrected = live + heard.rest
    if heard.first_revised is not None:
        corrected = corrected[: heard.first_revised] + heard.codes[heard.first_revised :]
    assert corrected == heard.codes


@pytest.mark.parametrize(
    ("pcm", "rate", "message"),
    [
        (np.zeros(0, np.float32), 16000, "empty"),
        (np.full(100, np.nan, np.float32), 16000, "not finite"),
        (np.zeros(100, np.float32), 100, "sample_rate is 100"),
        (np.zeros(100, np.float32), 44100.5, "sample_rate is 44100.5"),
        (np.zeros(100, np.uint8), 16000, "type"),
        (np.zeros((2, 2, 2), np.float32), 16000, "shape"),
        (np.full(100, 20000, np.float32), 16000, "exceeds"),
    ],
)
def test_bad_sound_is_refused(codec: Codec, pcm: Any, rate: Any, message: str) -> None:
    """Sound of a wrong type, shape, rate or range is an error that names the value."""
    with pytest.raises(MossliveError, match=message):
        codec.encode(pcm, rate)


def test_a_hundredth_of_a_second_and_ten_minutes(codec: Codec) -> None:
    """The shortest and a long recording: 0.01 s is one code, 10 minutes are 20 segments."""
    assert len(codec.encode(speech(0.01, 16000), 16000)) == 1
    minute = np.tile(speech(10.0, 16000), 60)
    assert len(codec.encode(minute, 16000)) == 7500


# Voices


def test_a_voice_is_cut_to_whole_codes(voice: Voice) -> None:
    """A voice has P = min(frames // 4, codes) codes, and four frames for each."""
    assert voice.codes == 26  # 2.1 s: 105 frames, 27 codes
    assert voice.prompt.prompt_feat.shape == (4 * 26, 80)
    assert voice.prompt.embedding.shape == (192,)


def test_voice_files_round_trip(codec: Codec, voice: Voice, tmp_path: Path) -> None:
    """A stored voice speaks exactly as the prepared one, and nothing else is left in the folder."""
    voice.save(tmp_path / "anna.voice")
    again = codec.voice(tmp_path / "anna.voice")
    assert [path.name for path in tmp_path.iterdir()] == ["anna.voice"]
    assert np.array_equal(codec.decode([1, 2, 3], again), codec.decode([1, 2, 3], voice))


def test_a_voice_of_another_codec_is_refused(
    codec: Codec, voice: Voice, tmp_path: Path, codec_folder: Path
) -> None:
    """Its codes and vector mean something else there."""
    from mosslive.codec.synth import synthesise_codec

    voice.save(tmp_path / "anna.voice")
    other = load_codec(synthesise_codec(tmp_path, "nano", seed=2))
    with pytest.raises(BadVoice, match="another codec"):
        other.voice(tmp_path / "anna.voice")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_cut, "not a voice file"),
        (lambda path: path.write_bytes(b"hello"), "not a voice file"),
        (lambda path: path.unlink(), "no such file"),
    ],
)
def test_bad_voice_files(
    codec: Codec, voice: Voice, tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    """A damaged or missing voice file is an error that names the file."""
    path = tmp_path / "a.voice"
    voice.save(path)
    damage(path)
    with pytest.raises(BadVoice, match=message):
        codec.voice(path)


def test_bad_recordings(codec: Codec, tmp_path: Path) -> None:
    """A file that is not sound, and a recording that is too short for a voice, are errors."""
    (tmp_path / "x.wav").write_bytes(b"RIFFnothing")
    with pytest.raises(MossliveError, match="not readable as sound"):
        codec.voice(tmp_path / "x.wav")
    soundfile.write(tmp_path / "y.wav", speech(0.2, 16000), 16000)
    with pytest.raises(MossliveError, match="too short"):
        codec.voice(tmp_path / "y.wav")


# Speaking


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    st.integers(1, 34),
    st.sampled_from([5, 25]),
    st.booleans(),
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
)
def test_cached_equals_prefix_recomputation(
    codec: Codec, voice: Voice, count: int, chunk: int, align: bool, sizes: list[int]
) -> None:
    """Both streams give the same samples, 1920 per code, however the codes arrive."""
    codes = [(7 * n + count) % 500 for n in range(count)]
    waves = []
    for method in ("prefix", "cached"):
        stream = codec.decoder_stream(voice, chunk, method=method, align=align)
        pieces, position, turn = [], 0, 0
        while position < count:
            step = sizes[turn % len(sizes)]
            pieces.append(stream.push(codes[position : position + step]))
            position, turn = position + step, turn + 1
        waves.append(np.concatenate([*pieces, stream.finish()]))
    assert len(waves[0]) == len(waves[1]) == 1920 * count
    np.testing.assert_allclose(waves[1], waves[0], atol=1e-4)


def test_the_first_sound_comes_after_eight_codes(codec: Codec, voice: Voice) -> None:
    """An aligned prompt: 5 codes and 3 of look-ahead, then 5760 samples at once."""
    stream = codec.decoder_stream(voice, 5)
    assert [len(stream.push([n])) for n in range(8)] == [0] * 7 + [5760]
    stream.close()


def test_later_codes_do_not_change_earlier_sound(codec: Codec, voice: Voice) -> None:
    """Causality: what was handed out stays what it was."""
    first = codec.decoder_stream(voice).push(list(range(13)))
    second = codec.decoder_stream(voice).push([*range(13), 400, 3, 9])
    assert np.array_equal(first, second[: len(first)])


def test_prompt_caches_are_shared_and_go_with_the_voice(codec: Codec) -> None:
    """Two replies of one voice open it once; another voice does not evict it; a voice that is
    collected leaves nothing behind."""
    first, second = (
        codec.voice(Sound(torch.from_numpy(speech(1.5, 16000, seed)), 16000)) for seed in (5, 6)
    )
    for voice in (first, second, first):
        codec.decoder_stream(voice).close()
    kept = codec._opened[first]
    assert len(kept) == len(codec._opened[second]) == 1
    gc.collect()  # voices of other tests
    before = len(codec._opened)
    del first, voice
    gc.collect()
    assert len(codec._opened) == before - 1


def test_closing_frees_and_ends(codec: Codec, voice: Voice) -> None:
    """A cancelled stream frees its memory, raises a clear error when used, and affects no other."""
    stream, other = codec.decoder_stream(voice), codec.decoder_stream(voice)
    stream.push(list(range(8)))
    state = stream.reply.source.state  # type: ignore[attr-defined]
    assert state.own_bytes > 0
    stream.close()
    assert state.closed
    assert state.own_bytes == 0
    with pytest.raises(MossliveError, match="finished or closed"):
        stream.push([1])
    assert len(other.push(list(range(8)))) == 5760


@pytest.mark.parametrize("codes", [[500], [-1], [3, 16384]])
def test_ids_above_the_codes_are_refused(codec: Codec, voice: Voice, codes: list[int]) -> None:
    """The table may have more rows than there are codes: the further rows decode to noise."""
    with pytest.raises(MossliveError, match=r"allowed: 0\.\.499"):
        codec.decode(codes, voice)
    with pytest.raises(MossliveError, match=r"allowed: 0\.\.499"):
        codec.decoder_stream(voice).push(codes * 8)


@pytest.mark.parametrize("codes", [[1.5], [True], [None], ["1"], [10**30], np.ones(9), 7])
def test_only_whole_numbers_are_codes(codec: Codec, voice: Voice, codes: Any) -> None:
    """A value that is not a whole number raises `MossliveError` and is not rounded."""
    with pytest.raises(MossliveError, match=r"allowed: integers|one axis is needed"):
        codec.decode(codes, voice)


def test_a_voice_is_of_one_codec(codec: Codec, voice: Voice) -> None:
    """Not only a file: a voice of another codec is refused wherever it would be used."""
    foreign = Voice(voice.prompt, "another", "eve")
    for use in (
        lambda: codec.decode([1], foreign),
        lambda: codec.decoder_stream(foreign),
        lambda: codec.decoder_stream(foreign, method="prefix"),
        lambda: codec.decoder_batch().add(foreign),
    ):
        with pytest.raises(MossliveError, match="the voice 'eve': prepared by another codec"):
            use()


def test_voices_leave_time_for_a_reply(codec: Codec) -> None:
    """A recording as long as the flow's limit is not a voice; the error for one that is too short
    states the limit that applies."""
    with pytest.raises(MossliveError, match=r"a voice of 300 s leaves no time .* less than 300 s"):
        codec.voice(Sound(torch.zeros(300 * 8000), 8000))
    with pytest.raises(MossliveError, match=r"0\.010 s is too short .* 0\.5 s or more"):
        codec.voice(Sound(torch.zeros(160), 16000))


def test_sound_as_numpy_has_it(codec: Codec) -> None:
    """Another byte order and numpy's integers mean the same; swapped axes and text are refused."""
    wave = speech(0.5, 16000)
    wanted = codec.encode(wave, 16000)
    assert codec.encode(wave.astype(">f4"), np.int64(16000)) == wanted  # type: ignore[arg-type]
    with pytest.raises(MossliveError, match=r"shape \[2, 8000\]; allowed: \[samples, channels\]"):
        codec.encode(np.stack((wave, wave)), 16000)
    with pytest.raises(MossliveError, match="sound of type <U1; allowed"):
        codec.encode(np.array(["a"]), 16000)


def test_bad_options(codec: Codec, voice: Voice, codec_folder: Path) -> None:
    """An error names the field, its value and what is allowed."""
    with pytest.raises(ConfigError, match="chunk is 7; allowed: 5, 25"):
        codec.decoder_stream(voice, 7)
    with pytest.raises(ConfigError, match="method is 'x'; allowed: cached, prefix"):
        codec.decoder_stream(voice, method="x")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="dtype is 'int8'; allowed: float32, bfloat16, float16"):
        load_codec(codec_folder, dtype="int8")
    with pytest.raises(ConfigError, match="device is 'tpu'; allowed: cpu, or one that PyTorch"):
        load_codec(codec_folder, device="tpu")
    with pytest.raises(ConfigError, match="pool_seconds is inf; allowed: above 0"):
        load_codec(codec_folder, pool_seconds=float("inf"))
    with pytest.raises(ConfigError, match=r"pool_seconds is 0.1; allowed: 0.4 or more"):
        codec.decoder_stream(voice, pool_seconds=0.1)
    with pytest.raises(ConfigError, match="window_frames is -1; allowed: 0 or more"):
        codec.decoder_stream(voice, window_frames=-1)
    for begin in (partial(codec.decoder_stream, voice), codec.decoder_batch):
        with pytest.raises(ConfigError, match="tail is 'x'; allowed: reference, cached"):
            begin(tail="x")  # type: ignore[arg-type]
    for seed in (-1, 2**63):
        with pytest.raises(ConfigError, match=r"seed is .*; allowed: 0\.\."):
            codec.decode([1], voice, seed)


# Files


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path("evil-was-here").touch, ())


def _evil(path: Path) -> None:
    path.write_bytes(pickle.dumps({"x": _Evil()}))


def _drop(path: Path) -> None:
    tensors = torch.load(path)
    tensors.pop(next(iter(tensors)))
    torch.save(tensors, path)


def _poison(path: Path) -> None:
    tensors = torch.load(path)
    next(iter(tensors.values())).view(-1)[0] = float("nan")
    torch.save(tensors, path)


@pytest.mark.parametrize("name", ["flow.pt", "hift.pt"])
@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (_cut, faults.TruncatedShard),
        (_evil, faults.MalformedShard),
        (lambda path: path.unlink(), faults.NoWeights),
        (_poison, faults.NonFiniteValues),
        (_drop, MossliveError),
    ],
)
def test_damaged_weights(
    codec_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    voice: Voice,
    name: str,
    damage: Callable[[Path], None],
    error: type[Exception],
) -> None:
    """Each fault of a pickle has its own message, and nothing in it is executed."""
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(codec_folder, tmp_path / "codec")
    damage(folder / "flow" / name)
    with pytest.raises(error):
        load_codec(folder).decode([1, 2, 3], voice)
    assert not (tmp_path / "evil-was-here").exists()


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("config.json", '"gelu"', '"relu"', "activation_function"),
        (
            "config.json",
            '"encoder_causal_attention": true',
            '"encoder_causal_attention": false',
            "encoder_causal_attention",
        ),
        ("config.json", '"d_model": 32', '"d_model": "x"', "d_model"),
        ("preprocessor_config.json", "16000", "8000", "sampling_rate"),
        ("flow/config.yaml", "euler", "midpoint", "solver"),
        ("flow/config.yaml", "attention_head_dim", "head_dimension", "attention_head_dim"),
        ("flow/config.yaml", "sample_rate:", "sample_rate: [", "YAML"),
        ("flow/config.yaml", "solver: euler", "n_timesteps: 0", "n_timesteps is 0"),
        ("flow/config.yaml", "rate: 0.7", "rate: -1", "inference_cfg_rate is -1"),
        ("flow/config.yaml", "inference_cfg_rate", "cfg_rate", "inference_cfg_rate is None"),
    ],
)
def test_bad_settings(
    codec_folder: Path, tmp_path: Path, file: str, old: str, new: str, message: str
) -> None:
    """Settings this package does not compute are refused by name, before any weight is read."""
    folder = shutil.copytree(codec_folder, tmp_path / "codec")
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message):
        load_codec(folder)


def test_the_published_yaml_dialect_is_read(codec_folder: Path, tmp_path: Path) -> None:
    """The published file has object tags and references; they are data here, never objects."""
    folder = shutil.copytree(codec_folder, tmp_path / "codec")
    path = folder / "flow" / "config.yaml"
    text = path.read_text()
    text = text.replace("flow:", "flow: !new:cosyvoice.flow.flow.CausalMaskedDiffWithXvec", 1)
    text = text.replace("sampling_rate: 24000", "sampling_rate: !ref <sample_rate>")
    path.write_text(text)
    assert load_codec(folder).files.decoder == load_codec(codec_folder).files.decoder


def test_solver_settings_are_the_folders(codec_folder: Path, tmp_path: Path) -> None:
    """The steps are ten where the folder does not say, as published; a folder may ask for fewer."""
    folder = shutil.copytree(codec_folder, tmp_path / "codec")
    path = folder / "flow" / "config.yaml"
    text = path.read_text()
    for stated, steps in (("", 10), ("n_timesteps: 3", 3)):
        path.write_text(text.replace("n_timesteps: 2", stated))
        settings = load_codec(folder)._flow("chunk-5").settings
        assert (settings.steps, settings.guidance) == (steps, 0.7)


def test_one_flow_for_all_profiles(codec_folder: Path, tmp_path: Path) -> None:
    """A folder without the chunk files speaks live with `flow.pt`, loaded once; `inspect` says so.
    Stored in halves, it is the same flow with rounded weights."""
    folder = shutil.copytree(codec_folder, tmp_path / "codec")
    flow = folder / "flow" / "flow.pt"
    for chunk in (5, 25):
        (folder / "flow" / f"flow-chunk-{chunk}.pt").unlink()
    torch.save({n: t.half() for n, t in torch.load(flow, weights_only=True).items()}, flow)
    codec = load_codec(folder, trace_cpu_steps=False)
    assert codec._flow("chunk-5") is codec._flow("chunk-25") is codec._flow("offline")
    voice = codec.voice(Sound(torch.from_numpy(speech(1.0, 24_000)), 24_000))
    stream = codec.decoder_stream(voice, 5)
    codes = list(range(12))
    assert len(stream.push(codes)) + len(stream.finish()) == 12 * 1920
    parts = {part.block: part for part in inspect_codec(folder)}
    assert not [part.fault for part in parts.values() if part.fault]
    assert parts["flow, offline"].dtype == "float16"
    assert {"flow, chunk-5: flow.pt", "flow, chunk-25: flow.pt"} <= parts.keys()
    assert parts["flow, chunk-5: flow.pt"].bytes == 0  # counted once
    flow.unlink()
    with pytest.raises(faults.NoWeights, match=r"flow\.pt"):
        load_codec(folder).decoder_stream(voice, 5)
