"""Many replies at once, codes to samples: each sounds as it would alone and frees its pages."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive.codec import Codec, Voice, load_codec
from mosslive.codec.decoder_batch import Reply
from mosslive.codec.flow_pages import PoolFull
from mosslive.codec.rendering import Samples
from mosslive.config import ConfigError
from mosslive.errors import MossliveError
from tests.codec.conftest import some_codes


def alone(codec: Codec, voice: Voice, codes: list[int], seed: int) -> Samples:
    stream = codec.decoder_stream(voice, seed=seed)
    return np.concatenate((stream.push(codes), stream.finish()))


@settings(derandomize=True, deadline=None, max_examples=5)
@given(
    counts=st.tuples(*3 * [st.integers(1, 16)]),
    packets=st.lists(st.integers(1, 9), min_size=1, max_size=7),
)
def test_replies_sound_as_they_would_alone(
    codec: Codec, voices: list[Voice], counts: tuple[int, ...], packets: list[int]
) -> None:
    """For any order of packets, the samples of each reply are those of a stream of its own,
    1920 per code, in order; a cancelled reply changes no other."""
    batch = codec.decoder_batch()
    replies: list[Reply] = []
    todo: list[list[int]] = []
    given_codes: list[list[int]] = []
    pieces: dict[Reply, list[Samples]] = {}
    for seed, count in enumerate(counts):
        reply = batch.add(voices[seed % 2], seed)
        replies.append(reply)
        pieces[reply] = []
        todo.append(some_codes(count, seed))
        given_codes.append(list(todo[-1]))
    doomed = batch.add(voices[0])
    batch.push(doomed, some_codes(9, 5))
    turn = 0
    while any(todo):
        for row, (reply, codes) in enumerate(zip(replies, todo, strict=True)):
            count = packets[(turn + row) % len(packets)] if (turn + row) % 3 else 0
            batch.push(reply, codes[:count])
            del codes[:count]
        turn += 1
        for reply, samples in batch.step().items():
            if reply is not doomed:
                pieces[reply].append(samples)
        batch.cancel(doomed)
    for seed, (reply, codes) in enumerate(zip(replies, given_codes, strict=True)):
        sound = np.concatenate([*pieces[reply], batch.finish(reply)])
        assert sound.shape == (1920 * len(codes),)
        wanted = alone(codec, voices[seed % 2], codes, seed)
        np.testing.assert_allclose(sound, wanted, atol=1e-4)
    assert not batch.ready


def test_three_codes_ask_for_the_end_of_the_prompt(codec: Codec, voices: list[Voice]) -> None:
    """A step then gives no sound yet and is not asked for twice; the sound is the same as without,
    and a reply that ends there is whole."""
    batch = codec.decoder_batch()
    codes = some_codes(14, 1)
    one, short = batch.add(voices[0], 1), batch.add(voices[0], 1)
    for reply in (one, short):
        batch.push(reply, codes[:2])
    assert batch.ready == []
    for reply in (one, short):
        batch.push(reply, codes[2:3])
    assert batch.ready == [one, short]
    assert {reply: len(sound) for reply, sound in batch.step().items()} == {one: 0, short: 0}
    assert batch.ready == []
    np.testing.assert_allclose(
        batch.finish(short), alone(codec, voices[0], codes[:3], 1), atol=1e-4
    )
    batch.push(one, codes[3:])
    sound = np.concatenate((batch.step()[one], batch.finish(one)))
    np.testing.assert_allclose(sound, alone(codec, voices[0], codes, 1), atol=1e-4)


def test_ended_replies_leave_no_page(codec_folder: Path, voices: list[Voice]) -> None:
    """Replies that end in any way free their pages; the pool then holds only prompts, nothing once
    the voices are gone."""
    codec = load_codec(codec_folder, trace_cpu_steps=False)
    voice = Voice(voices[1].prompt, voices[1].codec)
    batch = codec.decoder_batch()
    replies = [batch.add(voice) for _ in range(3)]
    (stream,) = codec._streams.values()
    prompt = [pool.used for pool in stream.pools]
    assert prompt[0] > 0
    for reply in replies:
        batch.push(reply, some_codes(14, 1))
    assert len(batch.step()) == 3
    assert stream.pools[1].used == prompt[1] + 3 * 2  # the rest of the prompt, and a chunk
    with pytest.raises(MossliveError, match="code 500 at index 1"):
        batch.push(replies[0], [3, 500])
    batch.finish(replies[0])
    batch.cancel(replies[1])
    batch.cancel(replies[1])
    with pytest.raises(MossliveError, match="finished or closed"):
        batch.push(replies[1], [1])
    with pytest.raises(MossliveError, match="finished or closed"):
        batch.finish(replies[0])
    del batch, replies, reply
    assert [pool.used for pool in stream.pools] == prompt
    del voice
    assert [pool.used for pool in stream.pools] == [0, 0]


def test_a_full_pool_is_an_error_that_passes(codec_folder: Path, voices: list[Voice]) -> None:
    """If pages are short, the oldest replies continue and the youngest waits; if none can, the
    step says so; nothing is lost when pages come back."""
    # 5 pages; each reply needs 2
    codec = load_codec(codec_folder, pool_seconds=2.0, trace_cpu_steps=False)
    batch = codec.decoder_batch()
    replies = [batch.add(voices[0], seed) for seed in range(3)]
    for seed, reply in enumerate(replies):
        batch.push(reply, some_codes(8, seed))
    moved = batch.step()
    assert list(moved) == replies[:2]
    with pytest.raises(PoolFull, match=r"4 of 5 pages .* 2 more are needed.*pool_seconds"):
        batch.step()
    batch.cancel(replies[0])
    moved |= batch.step()
    for seed in (1, 2):
        sound = np.concatenate((moved[replies[seed]], batch.finish(replies[seed])))
        fresh = load_codec(codec_folder, trace_cpu_steps=False)
        wanted = alone(fresh, voices[0], some_codes(8, seed), seed)
        np.testing.assert_allclose(sound, wanted, atol=1e-4)
    with pytest.raises(ConfigError, match="pool_seconds is 0; allowed: above 0"):
        load_codec(codec_folder, pool_seconds=0)


def test_a_reply_that_is_too_long_does_not_stop_others(codec: Codec, voices: list[Voice]) -> None:
    """A push beyond the flow's limit is an error; codes pushed before stay valid, and
    the others go on."""
    batch = codec.decoder_batch()
    long, other = batch.add(voices[0]), batch.add(voices[1])
    batch.push(long, some_codes(8, 0))
    with pytest.raises(MossliveError, match="codes, prompt included; allowed: 3750"):
        batch.push(long, [1] * 3740)
    batch.push(other, some_codes(8, 1))
    assert set(batch.step()) == {long, other}
    assert len(batch.finish(long)) > 0


def test_a_full_pool_takes_no_sound_with_it(codec_folder: Path, voices: list[Voice]) -> None:
    """A push or a finish that the pool stops half way keeps what it has rendered: once pages
    are free, the reply is what it would have been."""
    codec = load_codec(codec_folder, pool_seconds=3.2, trace_cpu_steps=False)  # 8 pages
    stream, other = (codec.decoder_stream(voices[0], seed=seed) for seed in (1, 2))
    other.push(some_codes(8, 2))
    codes = some_codes(38, 1)
    with pytest.raises(PoolFull):
        stream.push(codes)
    with pytest.raises(PoolFull):
        stream.push([])
    with pytest.raises(PoolFull):
        stream.finish()
    other.close()
    sound = np.concatenate((stream.push([]), stream.finish()))
    wanted = alone(load_codec(codec_folder, trace_cpu_steps=False), voices[0], codes, 1)
    np.testing.assert_allclose(sound, wanted, atol=1e-4)
    roomy = codec.decoder_stream(voices[0], seed=1, pool_seconds=8.0)
    np.testing.assert_allclose(roomy.push(codes), wanted[: 1920 * 35 - 3840], atol=1e-4)


@pytest.mark.parametrize(("dtype", "least"), [("float16", 0.9999), ("bfloat16", 0.999)])
def test_halves_stay_near_float32(
    codec_folder: Path, codec: Codec, voices: list[Voice], dtype: str, least: float
) -> None:
    """The estimator in halves gives float32 mel that points where float32's does, and is not it."""
    mels = []
    for used in (codec, load_codec(codec_folder, dtype=dtype, trace_cpu_steps=False)):
        source, _ = used._cached(voices[1], 5, "cached", None, align=True)
        mels.append(torch.cat((source.step(some_codes(8, 1)), source.finish([1, 2, 3])), 1))
    assert mels[1].dtype == torch.float32
    assert not torch.equal(*mels)
    assert float(torch.cosine_similarity(mels[0].flatten(), mels[1].flatten(), 0)) > least


@pytest.mark.parametrize("window", [40])
def test_windows_have_pools_of_their_own(codec: Codec, voices: list[Voice], window: int) -> None:
    """Replies with and without a window share no pages; only the windowed one frees pages early."""
    bounded = codec.decoder_batch(window_frames=window, tail="cached")
    reply = bounded.add(voices[1])
    bounded.push(reply, some_codes(33, 2))
    held = []
    while bounded.ready:
        bounded.step()
        held.append(reply.source.state.estimator.held)  # type: ignore[attr-defined]
    assert sum(page > 0 for page in held[-1]) == 2
    assert len(bounded.finish(reply)) > 0
