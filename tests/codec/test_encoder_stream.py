"""A turn encoded live: in time while it is spoken, exactly the offline codes when it ends."""

from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from mosslive.codec.encoder import Encoder, EncoderState
from mosslive.codec.encoder_stream import EncoderStream, HeardTurn
from mosslive.codec.mel import floor_and_scale, segment_log10_mel
from mosslive.errors import MossliveError

GOLDEN = load_file(Path(__file__).parents[1] / "golden" / "whisper_vq.safetensors")
WEIGHTS = {name[2:]: tensor for name, tensor in GOLDEN.items() if name.startswith("w.")}
SEGMENT_SAMPLES = 25_600  # 20 codes, so that several segments fit into a test


def build(positions: int) -> Encoder:
    """The golden encoder with a position table, and so segments, of another length."""
    table = WEIGHTS["encoder.embed_positions.weight"]
    longer = table.repeat(-(-positions // table.shape[0]), 1)[:positions]
    return Encoder.from_tensors(WEIGHTS | {"encoder.embed_positions.weight": longer}, heads=4)


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return build(80)


def noise(samples: int, seed: int = 0) -> Tensor:
    return torch.randn(samples, generator=torch.Generator().manual_seed(seed))


def sound(kind: str, samples: int) -> Tensor:
    """Signals that treat the loudest-so-far in every way."""
    time = torch.linspace(0, 1, samples)
    level = {
        "even": torch.full((samples,), 0.1),
        "rising": 10 ** (6 * time - 6.5),
        "falling": 10 ** (-6 * time - 0.5),
        "bursts": 10 ** (-4 + 3 * torch.sin(40 * time)),
        "silence": torch.zeros(samples),
        "silence, then loud": 0.2 * (time > 0.7),
        "loud at the border": 1e-4 + 0.3 * (torch.arange(samples) >= SEGMENT_SAMPLES),
    }[kind]
    # A moving tone over faint noise: most bands are near the floor, as in real speech.
    tone = torch.sin(torch.arange(samples) * (0.3 + 0.2 * torch.sin(9 * time)))
    return level * (tone + 1e-3 * noise(samples))


KINDS = ["even", "rising", "falling", "bursts", "silence", "silence, then loud"]


def speak(stream: EncoderStream, wave: Tensor, chunks: list[int]) -> tuple[list[int], HeardTurn]:
    """Pushes `wave` in pieces of these sizes, again and again, then ends the turn."""
    live: list[int] = []
    first = index = 0
    while first < wave.shape[0]:
        size = chunks[index % len(chunks)]
        live += stream.push(wave[first : first + size])
        first += size
        index += 1
    return live, stream.finish()


def corrected(live: list[int], turn: HeardTurn) -> list[int]:
    """Returns the live codes, corrected by the result."""
    if turn.first_revised is None:
        return live + turn.rest
    return live[: turn.first_revised] + turn.codes[turn.first_revised :]


@settings(derandomize=True, deadline=None, max_examples=30)
@given(
    kind=st.sampled_from(KINDS),
    samples=st.integers(1, 60_000),
    chunks=st.lists(st.integers(0, 9000), min_size=3, max_size=6).filter(lambda c: sum(c) > 3000),
)
@example(kind="rising", samples=SEGMENT_SAMPLES, chunks=[320])
@example(kind="bursts", samples=2 * SEGMENT_SAMPLES + 1, chunks=[SEGMENT_SAMPLES])
@example(kind="loud at the border", samples=SEGMENT_SAMPLES + 2000, chunks=[1000])
@example(kind="falling", samples=1280, chunks=[7])
def test_live_is_offline(encoder: Encoder, kind: str, samples: int, chunks: list[int]) -> None:
    """After finish the codes are those of the whole sound, for any sound and chunk sizes, and
    the live codes differ from them first where the result says."""
    wave = sound(kind, samples)
    live, turn = speak(EncoderStream(encoder), wave, chunks)
    assert turn.codes == encoder.encode(wave).tolist()
    assert corrected(live, turn) == turn.codes
    assert turn.rest == turn.codes[len(live) :]
    if turn.first_revised is not None:
        assert live[turn.first_revised] != turn.codes[turn.first_revised]
        assert live[: turn.first_revised] == turn.codes[: turn.first_revised]
    # A live code depends on the sound before it, not on how it was cut or on what came later.
    whole = EncoderStream(encoder)
    assert whole.push(wave) == live
    shorter = EncoderStream(encoder)
    some = shorter.push(wave[: samples // 2])
    assert some == live[: len(some)]


@pytest.mark.parametrize("position", [0, 7, 19, 20, 33])
def test_a_code_leaves_in_time(encoder: Encoder, position: int) -> None:
    """Code k is returned with sample 1160 of its block, no sooner and no later."""
    stream, wave = EncoderStream(encoder), sound("even", 1280 * 35)
    last = 1280 * position + 1160
    assert len(stream.push(wave[: last - 1])) == position
    assert len(stream.push(wave[last - 1 : last])) == 1
    assert stream.push(wave[last : last + 1279]) == []


def test_golden_speech_live() -> None:
    """The public code's own codes, from 20 ms packets; nothing in it needs revision."""
    live, turn = speak(EncoderStream(build(400)), GOLDEN["io.wave"], [320])
    assert turn.codes == GOLDEN["io.codes"].tolist()
    assert live + turn.rest == turn.codes
    assert turn.first_revised is None


class Watched:
    """What an encoder's `step` is given and how often, from now on."""

    def __init__(self, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[int] = []  # codes computed by each
        self.frames: dict[int, Tensor] = {}  # by code, the last ones it was computed from
        self._step = encoder.step
        monkeypatch.setattr(encoder, "step", self._watch)

    def _watch(self, state: EncoderState, frames: Tensor, reach: int) -> tuple[Tensor, Tensor]:
        count, first = frames.shape[2] // 8, int(state.position) // 4
        self.steps.append(count)
        for index in range(count):
            self.frames[first + index] = frames[0, :, 8 * index : 8 * index + 8]
        return self._step(state, frames, reach)


def test_loud_after_quiet_is_revised(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A floor that rises late changes earlier codes: they are reported and corrected, and only
    from the first changed block on; noise that stays above the floor before it is not redone."""
    wave = torch.cat((0.1 * noise(12_800), sound("even", 5120) / 1e3, noise(6400) / 4))
    stream, steps = EncoderStream(encoder), Watched(encoder, monkeypatch).steps
    live = [code for first in range(0, 24_320, 1280) for code in stream.push(wave[first:][:1280])]
    assert steps == [1] * 19
    turn = stream.finish()
    assert turn.first_revised is not None
    assert 10 <= turn.first_revised <= 13
    assert steps[19:] == [9]  # one step from the first quiet block on
    assert corrected(live, turn) == turn.codes == encoder.encode(wave).tolist()


def test_nothing_is_redone_without_need(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the loudest moment comes first, the end of the turn costs only its last code."""
    steps = Watched(encoder, monkeypatch).steps
    wave = torch.cat((noise(1280) / 2, sound("falling", 12_000)))
    live, turn = speak(EncoderStream(encoder), wave, [640])
    assert turn.first_revised is None
    assert len(turn.rest) == 1
    assert steps == [1] * 11
    assert live + turn.rest == turn.codes


def test_the_frame_no_code_uses_counts(encoder: Encoder) -> None:
    """A knock that only the last kept frame sees still lifts the floor of all others."""
    quiet = sound("even", 12_800) / 1e2
    knock = quiet.clone()
    knock[-120:] = 0.9 * torch.sin(torch.arange(120) * 0.5)
    live, turn = speak(EncoderStream(encoder), knock, [640])
    assert live == encoder.encode(quiet).tolist()
    assert turn.codes == encoder.encode(knock).tolist()
    assert turn.first_revised is not None


@pytest.mark.parametrize("samples", [900, 1280, 3840])
@pytest.mark.parametrize(
    ("loud", "seed"),
    [
        (slice(0), 0),
        (slice(-40, None), 1),  # mostly heard in the mirrored end
        (slice(-40, None), 3),
        (slice(60, 200), 23),  # loudest in the frame before the first, if that were one
    ],
)
def test_frames_are_the_offline_ones(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch, samples: int, loud: slice, seed: int
) -> None:
    """In the end every code comes from the offline features: same frames, same
    floor, wherever the loudest moment lies."""
    watched = Watched(encoder, monkeypatch)
    # Dull noise, so that high bands lie on the floor and show where it is.
    wave = noise(samples + 99, seed).unfold(0, 100, 1) @ torch.hann_window(100) / 200
    wave[loud] *= 20
    speak(EncoderStream(encoder), wave, [320])
    log10 = segment_log10_mel(wave, 128)
    features = floor_and_scale(log10, log10.amax())
    got = torch.cat([watched.frames[code] for code in range(len(watched.frames))], 1)[:, 1:]
    torch.testing.assert_close(got, features[:, :-1], rtol=0, atol=1e-5)
    assert int((features == features.amin()).sum()) > 100


def test_the_true_segment_of_thirty_seconds() -> None:
    """480 000 samples, 1500 positions: the border lies where the published code has it."""
    encoder = build(1500)
    wave = sound("bursts", 16_000 * 31)
    live, turn = speak(EncoderStream(encoder), wave, [24_000])
    assert turn.codes == encoder.encode(wave).tolist()
    assert corrected(live, turn) == turn.codes
    assert len(turn.codes) == 375 + 13


@pytest.mark.parametrize("samples", [0, 1, 200, 1159])
def test_hardly_any_sound(encoder: Encoder, samples: int) -> None:
    """Turns too short for a live code, down to nothing: all comes from finish."""
    wave = sound("even", 2000)[:samples]
    stream = EncoderStream(encoder)
    assert stream.push(wave) == []
    codes = encoder.encode(wave).tolist()
    assert stream.finish() == HeardTurn(rest=codes, codes=codes, first_revised=None)
    assert len(codes) == (samples > 0)


def test_sixteen_bit_packets(encoder: Encoder) -> None:
    """int16 as it comes from a wire is the same sound."""
    packets = (sound("bursts", 20_000) * 32767).to(torch.int16)
    live, turn = speak(EncoderStream(encoder), packets, [320])
    assert (live, turn) == speak(EncoderStream(encoder), packets / 32768, [500])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (torch.tensor([0.1, torch.nan]), "not finite"),
        (torch.tensor([3e4, -2e4]), "exceeds"),
        (torch.zeros(1, 320), "one axis"),
        (torch.zeros(320, dtype=torch.int64), "type torch.int64"),
    ],
)
def test_bad_packets_change_nothing(encoder: Encoder, bad: Tensor, message: str) -> None:
    """A packet that raises an error does not change the turn."""
    wave, stream = sound("rising", 9000), EncoderStream(encoder)
    live = stream.push(wave[:5000])
    with pytest.raises(MossliveError, match=message):
        stream.push(bad)
    live += stream.push(wave[5000:])
    assert (live, stream.finish()) == speak(EncoderStream(encoder), wave, [777])


def test_one_turn_after_another(encoder: Encoder) -> None:
    """A finished turn takes nothing more; reset begins another that knows nothing of it."""
    stream = EncoderStream(encoder)
    speak(stream, sound("bursts", 40_000), [4000])
    with pytest.raises(MossliveError, match="was finished; reset"):
        stream.push(torch.zeros(10))
    with pytest.raises(MossliveError, match="finished twice"):
        stream.finish()
    stream.reset()
    wave = sound("rising", 30_000)
    assert speak(stream, wave, [3000]) == speak(EncoderStream(encoder), wave, [3000])
    stream.reset()
    stream.push(wave[:7000])
    stream.reset()  # in the middle of a turn
    assert speak(stream, wave, [3000])[1].codes == encoder.encode(wave).tolist()
