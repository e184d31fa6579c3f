"""The flow live: cached chunks equal prefix recomputation, for any mix of streams, and memory."""

import copy
from dataclasses import dataclass, field
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mosslive.codec.flow import Flow, FlowVoice
from mosslive.codec.flow_hops import leads_in, next_hop
from mosslive.codec.flow_pages import PoolFull
from mosslive.codec.flow_past import Whole
from mosslive.codec.flow_solver import Condition, solve
from mosslive.codec.flow_stream import FlowState, FlowStream, StreamSettings
from mosslive.config import ConfigError
from mosslive.errors import MossliveError
from tests.codec.flow_models import (
    GOLDEN_CHUNK,
    error,
    golden,
    hidden,
    small_codes,
    small_flow,
    small_voice,
)

LIMIT = 5e-5  # golden README; the contract for cached chunks is 1e-4


@dataclass
class Talk:
    """A stream under test, with all codes it will get."""

    voice: FlowVoice
    codes: list[int]
    state: FlowState
    pieces: list[Tensor] = field(default_factory=list)

    @property
    def cursor(self) -> int:
        return len(self.state.codes)

    def hop(self, chunk: int) -> int | None:
        return next_hop(len(self.codes), self.cursor, len(self.voice.prompt_codes), chunk)

    def next_codes(self, hop: int) -> list[int]:
        return self.codes[self.cursor : self.cursor + hop + 3]

    def mel(self) -> Tensor:
        return torch.cat(self.pieces, 1)


def begin(stream: FlowStream, prompt: int, count: int, seed: int) -> Talk:
    voice = small_voice(prompt, seed)
    return Talk(voice, small_codes(count, seed), stream.open(voice).fork())


def run(stream: FlowStream, talk: Talk) -> Talk:
    """Every hop the rule allows, alone."""
    while (hop := talk.hop(stream.settings.chunk)) is not None:
        talk.pieces += stream.step([talk.state], [talk.next_codes(hop)])
    return talk


def recomputed(flow: Flow, talk: Talk, chunk: int) -> Tensor:
    """By prefix recomputation: the frames of all codes the talk has rendered."""
    return flow.mel_prefix(talk.codes[: talk.cursor + 3], talk.voice, chunk, finalize=False)


def test_the_end_of_the_prompt_comes_ahead_of_the_first_hop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With three codes the prompt's last chunk is computed and gives no frames; the first hop is
    then one chunk, with the frames it has anyway, and asking again is refused."""
    flow = small_flow()
    stream = FlowStream(flow, StreamSettings(5, trace_cpu_steps=False))
    plain, ahead = (begin(stream, 10, 20, 0) for _ in range(2))
    steps: list[int] = []
    compute = stream._step.__class__.__call__

    def counted(self: object, streams: list[object]) -> Tensor:
        steps.append(len(streams))
        return compute(self, streams)  # type: ignore[arg-type]

    monkeypatch.setattr(type(stream._step), "__call__", counted)
    (nothing,) = stream.step([ahead.state], [ahead.next_codes(0)])
    assert nothing.shape == (3, 0)
    assert (steps, ahead.state.position, ahead.cursor) == ([1], 10, 0)
    with pytest.raises(MossliveError, match="with 10 prompt codes and 0 rendered; allowed: 3 more"):
        stream.step([ahead.state], [ahead.next_codes(0)])
    (mel,) = stream.step([ahead.state], [ahead.next_codes(5)])
    assert steps == [1, 1]
    (wanted,) = stream.step([plain.state], [plain.next_codes(5)])
    assert steps == [1, 1, 1, 1]
    assert torch.equal(mel, wanted)


def test_golden_chunks() -> None:
    """Cached chunks equal the reference's prefix calls, with the prompt cached beforehand."""
    model = golden()
    stream = FlowStream(model.flow, StreamSettings(GOLDEN_CHUNK, trace_cpu_steps=False))
    opened = stream.open(model.voice)
    assert opened.position == 5
    codes: list[int] = model.io["codes"].tolist()
    state, cursor = opened.fork(), 0
    for call in range(3):
        hop = next_hop(len(codes), cursor, 12, GOLDEN_CHUNK)
        assert hop is not None
        (mel,) = stream.step([state], [codes[cursor : cursor + hop + 3]])
        assert error(mel, model.io[f"mel_chunk{call}"]) < LIMIT
        cursor += hop
    assert next_hop(len(codes), cursor, 12, GOLDEN_CHUNK) is None
    fork = state.fork()
    mel = stream.finish(state, codes[cursor:], "reference")
    assert error(mel, model.io["mel_offline"][:, 4 * cursor :]) < LIMIT
    mel = stream.finish(fork, codes[cursor:], "cached")
    assert error(mel, model.io["mel_chunk_final"][:, 4 * cursor :]) < LIMIT


@settings(derandomize=True, deadline=None, max_examples=15)
@given(data=st.data(), chunk=st.integers(1, 6))
def test_any_mix_of_streams_equals_recomputation(data: st.DataObject, chunk: int) -> None:
    """Whichever streams advance together, from any points and by any number of chunks, each gets
    the frames of a recomputation of its prefix."""
    flow = small_flow()
    stream = FlowStream(flow, StreamSettings(chunk, trace_cpu_steps=False))
    talks = [
        begin(stream, data.draw(st.integers(0, 14)), data.draw(st.integers(8, 30)), seed)
        for seed in range(3)
    ]
    for _ in range(5):
        moving, given_codes = [], []
        for talk in talks:
            hop, prompt = talk.hop(chunk), len(talk.voice.prompt_codes)
            waits = talk.state.position < prompt and leads_in(3, talk.cursor, prompt, chunk)
            if waits and data.draw(st.booleans()):
                moving.append(talk)
                given_codes.append(talk.next_codes(0))
            elif hop is not None and data.draw(st.booleans()):
                spare = (len(talk.codes) - talk.cursor - hop - 3) // chunk
                hop += chunk * data.draw(st.integers(0, min(spare, 2)))
                moving.append(talk)
                given_codes.append(talk.next_codes(hop))
        mels = stream.step([talk.state for talk in moving], given_codes)
        for talk, mel in zip(moving, mels, strict=True):
            talk.pieces.append(mel)
    for talk in talks:
        if talk.cursor:
            assert error(talk.mel(), recomputed(flow, talk, chunk)) < 1e-4
        talk.state.close()
    assert [pool.used for pool in stream.pools] == [0, 0]


@cache
def recording_stream(chunk: int) -> FlowStream:
    """Shared by examples: recording its step takes a second."""
    return FlowStream(small_flow(), StreamSettings(chunk))


@settings(derandomize=True, deadline=None, max_examples=10)
@given(prompt=st.integers(0, 11), count=st.integers(1, 14), chunk=st.sampled_from([2, 3, 5]))
def test_both_ends(prompt: int, count: int, chunk: int) -> None:
    """Both rules for the end, also for replies too short for any hop: pieces add up
    to 4 frames per code, and the last one follows its rule."""
    stream = recording_stream(chunk)
    flow = stream.flow
    talk = run(stream, begin(stream, prompt, count, seed=prompt))
    cursor, fork = talk.cursor, talk.state.fork()
    rest = talk.codes[cursor:]
    offline = flow.mel_offline(talk.codes, talk.voice)
    final = flow.mel_prefix(talk.codes, talk.voice, chunk, finalize=True)
    by_reference = stream.finish(talk.state, rest, "reference")
    assert by_reference.shape == (3, 4 * (count - cursor))
    assert error(by_reference, offline[:, 4 * cursor :]) < 1e-4
    cached = stream.finish(fork, rest, "cached")
    assert error(torch.cat([*talk.pieces, cached], 1), final) < 1e-4
    assert talk.state.closed
    assert fork.closed


def test_without_guidance_there_is_one_run() -> None:
    """Half the pages, and still the recomputation's frames, whichever end is asked for."""
    flow, chunk = small_flow(guidance=0.0), 4
    stream = FlowStream(flow, StreamSettings(chunk, trace_cpu_steps=False))
    assert stream._step.forms[2].halves == 1
    talk = run(stream, begin(stream, 6, 17, seed=3))
    cursor, fork = talk.cursor, talk.state.fork()
    rest = talk.codes[cursor:]
    last = stream.finish(talk.state, rest, "cached")
    final = flow.mel_prefix(talk.codes, talk.voice, chunk, finalize=True)
    assert error(torch.cat([*talk.pieces, last], 1), final) < 1e-4
    offline = flow.mel_offline(talk.codes, talk.voice)
    assert error(stream.finish(fork, rest, "reference"), offline[:, 4 * cursor :]) < 1e-4
    guided = small_flow().mel_offline(talk.codes, talk.voice)
    assert error(offline, guided) > 1e-2  # or nothing was tested


def test_the_two_ends_differ() -> None:
    """The cached end differs from the reference's, so the test above can tell them apart."""
    flow = small_flow()
    stream = FlowStream(flow, StreamSettings(3, trace_cpu_steps=False))
    talk = run(stream, begin(stream, 4, 16, seed=3))
    fork, rest = talk.state.fork(), talk.codes[talk.cursor :]
    cached = stream.finish(fork, rest, "cached")
    assert error(cached, stream.finish(talk.state, rest, "reference")) > 1e-3


def test_nothing_left_to_finish() -> None:
    """A reply that ends without a code gives no frames, by either rule, and closes."""
    stream = FlowStream(small_flow(), StreamSettings(5, trace_cpu_steps=False))
    opened = stream.open(small_voice(9, 0))
    state = opened.fork()
    assert stream.finish(state, [], "reference").shape == (3, 0)
    assert state.closed
    assert stream.finish(opened.fork(), [], "cached").shape == (3, 0)
    assert stream.step([], []) == []
    with pytest.raises(ConfigError, match="tail is 'exact'; allowed: reference, cached"):
        stream.finish(opened, [1], "exact")  # type: ignore[arg-type]


def test_forks_share_the_voice_and_nothing_else() -> None:
    """Two replies on one opened voice: the prompt's pages exist once, are not written, and neither
    reply changes the other; a fork in mid-reply continues on its own."""
    flow = small_flow()
    stream = FlowStream(flow, StreamSettings(4, trace_cpu_steps=False))
    voice = small_voice(14, 1)
    opened = stream.open(voice)
    shared = list(opened.estimator.held)
    assert len(shared) == 2
    store = stream._step._pages
    before = [layer[:, shared].clone() for layer in store.layers] + [store.tails[shared].clone()]
    talks = [Talk(voice, small_codes(30, seed), opened.fork()) for seed in (1, 2)]
    for talk in talks:
        assert talk.state.estimator.held == shared
        assert talk.state.own_bytes == 0, "an unused fork holds no page of its own"
        talk.pieces += stream.step([talk.state], [talk.next_codes(6)])
        assert talk.state.estimator.held[:2] == shared
    common = talks[0].codes[: talks[0].cursor + 3]
    codes = common + small_codes(30 - len(common), 9)
    other = Talk(voice, codes, talks[0].state.fork(), list(talks[0].pieces))
    talks.append(other)
    while (hop := other.hop(4)) is not None:  # in turn, so that one could spoil the other
        for talk in talks:
            talk.pieces += stream.step([talk.state], [talk.next_codes(hop)])
    for talk in talks:
        assert error(talk.mel(), recomputed(flow, talk, 4)) < 1e-4
    assert error(other.mel(), talks[0].mel()) > 1e-2
    after = [layer[:, shared] for layer in store.layers] + [store.tails[shared]]
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_close_frees() -> None:
    """A closed stream frees its pages although it is still referenced; the voice and its other
    replies continue; a closed stream raises when it is used; at the end the pool is empty."""
    flow = small_flow()
    stream = FlowStream(flow, StreamSettings(4, trace_cpu_steps=False))
    opened = stream.open(small_voice(9, 2))
    talk = run(stream, Talk(opened.voice, small_codes(20, 2), opened.fork()))
    other = Talk(opened.voice, talk.codes, opened.fork())
    used = [pool.used for pool in stream.pools]
    own = len(talk.state.estimator.held) - len(opened.estimator.held)
    assert used == [len(talk.state.estimator.held)] * 2
    assert talk.state.own_bytes == own * sum(talk.state.page_bytes)
    talk.state.close()
    assert [pool.used for pool in stream.pools] == [len(opened.estimator.held)] * 2
    assert talk.state.own_bytes == 0
    for move in (lambda: stream.step([talk.state], [[1] * 7]), talk.state.fork):
        with pytest.raises(MossliveError, match="closed"):
            move()
    opened.close()  # the voice is dropped while a reply still speaks with it
    assert error(run(stream, other).mel(), talk.mel()) < 1e-6
    del other  # forgotten, never closed
    assert [pool.used for pool in stream.pools] == [0, 0]


def test_full_pool() -> None:
    """A full pool raises and says how to free pages; no stream has moved, and all go on
    when another gives its pages back."""
    flow = small_flow()
    stream = FlowStream(flow, StreamSettings(5, pool_seconds=5 * 5 * 0.08, trace_cpu_steps=False))
    talks = [begin(stream, 0, 23, seed) for seed in (0, 1)]
    for _ in range(2):
        moves = [t.next_codes(5) for t in talks]
        for talk, mel in zip(talks, stream.step([t.state for t in talks], moves), strict=True):
            talk.pieces.append(mel)
    with pytest.raises(PoolFull, match="4 of 5 pages of the flow's conformer"):
        stream.step([t.state for t in talks], [t.next_codes(5) for t in talks])
    assert [pool.used for pool in stream.pools] == [4, 4]
    talks[0].state.close()
    run(stream, talks[1])
    assert talks[1].cursor == 20
    assert error(talks[1].mel(), recomputed(flow, talks[1], 5)) < 1e-4


def test_failed_pass_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that breaks half-way (out of memory) leaves its streams where they were."""
    flow = small_flow()
    # A recorded step runs without Python and could not break half-way.
    stream = FlowStream(flow, StreamSettings(3, trace_cpu_steps=False))
    talk = begin(stream, 5, 30, seed=4)
    calls, packed = 0, stream._step._estimator
    velocity = packed._velocity

    def breaks(*args: object) -> Tensor:
        nonlocal calls
        calls += 1
        if calls in (1, 4, 9, 16, 25):  # some in the second Euler step, after keys were written
            raise MemoryError
        return velocity(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(packed, "_velocity", breaks)
    failures = 0
    while (hop := talk.hop(3)) is not None:
        try:
            talk.pieces += stream.step([talk.state], [talk.next_codes(hop)])
        except MemoryError:
            failures += 1
    assert failures >= 3
    monkeypatch.undo()
    assert error(talk.mel(), recomputed(flow, talk, 3)) < 1e-4


def windowed(flow: Flow, talk: Talk, chunk: int, window: int) -> Tensor:
    """Independent of any cache: one pass over all tokens, with the window in the mask."""
    tokens = torch.cat((talk.voice.prompt_codes, torch.tensor(talk.codes[: talk.cursor + 3])))
    mu = flow.encoder_proj(hidden(flow, tokens, chunk, finalize=False)).T
    frames = mu.shape[1]
    past, columns = Whole(frames, None, flow.noise), torch.arange(frames)
    from_chunk = columns[None] - columns[:, None] // (4 * chunk) * (4 * chunk)
    seen = (-window <= from_chunk) & (from_chunk < 4 * chunk)
    past._mask = torch.where(seen, 0.0, -torch.inf)
    known = torch.zeros_like(mu)
    known[:, : len(talk.voice.prompt_feat)] = talk.voice.prompt_feat.T
    condition = Condition(mu[None], flow.speaker(talk.voice)[None], known[None])
    noise = flow.noise[None, :, :frames]
    mel = solve(flow.estimator, noise, condition, past, flow.settings)[0]
    return mel[:, len(talk.voice.prompt_feat) :]


@settings(derandomize=True, deadline=None, max_examples=10)
@given(
    prompt=st.integers(0, 16),
    chunk=st.integers(2, 4),
    window=st.integers(0, 50),
)
def test_window_is_what_its_mask_says(prompt: int, chunk: int, window: int) -> None:
    """The sliding window: frames see their chunk and `window` frames before it, no matter where the
    border between prompt, own pages and dropped ones falls."""
    flow = small_flow()
    stream = FlowStream(flow, StreamSettings(chunk, window, trace_cpu_steps=False))
    talk = run(stream, begin(stream, prompt, 26, seed=prompt))
    assert error(talk.mel(), windowed(flow, talk, chunk, window)) < 1e-4


def test_window_bounds_memory_and_changes_results() -> None:
    """What the window buys and costs: a bounded estimator memory, frames that differ the more the
    smaller it is, and nothing at all once it covers the stream."""
    flow, chunk = small_flow(), 4
    stream = FlowStream(flow, StreamSettings(chunk, trace_cpu_steps=False))
    exact = run(stream, begin(stream, 8, 90, seed=6))
    differences, held = [], []
    for window in (8, 80, 1000):
        stream = FlowStream(flow, StreamSettings(chunk, window, trace_cpu_steps=False))
        talk = run(stream, begin(stream, 8, 90, seed=6))
        differences.append(error(talk.mel(), exact.mel()))
        assert stream.pools[1].used == sum(page > 0 for page in talk.state.estimator.held)
        held.append(stream.pools[1].used)
    print(f"window 8, 80, 1000 frames: differs by {differences}, holds {held} pages")
    assert differences[0] > differences[1] > 1e-3
    assert differences[2] < 1e-5
    assert held[:2] == [1, 5]  # a page is 16 frames
    assert held[2] == len(exact.state.estimator.held)


@pytest.mark.parametrize("given_codes", [[], [1, 2, 3], [1] * 8, [1] * 10])
def test_codes_that_do_not_end_on_a_chunk(given_codes: list[int]) -> None:
    """A step raises if a chunk is still filling, because its frames would change later."""
    stream = FlowStream(small_flow(), StreamSettings(5, trace_cpu_steps=False))
    state = stream.open(small_voice(4, 0)).fork()
    with pytest.raises(MossliveError, match="with 4 prompt codes and 0 rendered; allowed: 3 more"):
        stream.step([state], [given_codes])
    assert stream.step([state], [[1] * 9])[0].shape == (3, 24)


def test_streams_are_checked_before_any_moves() -> None:
    """A bad code in one stream of a batch is refused, and the other streams have not moved."""
    stream = FlowStream(small_flow(), StreamSettings(5, trace_cpu_steps=False))
    talks = [begin(stream, 5, 20, seed) for seed in (0, 1)]
    with pytest.raises(MossliveError, match="code 50 at index 2"):
        stream.step([t.state for t in talks], [talks[0].codes[:8], [1, 2, 50, 4, 5, 6, 7, 8]])
    assert [talk.cursor for talk in talks] == [0, 0]
    for talk in talks:
        assert error(run(stream, talk).mel(), recomputed(small_flow(), talk, 5)) < 1e-4


def test_end_of_the_noise() -> None:
    """A stream that would pass the end of the fixed noise is refused; up to it all is well, also
    where the padding of a batch reaches over it."""
    flow = copy.deepcopy(small_flow())
    flow.noise, flow.encoder.table = flow.noise[:, : 4 * 20], flow.encoder.table[: 4 * 20]
    stream = FlowStream(flow, StreamSettings(5, trace_cpu_steps=False))
    late, early = begin(stream, 4, 16, seed=0), begin(stream, 0, 18, seed=1)
    for hop in (6, 5):
        with pytest.raises(MossliveError, match="21 codes, prompt included; allowed: 20"):
            stream.finish(late.state, [1] * (17 - late.cursor), "cached")
        moving, codes = [late], [late.next_codes(hop)]
        if hop == 5:  # the late stream has 5 tokens to go, its padding 15
            moving, codes = [early, late], [early.next_codes(15), late.next_codes(hop)]
        for talk, mel in zip(moving, stream.step([t.state for t in moving], codes), strict=True):
            talk.pieces.append(mel)
    for talk in (late, early):
        assert error(talk.mel(), recomputed(flow, talk, 5)) < 1e-4
    assert stream.finish(late.state, late.codes[11:], "cached").shape == (3, 20)


@pytest.mark.parametrize(
    ("field", "value"), [("chunk", 0), ("pool_seconds", 0), ("window_frames", -1)]
)
def test_settings_are_checked(field: str, value: int) -> None:
    """A setting that makes no sense is named with its value."""
    with pytest.raises(ValueError, match=f"{field} is {value}"):
        StreamSettings(**{field: value})  # type: ignore[arg-type]


def test_device_is_the_modules_own() -> None:
    """Every tensor is made where the flow is, and no value is read back to the host: a pass runs on
    the meta device, which has no values at all."""
    flow = copy.deepcopy(small_flow()).to("meta")
    stream = FlowStream(flow, StreamSettings(5, window_frames=20, trace_cpu_steps=False))
    opened = stream.open(small_voice(12, 0))
    first, second = opened.fork(), opened.fork()
    stream.step([first], [small_codes(11, 0)])
    mels = stream.step([second, first], [small_codes(11, 1), small_codes(8, 2)])
    mels += [stream.finish(first, [1], "cached"), stream.finish(second, [1], "reference")]
    assert [(mel.device.type, mel.shape[1]) for mel in mels] == [
        ("meta", frames) for frames in (32, 20, 4, 4)
    ]
