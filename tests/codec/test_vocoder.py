"""BigVGAN in place of HiFT: whole replies, live and batched, and vocoders that do not fit."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from mosslive.checkpoint.bigvgan import GENERATOR_FILE
from mosslive.codec import Codec, Sound, Voice, load_bigvgan, load_codec
from mosslive.codec.bigvgan import BigVganVocoder
from mosslive.codec.decoder_batch import Reply
from mosslive.codec.hift.stream import HiftStream
from mosslive.codec.mel import FLOW_MEL
from mosslive.codec.rendering import Samples
from mosslive.codec.synth import synthesise_bigvgan
from mosslive.config import ConfigError
from mosslive.errors import MossliveError
from tests.codec.conftest import speech

# Without shrinking, which would take minutes.
RANDOM = settings(derandomize=True, deadline=None, max_examples=3, phases=[Phase.generate])
PACKETS = st.lists(st.integers(1, 17), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def bigvgan_codec(codec_folder: Path, flow_bigvgan: Path) -> Codec:
    return load_codec(codec_folder, vocoder=flow_bigvgan, trace_cpu_steps=False)


@pytest.fixture(scope="module")
def voices(bigvgan_codec: Codec) -> list[Voice]:
    return [
        bigvgan_codec.voice(Sound(torch.from_numpy(speech(length, 16000, seed)), 16000))
        for seed, length in enumerate((0.7, 1.3))
    ]


def some_codes(count: int, seed: int) -> list[int]:
    return [(7 * n + 31 * seed) % 500 for n in range(count)]


def reply_mel(codec: Codec, voice: Voice, codes: list[int]) -> Tensor:
    """The mel [bands, 4 · n] of a live reply, hop by hop."""
    source, prompt = codec._cached(voice, 5, "cached", None, align=True)
    assert prompt % 5 == 0
    pieces = [source.step(codes[n : n + 8]) for n in range(0, len(codes) - 7, 5)]
    rest = codes[5 * len(pieces) :]
    return torch.cat([*pieces, source.finish(rest)], 1) if rest else torch.cat(pieces, 1)


def spoken(codec: Codec, voice: Voice, codes: list[int], packets: list[int]) -> list[Samples]:
    """What a live reply returns for packets of these sizes, repeated, and for its end."""
    stream, first = codec.decoder_stream(voice, tail="cached"), 0
    sound: list[Samples] = []
    while first < len(codes):
        size = packets[len(sound) % len(packets)]
        sound.append(stream.push(codes[first : first + size]))
        first += size
    return [*sound, stream.finish()]


@RANDOM
@given(count=st.integers(1, 40), packets=PACKETS)
def test_a_live_reply_is_the_offline_wave_of_its_mel(
    bigvgan_codec: Codec, flow_bigvgan: Path, voices: list[Voice], count: int, packets: list[int]
) -> None:
    """Packets of any sizes give 1920 samples per code, equal to BigVGAN over the whole mel."""
    codes = some_codes(count, 1)
    sound = np.concatenate(spoken(bigvgan_codec, voices[0], codes, packets))
    wanted = load_bigvgan(flow_bigvgan)(reply_mel(bigvgan_codec, voices[0], codes)).numpy()
    assert sound.shape == wanted.shape == (1920 * count,)
    assert np.abs(wanted).max() > 1e-3
    # Rounding of random weights grows from layer to layer; a wrong sample is off by its own size.
    assert np.abs(sound - wanted).max() < 3e-3 * np.abs(wanted).max()


def test_sound_lags_behind_its_mel_by_the_look_ahead(
    bigvgan_codec: Codec, voices: list[Voice]
) -> None:
    """After each chunk a live reply has returned 480 samples for every frame but the last ones,
    which the vocoder looks ahead; the codec says how many codes the first sound takes."""
    delay = bigvgan_codec._vocoder.delay_frames
    stream, returned, first = bigvgan_codec.decoder_stream(voices[0]), 0, None
    for n, code in enumerate(some_codes(40, 2)):
        returned += len(stream.push([code]))
        frames = 20 * max(0, (n + 1 - 3) // 5)
        assert returned == 480 * max(0, frames - delay)
        first = n + 1 if returned and first is None else first
    assert first == 8 + bigvgan_codec.delay_codes(5)
    stream.close()


@RANDOM
@given(counts=st.tuples(*3 * [st.integers(1, 30)]), packets=PACKETS)
def test_batched_replies_are_those_alone(
    bigvgan_codec: Codec, voices: list[Voice], counts: tuple[int, ...], packets: list[int]
) -> None:
    """Replies at different points share passes and return what each returns alone; a cancelled
    reply changes nothing."""
    batch = bigvgan_codec.decoder_batch(tail="cached")
    cancelled = batch.add(voices[0])
    batch.push(cancelled, some_codes(9, 5))
    todo = {
        batch.add(voices[seed % 2], seed): some_codes(count, seed)
        for seed, count in enumerate(counts)
    }
    given_codes = {reply: list(codes) for reply, codes in todo.items()}
    pieces: dict[Reply, list[Samples]] = {reply: [] for reply in todo}
    turn = 0
    while any(todo.values()):
        for row, (reply, codes) in enumerate(todo.items()):
            size = packets[(turn + row) % len(packets)] if (turn + row) % 3 else 0
            batch.push(reply, codes[:size])
            del codes[:size]
        turn += 1
        for reply, samples in batch.step().items():
            if reply is not cancelled:
                pieces[reply].append(samples)
        batch.cancel(cancelled)
    for row, (reply, codes) in enumerate(given_codes.items()):
        sound = np.concatenate([*pieces[reply], batch.finish(reply)])
        alone = np.concatenate(spoken(bigvgan_codec, voices[row % 2], codes, [len(codes)]))
        assert sound.shape == (1920 * len(codes),)
        # The random network turns a rounding error of the flow, 1e-6, into 5e-4.
        np.testing.assert_allclose(sound, alone, atol=5e-3)


def test_a_whole_reply(bigvgan_codec: Codec, flow_bigvgan: Path, voices: list[Voice]) -> None:
    """`decode` gives BigVGAN's wave of the offline mel; the seed, which is HiFT's, changes
    nothing."""
    codes = some_codes(11, 3)
    sound = bigvgan_codec.decode(codes, voices[1])
    mel = bigvgan_codec._flow("offline").mel_offline(codes, voices[1].prompt)
    np.testing.assert_allclose(sound, load_bigvgan(flow_bigvgan)(mel).numpy(), atol=1e-5)
    assert np.array_equal(sound, bigvgan_codec.decode(codes, voices[1], seed=9))


def test_hift_is_the_default(codec: Codec) -> None:
    """Without a vocoder folder the codec speaks through HiFT, whose first chunk gives sound."""
    assert isinstance(codec._vocoder, HiftStream)
    assert codec._vocoder.mel_settings == FLOW_MEL
    assert codec.delay_codes(5) == codec.delay_codes(25) == 0


def test_a_vocoder_of_another_mel_is_refused_at_once(codec_folder: Path, tmp_path: Path) -> None:
    """The error shows both mels side by side, and comes before any weights are read: the vocoder
    folder here has none."""
    folder = synthesise_bigvgan(tmp_path, "nano")
    (folder / GENERATOR_FILE).unlink()
    with pytest.raises(ConfigError) as refused:
        load_codec(codec_folder, vocoder=folder)
    lines = [line.split() for line in str(refused.value).splitlines()]
    assert ["flow", "vocoder"] in lines
    assert ["bands", "80", "100", "differs"] in lines
    assert ["range", "0-8000", "Hz", "0-12000", "Hz", "differs"] in lines
    assert ["hop", "480", "samples", "256", "samples", "differs"] in lines
    assert ["sample", "rate", "24000", "Hz", "24000", "Hz"] in lines


@pytest.mark.parametrize(
    ("field", "value"), [("sampling_rate", 22050), ("fmin", 40), ("fmax", None), ("num_mels", 100)]
)
def test_every_property_of_the_mel_counts(
    codec_folder: Path, flow_bigvgan: Path, tmp_path: Path, field: str, value: object
) -> None:
    """One property that differs from the flow's mel is enough to refuse a vocoder."""
    config = json.loads((flow_bigvgan / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {field: value}))
    with pytest.raises(ConfigError, match="trained on another mel"):
        load_codec(codec_folder, vocoder=tmp_path)


def test_a_missing_vocoder_folder_is_named(codec_folder: Path, tmp_path: Path) -> None:
    """A folder that does not exist is an error when the codec is opened."""
    with pytest.raises(ConfigError, match="nowhere: no such folder"):
        load_codec(codec_folder, vocoder=tmp_path / "nowhere")


def test_streams_of_a_vocoder_are_checked(flow_bigvgan: Path) -> None:
    """One mel per stream, and a stream once per call."""
    vocoder = BigVganVocoder(load_bigvgan(flow_bigvgan))
    stream, mel = vocoder.open(), torch.zeros(80, 4)
    with pytest.raises(MossliveError, match="2 mels for 1 streams"):
        vocoder.push([stream], [mel, mel])
    with pytest.raises(MossliveError, match="only once per call"):
        vocoder.push([stream, stream], [mel, mel])
