"""Replies in recorded steps with slots, as on a GPU: each sounds as it does alone without them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mosslive.codec import Codec, Voice, load_codec, rendering
from mosslive.codec.decoder_batch import DecoderBatch, Reply
from mosslive.codec.flow_pages import PoolFull
from mosslive.codec.flow_stream import FlowStream, StreamSettings, TailRule
from mosslive.codec.graph_sets import BUCKETS, URGENT_BUCKETS, bucket_of, buckets_for
from mosslive.codec.hift.arena import ArenaStream, HiftArena, Windows
from mosslive.codec.hift.stream import HiftStream
from mosslive.codec.mel_source import CachedMel, MelSource
from mosslive.codec.rendering import Flight, Rendering, Samples
from mosslive.codec.voice import aligned
from mosslive.config import ConfigError
from mosslive.errors import MossliveError
from tests.codec.conftest import some_codes
from tests.codec.hift.test_hift_stream import HIFT


class Slots(HiftStream):
    """Gives slots on a CPU too; the graphs are then plain calls."""

    def arena(self, frames: int) -> HiftArena:
        if frames not in self._arenas:
            self._arenas[frames] = HiftArena(self._windows_net, frames, slots=6)
        return self._arenas[frames]


@dataclass
class Device:
    """The batch as on a GPU, on a CPU."""

    codec: Codec
    stream: FlowStream
    vocoder: Slots

    def batch(self, tail: TailRule = "cached") -> DecoderBatch:
        def begin(voice: Voice, seed: int) -> tuple[MelSource, int, torch.Generator]:
            prompt = aligned(voice.prompt, 5)
            opened = self.codec._open_voice(self.stream, voice, prompt)
            source = CachedMel(self.stream, opened, tail)
            return source, len(prompt.prompt_codes), torch.Generator().manual_seed(seed)

        return DecoderBatch(self.vocoder, 5, begin)

    @property
    def arena(self) -> HiftArena:
        return self.vocoder.arena(20)

    @property
    def used(self) -> list[int]:
        return [*(pool.used for pool in self.stream.pools), self.arena.used]


def as_on_a_gpu(codec: Codec, hift: HiftStream, seconds: float = 40.0) -> Device:
    """`seconds`: another number for each, since a codec opens a voice once for one setting."""
    settings = StreamSettings(5, None, seconds, trace_cpu_steps=False)
    stream = FlowStream(codec._flow("chunk-5"), settings, recorded=True)
    stream._step._columns = 12  # the definitions read whole tables
    return Device(codec, stream, Slots(hift.hift, trace_cpu_steps=False))


@pytest.fixture(scope="module")
def device(codec: Codec) -> Device:
    hift = codec._vocoder
    assert isinstance(hift, HiftStream)
    return as_on_a_gpu(codec, hift)


def alone(codec: Codec, voice: Voice, codes: list[int], seed: int, tail: TailRule) -> Samples:
    """Without graphs and slots."""
    stream = codec.decoder_stream(voice, seed=seed, tail=tail)
    return np.concatenate((stream.push(codes), stream.finish()))


class Event:
    """A device that is done when a test says so."""

    def __init__(self, log: list["Event"]) -> None:
        self.over = False
        log.append(self)

    def query(self) -> bool:
        return self.over

    def synchronize(self) -> None:
        self.over = True


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    log: list[Event] = []
    monkeypatch.setattr(rendering, "event_on", lambda _: Event(log))
    return log


@dataclass
class Plan:
    """One reply of a story, by turns."""

    joins: int
    count: int  # codes
    packet: int  # codes in a turn
    cancelled: int | None  # the turn in which it is cancelled, with its step in flight


plans = st.builds(
    Plan,
    st.integers(0, 3),
    st.integers(1, 19),
    st.integers(1, 9),
    st.one_of(st.none(), st.none(), st.integers(0, 4)),
)


@settings(derandomize=True, deadline=None, max_examples=6)
@given(st.lists(plans, min_size=1, max_size=5), st.sampled_from(["cached", "reference"]))
def test_companions_do_not_matter(
    codec: Codec, device: Device, voices: list[Voice], story: list[Plan], tail: TailRule
) -> None:
    """Whoever joins, ends or is cancelled meanwhile, a reply gets the samples of a stream without
    graphs, 1920 per code; nothing stays taken."""
    before_voices = [device.batch().add(voice) for voice in voices]  # keeps the prompts
    for one in before_voices:
        device.arena.close(one.vocoder)
    before, batch = device.used, device.batch(tail)
    replies: dict[int, Reply] = {}
    sounds: dict[Reply, list[Samples]] = {}
    left = {k: some_codes(plan.count, k) for k, plan in enumerate(story)}
    for turn in range(60):
        for k, plan in enumerate(story):
            if plan.joins == turn:
                replies[k] = batch.add(voices[k % 2], k)
                sounds[replies[k]] = []
            reply = replies.get(k)
            if reply is not None and reply.open and left[k]:
                batch.push(reply, left[k][: plan.packet])
                del left[k][: plan.packet]
                if not left[k]:
                    batch.end(reply)
        ready = batch.ready
        first = [reply for reply in ready if reply.stage == "first"]
        others = [reply for reply in ready if reply.stage != "first"]
        started = [batch.start(first, urgent=True), batch.start(others)]
        for k, plan in enumerate(story):
            if plan.cancelled == turn and k in replies:
                batch.cancel(replies[k])
        for step in started:
            for reply, samples in step.result().items():
                sounds[reply].append(samples)
        if turn > 3 and not any(reply.open for reply in sounds):
            break
    for k, plan in enumerate(story):
        reply = replies[k]
        if reply.cancelled:
            continue
        assert reply.done
        found = np.concatenate(sounds[reply])
        assert found.shape == (1920 * plan.count,)
        wanted = alone(codec, voices[k % 2], some_codes(plan.count, k), k, tail)
        np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert batch.ready == []
    assert device.used == before


def test_memory_is_freed_when_the_device_is_done(
    device: Device, voices: list[Voice], events: list[Event]
) -> None:
    """A cancelled or ended reply keeps its pages and its slot while a step with it is in flight;
    the sound of a cancelled one is dropped, that of the others is not."""
    batch = device.batch()
    batch.cancel(batch.add(voices[0]))
    before = device.used
    one, other, ending = (batch.add(voices[0], seed) for seed in range(3))
    for reply in (one, other, ending):
        batch.push(reply, some_codes(8 if reply is not ending else 4, 1))
    batch.end(ending)
    step = batch.start(batch.ready)
    held = device.used
    batch.cancel(one)
    batch.cancel(one)
    assert ending.done
    assert not step.ready()
    assert device.used == held
    events[0].over = True
    assert step.ready()
    assert device.used[2] == before[2] + 1
    assert {reply: len(sound) for reply, sound in step.result().items()} == {
        other: 5760,
        ending: 4 * 1920,
    }
    batch.cancel(other)
    assert device.used == before


def test_a_device_that_fails_is_reported_by_the_result(
    device: Device, voices: list[Voice], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ready` never raises; `result` does."""

    class Broken(Event):
        def query(self) -> bool:
            raise RuntimeError("the device broke")

        synchronize = query  # type: ignore[assignment]

    monkeypatch.setattr(rendering, "event_on", lambda _: Broken([]))
    batch = device.batch()
    reply = batch.add(voices[0])
    batch.push(reply, some_codes(8, 1))
    step = batch.start([reply])
    assert step.ready()
    with pytest.raises(RuntimeError, match="broke"):
        step.result()
    device.arena.close(reply.vocoder)


def test_steps_of_one_reply_may_follow_at_once(
    codec: Codec, device: Device, voices: list[Voice], events: list[Event]
) -> None:
    """Bookkeeping advances with `start`: the next chunk and the end are launched while the first is
    in flight, and the results are in order."""
    batch = device.batch()
    reply, codes = batch.add(voices[1], 3), some_codes(16, 2)
    batch.push(reply, codes)
    batch.end(reply)
    stages, steps = [], list[Rendering]()
    while batch.ready:
        stages.append(reply.stage)
        steps.append(batch.start([reply], urgent=not steps))
    assert stages == ["first", "steady", "last"]
    with pytest.raises(MossliveError, match="finished or closed"):
        batch.push(reply, [1])
    found = np.concatenate([step.result()[reply] for step in steps])
    np.testing.assert_allclose(found, alone(codec, voices[1], codes, 3, "cached"), atol=1e-4)
    assert batch.start([reply]).result() == {}


def test_an_ended_reply_takes_no_codes(device: Device, voices: list[Voice]) -> None:
    """After `end`, codes are refused; a reply without codes is done at once."""
    batch = device.batch()
    reply, silent = batch.add(voices[0]), batch.add(voices[0])
    batch.push(reply, [1, 2])
    batch.end(reply)
    batch.end(silent)
    assert silent.done
    assert batch.ready == [reply]
    with pytest.raises(MossliveError, match="ended"):
        batch.push(reply, [3])
    assert len(batch.finish(reply)) == 2 * 1920


def test_recordings_cover_what_replies_use(device: Device, voices: list[Voice]) -> None:
    """After the pieces of `recordings`, replies of any length up to that number record nothing; the
    pieces themselves take no page and no slot."""
    own = as_on_a_gpu(device.codec, device.vocoder, 41.6)
    fresh, batch = own.stream, own.batch()
    pieces = batch.recordings(voices[0], 2)
    used = own.used
    for piece in pieces:
        piece()
    assert own.used == used
    count = fresh.graphs, own.arena.graphs
    assert sum(count) == len(pieces)
    for length in range(1, 14):
        for urgent in (False, True):
            members = [batch.add(voices[0], seed) for seed in range(1 if urgent else 2)]
            for member in members:
                batch.push(member, some_codes(length, 1))
                batch.end(member)
            while batch.ready:
                step = batch.start(batch.ready, urgent and not members[0].count.rendered)
                step.result()
    assert (fresh.graphs, own.arena.graphs) == count


def test_more_replies_than_one_graph_holds(device: Device, voices: list[Voice]) -> None:
    """The urgent set is small: more replies take several graphs, in order; a reply more than there
    are slots is refused."""
    batch = device.batch()
    batch.cancel(batch.add(voices[0]))
    free = 6 - device.arena.used
    members = [batch.add(voices[0], 1) for _ in range(free)]
    with pytest.raises(PoolFull, match="replies are open"):
        batch.add(voices[0])
    for member in members:
        batch.push(member, some_codes(8, 1))
    sounds = batch.start(members, urgent=True).result()
    assert list(sounds) == members
    for sound in sounds.values():
        np.testing.assert_allclose(sound, sounds[members[0]], atol=1e-4)
    for member in members:
        batch.cancel(member)


@pytest.mark.parametrize(("dtype", "least"), [("bfloat16", 0.99), ("float16", 0.999)])
def test_half_precision_of_the_vocoder(
    codec_folder: Path, codec: Codec, voices: list[Voice], dtype: str, least: float
) -> None:
    """Sound stays float32 and near that of float32; the pitch is exactly the same."""
    half = load_codec(codec_folder, trace_cpu_steps=False, vocoder_dtype=dtype)
    codes = some_codes(14, 1)
    found, wanted = (alone(used, voices[0], codes, 1, "cached") for used in (half, codec))
    assert found.dtype == np.float32
    cosine = found @ wanted / np.linalg.norm(found) / np.linalg.norm(wanted)
    assert least < cosine < 1
    hifts = [used._vocoder.hift for used in (half, codec)]  # type: ignore[attr-defined]
    mel = torch.randn(1, 80, 20, generator=torch.Generator().manual_seed(1))
    assert torch.equal(*(hift.f0(mel) for hift in hifts))
    with pytest.raises(ConfigError, match="vocoder_dtype"):
        load_codec(codec_folder, vocoder_dtype="int8")


@given(st.integers(1, 128))
def test_buckets(count: int) -> None:
    """A bucket holds the streams and is at most half as large again."""
    size = bucket_of(count)
    assert count <= size <= max(1.5 * count, 1)
    assert buckets_for(count)[-1] == size
    assert buckets_for(count, URGENT_BUCKETS)[-1] == bucket_of(min(count, 8), URGENT_BUCKETS)
    assert list(BUCKETS) == sorted(set(BUCKETS))


class ArenaMachine(RuleBasedStateMachine):
    """Slots by random opens and closes, with flights that end later."""

    def __init__(self) -> None:
        super().__init__()
        self.arena = HiftArena(Windows(HIFT), 20, slots=4)
        self.open: list[ArenaStream] = []
        self.flights: list[tuple[Flight, Event, ArenaStream]] = []

    @precondition(lambda self: self.arena.used < 4)
    @rule()
    def opens(self) -> None:
        self.open.append(self.arena.open(None))

    @precondition(lambda self: self.arena.used == 4)
    @rule()
    def is_refused(self) -> None:
        with pytest.raises(PoolFull):
            self.arena.open(None)

    @precondition(lambda self: self.open)
    @rule(at=st.integers(0, 3), in_flight=st.booleans())
    def closes(self, at: int, in_flight: bool) -> None:
        stream = self.open.pop(at % len(self.open))
        event = Event([])
        event.over = not in_flight
        flight = Flight(event, urgent=False)
        flight.afterwards(lambda: self.arena.close(stream))
        flight.afterwards(lambda: self.arena.close(stream))
        if in_flight:
            self.flights.append((flight, event, stream))

    @precondition(lambda self: self.flights)
    @rule()
    def lands(self) -> None:
        flight, event, _ = self.flights.pop(0)
        event.over = True
        assert flight.over()

    @invariant()
    def no_slot_is_shared(self) -> None:
        held = [stream.slot for stream in self.open] + [s.slot for _, _, s in self.flights]
        assert len(set(held)) == len(held) == self.arena.used
        assert 0 not in held


TestArena = ArenaMachine.TestCase
TestArena.settings = settings(derandomize=True, deadline=None, max_examples=20)
