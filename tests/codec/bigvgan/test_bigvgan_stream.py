"""BigVGAN as a stream: equal to offline for any chunks; a shorter look-ahead is approximate."""

from collections.abc import Sequence
from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mosslive.codec.bigvgan import vocoder
from mosslive.codec.bigvgan.step import BigVganState, advance, rest
from mosslive.codec.bigvgan.stream import BigVganStream
from mosslive.codec.bigvgan.vocoder import BigVganVocoder
from mosslive.config import ConfigError
from mosslive.config.bigvgan import BigVganConfig
from mosslive.errors import MossliveError
from tests.codec.bigvgan.test_bigvgan import (
    FAMILY,
    TINY,
    golden_network,
    random_mel,
    relative_error,
    tiny_network,
)

PROPERTY = settings(max_examples=40, deadline=None, derandomize=True)


def pieces(mel: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """mel [..., bands, T] cut into these sizes, which add up to T."""
    ends = list(accumulate(sizes))
    return [mel[..., end - size : end] for size, end in zip(sizes, ends, strict=True)]


def played(stream: BigVganStream, mel: Tensor, sizes: Sequence[int]) -> Tensor:
    parts = [stream.push(piece) for piece in pieces(mel, sizes)]
    return torch.cat([*parts, stream.finish()], -1)


@PROPERTY
@given(
    config=st.sampled_from(FAMILY),
    sizes=st.lists(st.integers(0, 9), max_size=12),
    seed=st.integers(0, 99),
)
def test_stream_equals_offline(config: BigVganConfig, sizes: list[int], seed: int) -> None:
    """Any chunks, empty ones included, give the offline wave; so does every prefix, whatever
    follows it."""
    network, mel = tiny_network(config), random_mel(config.num_mels, sum(sizes), seed)
    whole, stream = network(mel), network.stream()
    frames, samples = 0, 0
    for piece in pieces(mel, sizes):
        wave = stream.push(piece)
        torch.testing.assert_close(wave, whole[samples : samples + len(wave)])
        frames, samples = frames + piece.shape[-1], samples + len(wave)
        assert samples == network.hop * max(0, frames - network.reach.ahead)
    torch.testing.assert_close(stream.finish(), whole[samples:], check_dtype=bool(sizes))


@PROPERTY
@given(
    config=st.sampled_from(FAMILY),
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    look_ahead=st.integers(0, 12),
)
def test_short_look_ahead_is_the_mel_ending_now(
    config: BigVganConfig, sizes: list[int], look_ahead: int
) -> None:
    """Each chunk is what offline gives for the frames so far, `look_ahead` frames early, and
    the inexact samples of one chunk leave no trace in the next."""
    network, mel = tiny_network(config), random_mel(config.num_mels, sum(sizes))
    look_ahead = min(look_ahead, network.reach.ahead)
    stream = network.stream(look_ahead)
    frames, samples = 0, 0
    for piece in pieces(mel, sizes):
        wave = stream.push(piece)
        frames += piece.shape[-1]
        due = network.hop * max(0, frames - look_ahead)
        torch.testing.assert_close(wave, network(mel[:, :frames])[samples:due])
        samples = due
    torch.testing.assert_close(stream.finish(), network(mel)[samples:])


@pytest.mark.parametrize("sizes", [[10] * 9, [1, 40, 3, 46], [90]])
def test_golden_network_streams(sizes: list[int]) -> None:
    """The six-stage network in float32: streaming equals offline to 1e-4, 256 samples a frame."""
    mel = random_mel(20, 90)
    wave = played(golden_network().stream(), mel, sizes)
    assert wave.shape == (90 * 256,)
    assert relative_error(wave, golden_network()(mel)) < 1e-4


def test_error_falls_with_look_ahead() -> None:
    """The price of low latency, measured: largest error by look-ahead, against offline. Random
    weights; docs/bigvgan.md has the table."""
    mel = random_mel(20, 90)
    whole = golden_network()(mel)
    errors = {
        frames: relative_error(played(golden_network().stream(frames), mel, [30] * 3), whole)
        for frames in (0, 8, 16, 20, 38)
    }
    falling = list(errors.values())
    assert falling == sorted(falling, reverse=True), errors
    assert errors[0] > 0.1
    assert errors[16] < 0.05
    assert errors[20] < 1e-3
    assert errors[38] < 1e-4


def test_rows_of_a_batch_go_together() -> None:
    """Several streams advance in one call, each as if alone."""
    network = tiny_network(TINY)
    mels = torch.stack([random_mel(5, 25, seed) for seed in range(3)])
    waves = played(network.stream(), mels, [7, 11, 7])
    torch.testing.assert_close(waves, network(mels))
    assert waves.shape == (3, 25 * 6)


@PROPERTY
@given(
    config=st.sampled_from(FAMILY),
    sizes=st.lists(st.tuples(*3 * [st.sampled_from((0, 4, 4, 7))]), max_size=9),
    look_ahead=st.none() | st.integers(0, 3),
)
def test_streams_at_any_points_share_passes(
    config: BigVganConfig, sizes: list[tuple[int, int, int]], look_ahead: int | None
) -> None:
    """Streams of one vocoder, each with chunks of its own, return what each returns alone."""
    network = tiny_network(config)
    shared = BigVganVocoder(network, look_ahead)
    streams, mels = [shared.open() for _ in range(3)], []
    for row in range(3):
        mels.append(random_mel(config.num_mels, sum(each[row] for each in sizes) + 2, row))
    alone = [network.stream(look_ahead) for _ in mels]
    ends = [0, 0, 0]
    for each in sizes:
        chunks = [mel[:, end : end + n] for mel, end, n in zip(mels, ends, each, strict=True)]
        ends = [end + n for end, n in zip(ends, each, strict=True)]
        found = shared.push(streams, chunks)
        for wave, stream, chunk in zip(found, alone, chunks, strict=True):
            torch.testing.assert_close(wave, stream.push(chunk))
    last = shared.finish(streams, [mel[:, end:] for mel, end in zip(mels, ends, strict=True)])
    for wave, mel, end in zip(last, mels, ends, strict=True):
        first = network.hop * max(0, end - shared.delay_frames)
        torch.testing.assert_close(wave, network(mel)[first:])


def test_state_may_be_forked() -> None:
    """A step leaves the state it came from valid: two futures of one past are both exact."""
    network = tiny_network(TINY)
    past = random_mel(5, 20)[None].double()
    first, state = advance(network, BigVganState(), past)
    for seed in (1, 2):
        future = random_mel(5, 9, seed)[None].double()
        second, after = advance(network, state, future)
        third = rest(network, after, future[..., :0])
        wave = torch.cat((first, second, third), -1)
        torch.testing.assert_close(wave, network(torch.cat((past, future), -1)))


def test_exact_form_computes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for the whole reach must not cost a provisional end at every chunk."""
    network, asked = tiny_network(TINY), []

    def counted(*_: object) -> Tensor:
        asked.append(1)
        return torch.zeros(1, 0)

    monkeypatch.setattr(vocoder, "rest", counted)
    for look_ahead, wanted in ((None, 0), (network.reach.ahead, 0), (5, 3)):
        stream = network.stream(look_ahead)
        for _ in range(4):
            stream.push(random_mel(5, 5))
        assert len(asked) == wanted


def test_shapes_settle() -> None:
    """Once the layers are full, equal chunks mean equal shapes everywhere (for CUDA graphs), and
    memory does not grow."""
    network = tiny_network(TINY)
    state, seen = BigVganState(), []
    for seed in range(16):
        wave, state = advance(network, state, random_mel(5, 4, seed)[None].double())
        seen.append((wave.shape, [kept.shape for kept in state.kept]))
    settled = -(-(network.reach.ahead + network.reach.behind) // 4)
    assert settled < 14
    assert seen[settled:] == [seen[settled]] * (16 - settled)
    assert seen[settled][0] == (1, 4 * network.hop)


def test_without_any_frame() -> None:
    """A stream that got nothing, or only empty chunks, gives an empty wave."""
    network = tiny_network(TINY)
    assert network.stream().finish().shape == (0,)
    stream = network.stream(0)
    assert stream.push(torch.zeros(2, 5, 0)).shape == (2, 0)
    assert stream.finish().shape == (2, 0)


def test_finished_is_finished() -> None:
    """A finished stream raises an error when it is used."""
    stream = tiny_network(TINY).stream()
    stream.finish()
    for use in (stream.finish, lambda: stream.push(random_mel(5, 1))):
        with pytest.raises(MossliveError, match="finished"):
            use()


def test_rows_cannot_change() -> None:
    """A stream has the rows of its first chunk; a refused chunk changes nothing."""
    network = tiny_network(TINY)
    mel, stream = random_mel(5, 12)[None], network.stream()
    start = stream.push(mel[..., :5])
    with pytest.raises(MossliveError, match="2 rows in a stream that has 1"):
        stream.push(torch.zeros(2, 5, 3))
    wave = torch.cat((start, stream.push(mel[..., 5:]), stream.finish()), -1)
    torch.testing.assert_close(wave, network(mel))


@pytest.mark.parametrize("frames", [-1, 99, 1.5])
def test_look_ahead_out_of_range(frames: int) -> None:
    """More than the network's reach would only wait; the message says what is exact."""
    network = tiny_network(TINY)
    with pytest.raises(ConfigError, match=f"{frames}; allowed: 0..{network.reach.ahead}"):
        network.stream(frames)
