"""Turns encoded in common steps: each gets what it gets alone, and pages come and go by need."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from torch import Tensor

from mosslive.codec import Codec, encoder_steps
from mosslive.codec.encoder import Encoder
from mosslive.codec.encoder_batch import EncoderBatch, Encoding, Turn
from mosslive.codec.encoder_samples import SegmentSamples, windows
from mosslive.codec.encoder_stream import EncoderStream, HeardTurn
from mosslive.codec.flow_pages import PoolFull
from mosslive.errors import MossliveError, NotFinite
from tests.codec.test_encoder_stream import KINDS, SEGMENT_SAMPLES, build, noise, sound, speak

ENCODER = build(80)  # segments of 20 codes: two pages


def alone(encoder: Encoder, wave: Tensor) -> tuple[list[int], HeardTurn]:
    live, turn = speak(EncoderStream(encoder), wave, [4000])
    assert turn.codes == encoder.encode(wave).tolist()
    return live, turn


@dataclass
class Speaker:
    turn: Turn
    wave: Tensor
    heard: int = 0  # samples pushed
    live: list[int] = field(default_factory=list)
    end: HeardTurn | None = None


class Room:
    """Speakers of one batch; steps stay in flight until their results are collected."""

    def __init__(self, batch: EncoderBatch) -> None:
        self.batch = batch
        self.speakers: dict[Turn, Speaker] = {}
        self.flight: list[Encoding] = []

    def join(self, wave: Tensor) -> Speaker:
        turn = self.batch.add()
        self.speakers[turn] = Speaker(turn, wave)
        return self.speakers[turn]

    def speak(self, speaker: Speaker, samples: int) -> None:
        end = speaker.heard + samples
        self.batch.push(speaker.turn, speaker.wave[speaker.heard : end])
        speaker.heard = min(end, len(speaker.wave))

    def collect(self, count: int) -> None:
        """Takes the results of some encodings, the last first: the order does not matter."""
        self.flight, taken = self.flight[count:], self.flight[:count]
        results = [encoding.result() for encoding in reversed(taken)]
        for result in reversed(results):
            for turn, value in result.items():
                if isinstance(value, HeardTurn):
                    self.speakers[turn].end = value
                else:
                    self.speakers[turn].live += value

    def listen(self) -> None:
        while self.batch.ready:
            self.flight.append(self.batch.start(self.batch.ready))
        self.collect(len(self.flight))

    def end(self, speaker: Speaker) -> HeardTurn:
        self.flight.append(self.batch.finish([speaker.turn]))
        self.collect(len(self.flight))
        assert speaker.end is not None
        return speaker.end


@settings(derandomize=True, deadline=None, max_examples=25)
@given(data=st.data())
def test_companions_do_not_matter(data: st.DataObject) -> None:
    """Turns that join, are heard, finish and are cancelled at random moments, in steps that overlap
    at random: every turn gets the live codes and the end that it gets alone."""
    room = Room(EncoderBatch(ENCODER, 200.0))
    kinds, lengths = st.sampled_from(KINDS), st.integers(0, 40_000)
    talking: list[Speaker] = []
    spoken: list[Speaker] = []
    for _ in range(data.draw(st.integers(5, 25))):
        action = data.draw(st.sampled_from(["join", "speak", "speak", "start", "collect", "end"]))
        some = st.lists(st.sampled_from(talking), unique_by=id) if talking else st.just([])
        if action == "join":
            talking.append(room.join(sound(data.draw(kinds), data.draw(lengths))))
        elif action == "speak":
            for speaker in talking:
                room.speak(speaker, data.draw(st.integers(0, 15_000)))
        elif action == "start":
            room.flight.append(room.batch.start([each.turn for each in data.draw(some)]))
        elif action == "collect":
            room.collect(data.draw(st.integers(0, len(room.flight))))
        elif ending := data.draw(some):
            talking = [speaker for speaker in talking if speaker not in ending]
            if data.draw(st.booleans()):
                for speaker in ending:
                    room.batch.cancel(speaker.turn)
            else:
                room.flight.append(room.batch.finish([speaker.turn for speaker in ending]))
                spoken += ending
    room.listen()
    room.flight.append(room.batch.finish([speaker.turn for speaker in talking]))
    room.collect(len(room.flight))
    for speaker in spoken + talking:
        live, turn = alone(ENCODER, speaker.wave[: speaker.heard])
        count = len(speaker.live)
        assert speaker.live == live[:count]
        assert speaker.end == HeardTurn.compare(live[:count], turn.codes)
    pool = room.batch.memory.pool
    assert pool.free == pool.pages


def test_turns_of_all_lengths_end_together() -> None:
    """One call of finish ends turns with any number of codes, with and without a revision."""
    room = Room(EncoderBatch(ENCODER))
    waves = [sound(kind, 1 + 6007 * n) for n, kind in enumerate(KINDS)]
    waves += [torch.zeros(0), sound("rising", SEGMENT_SAMPLES), sound("bursts", 60_000)]
    speakers = [room.join(wave) for wave in waves]
    for speaker in speakers:
        room.speak(speaker, 30_000)
    room.listen()
    for speaker in speakers:
        room.speak(speaker, 60_000)  # heard by finish alone
    room.flight.append(room.batch.finish([speaker.turn for speaker in speakers]))
    room.collect(1)
    for speaker in speakers:
        assert speaker.end is not None
        assert speaker.end.codes == ENCODER.encode(speaker.wave).tolist()
        assert speaker.end == HeardTurn.compare(speaker.live, speaker.end.codes)


def test_a_step_takes_what_is_whole() -> None:
    """A turn is ready with sample 1160 of a block; a backlog is taken in few steps, in order."""
    batch = EncoderBatch(ENCODER)
    turn, wave = batch.add(), sound("even", 20_000)
    batch.push(turn, wave[:1159])
    assert batch.ready == []
    assert batch.start([turn]).result() == {}
    batch.push(turn, wave[1159:1160])
    assert batch.ready == [turn]
    batch.push(turn, wave[1160:])
    live = []
    sizes = []
    while batch.ready:
        result = batch.start(batch.ready).result()[turn]
        assert isinstance(result, list)
        sizes.append(len(result))
        live += result
    assert sizes == [8, 7]
    assert live == alone(ENCODER, wave)[0]


def test_the_true_segment_of_thirty_seconds() -> None:
    """Across the border of 30 s, and with more rows than one step has."""
    encoder = build(1500)
    room = Room(EncoderBatch(encoder, 1.0))  # a segment fits in any case
    speaker = room.join(sound("bursts", 16_000 * 30))
    room.speak(speaker, len(speaker.wave))
    assert room.end(speaker).codes == encoder.encode(speaker.wave).tolist()
    room = Room(EncoderBatch(encoder, 40.0))
    speaker = room.join(sound("bursts", 16_000 * 31))
    room.speak(speaker, len(speaker.wave))
    room.listen()
    live, turn = alone(encoder, speaker.wave)
    assert speaker.live == live
    assert room.end(speaker) == turn


def test_half_precision() -> None:
    """Weights, keys and values are halved, norms and codebook are not; most codes stay."""
    for dtype in (torch.float16, torch.bfloat16):
        encoder = build(80).to_precision(dtype)
        weights = {name: tensor.dtype for name, tensor in encoder.state_dict().items()}
        assert weights["layers.0.fc1.weight"] == weights["conv1.bias"] == dtype
        wide = ("codebook.weight", "layers.1.final_layer_norm.weight", "embed_positions.weight")
        assert {weights[name] for name in wide} == {torch.float32}
        assert encoder.open(1).k.dtype == EncoderBatch(encoder).memory.layers[0][0].dtype == dtype
        room, wave = Room(EncoderBatch(encoder)), sound("even", 25_000)
        speaker = room.join(wave)
        room.speak(speaker, len(wave))
        room.listen()
        codes, exact = room.end(speaker).codes, ENCODER.encode(wave).tolist()
        same = sum(a == b for a, b in zip(codes, exact, strict=True))
        assert same >= 0.8 * len(exact)
        assert encoder.encode(wave).shape == (20,)


class Pages(RuleBasedStateMachine):
    """Any order of calls on a pool that is too small: pages are held by one segment each, and all
    are free once every turn has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.batch = EncoderBatch(ENCODER, 5 * 1.28)
        self.turns: list[Turn] = []
        self.flight: list[Encoding] = []

    @rule()
    def join(self) -> None:
        self.turns.append(self.batch.add())

    @precondition(lambda self: self.turns)
    @rule(data=st.data(), samples=st.integers(0, 30_000))
    def push(self, data: st.DataObject, samples: int) -> None:
        self.batch.push(data.draw(st.sampled_from(self.turns)), 0.1 * noise(samples))

    @rule()
    def start(self) -> None:
        ready = self.batch.ready
        try:
            self.flight.append(self.batch.start(ready))
        except PoolFull:
            assert self.batch.memory.pool.free == 0
            assert self.batch.ready == ready

    @precondition(lambda self: self.turns)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        turn = data.draw(st.sampled_from(self.turns))
        free = self.batch.memory.pool.free
        try:
            self.flight.append(self.batch.finish([turn]))
        except PoolFull:
            assert self.batch.memory.pool.free == free
        else:
            self.turns.remove(turn)

    @precondition(lambda self: self.turns)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        turn = data.draw(st.sampled_from(self.turns))
        self.turns.remove(turn)
        self.batch.cancel(turn)
        self.batch.cancel(turn)
        assert not any(segment.pages.held for segment in turn.segments)

    @rule()
    def collect(self) -> None:
        if self.flight:
            assert self.flight[0].ready()
            self.flight.pop(0).result()

    @invariant()
    def every_page_is_accounted_for(self) -> None:
        pool = self.batch.memory.pool
        turns = self.batch._turns
        held = [page for turn in turns for part in turn.segments for page in part.pages.held]
        assert len(held) == len(set(held))
        assert 0 not in held
        assert len(held) + pool.free == pool.pages == 5

    def teardown(self) -> None:
        for turn in self.turns:
            self.batch.cancel(turn)
        for encoding in self.flight:
            encoding.result()
        assert self.batch.memory.pool.free == 5


TestPages = Pages.TestCase
TestPages.settings = settings(
    derandomize=True, deadline=None, max_examples=30, stateful_step_count=20
)


class _Graph:
    def __init__(self, work: Callable[[], Tensor], result: Tensor) -> None:
        self._work, self._result = work, result

    def replay(self) -> None:
        self._result.copy_(self._work())


class _Recorder:
    """Graphs on a CPU: fixed inputs, and results that the next replay overwrites."""

    def __init__(self, _: torch.device) -> None:
        pass

    def record(self, work: Callable[[], Tensor]) -> tuple[_Graph, Tensor]:
        result = work()
        return _Graph(work, result), result


def test_recorded_steps_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filled up to the next recorded size, with whole page tables, and cut into several steps."""
    monkeypatch.setattr(encoder_steps, "GraphRecorder", _Recorder)
    monkeypatch.setattr(encoder_steps, "BUCKETS", (1, 4, 15))
    batch = EncoderBatch(ENCODER)
    monkeypatch.setattr(batch._steps, "_graphed", True)
    batch.record(4)
    room = Room(batch)
    speakers = [room.join(sound(kind, 9000 + 5000 * n)) for n, kind in enumerate(KINDS)]
    for samples in (3000, 7000, 30_000):
        for speaker in speakers:
            room.speak(speaker, samples)
        room.listen()
    room.flight.append(batch.finish([speaker.turn for speaker in speakers]))
    room.collect(1)
    for speaker in speakers:
        assert (speaker.live, speaker.end) == alone(ENCODER, speaker.wave)


def test_a_cancelled_turn_is_left_out() -> None:
    """Also if it is cancelled between the two steps of its end; the pages go to the next turn."""
    room = Room(EncoderBatch(ENCODER, 2.56))
    first = room.join(sound("rising", SEGMENT_SAMPLES))
    room.speak(first, SEGMENT_SAMPLES)
    ending = room.batch.finish([first.turn])
    room.batch.cancel(first.turn)
    second = room.join(sound("falling", SEGMENT_SAMPLES))
    room.speak(second, SEGMENT_SAMPLES)
    room.listen()
    assert ending.result() == {}
    assert room.end(second) == alone(ENCODER, second.wave)[1]


def test_what_is_refused_changes_nothing() -> None:
    """Bad sound, and calls for a turn that is over."""
    room = Room(EncoderBatch(ENCODER))
    speaker = room.join(sound("rising", 9000))
    room.speak(speaker, 5000)
    for bad in (torch.tensor([0.1, torch.nan]), torch.zeros(1, 320), torch.zeros(3).long()):
        with pytest.raises(MossliveError):
            room.batch.push(speaker.turn, bad)
    room.speak(speaker, 4000)
    with pytest.raises(MossliveError, match="finished twice"):
        room.batch.finish([speaker.turn, speaker.turn])
    room.listen()
    assert room.end(speaker) == alone(ENCODER, speaker.wave)[1]
    with pytest.raises(MossliveError, match="finished or cancelled"):
        room.batch.push(speaker.turn, torch.zeros(10))
    with pytest.raises(MossliveError, match="finished twice"):
        room.batch.finish([speaker.turn])
    with pytest.raises(MossliveError, match="pool_seconds"):
        EncoderBatch(ENCODER, 0.0)


def test_sound_is_kept_as_it_came() -> None:
    """A caller may overwrite its buffer after push, and packets may be of any type of sound."""
    room, wave = Room(EncoderBatch(ENCODER)), (sound("bursts", 8000) * 32767).to(torch.int16)
    whole, reused = room.join(wave), room.join(wave / 32768)
    room.speak(whole, 8000)
    buffer = torch.empty(500)
    for piece in torch.split(wave / 32768, 500):
        buffer[: len(piece)] = piece
        room.batch.push(reused.turn, buffer[: len(piece)])
    room.listen()
    assert whole.live == reused.live
    assert room.end(whole) == room.end(reused)


@pytest.mark.parametrize("samples", [1160, 5000, 7680])
def test_windows_of_blocks(samples: int) -> None:
    """Blocks taken one by one have the windows of blocks taken together."""
    wave = noise(samples).numpy()
    one, all_ = SegmentSamples(), SegmentSamples()
    for part in (one, all_):
        part.push(wave)
    together = windows(all_.take(all_.whole))
    apart = [windows(one.take(1))[0] for _ in range(one.whole)]
    assert len(apart) == len(together)
    assert all((a == b).all() for a, b in zip(apart, together, strict=True))


def test_one_batch_for_each_codec(codec: Codec) -> None:
    """All users of a codec share its pages and its steps."""
    batch = codec.encoder_batch()
    assert codec.encoder_batch() is batch
    turn, wave = batch.add(), sound("even", 16_000)
    batch.push(turn, wave)
    heard = batch.finish([turn]).result()[turn]
    assert isinstance(heard, HeardTurn)
    assert heard.codes == codec.encode(wave, 16_000)


def test_values_that_are_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their code is -1, and the pages that such a turn leaves do not reach the next one."""
    batch, wave = EncoderBatch(ENCODER), sound("even", 16_000)
    real = Encoder._run
    with monkeypatch.context() as broken:
        broken.setattr(Encoder, "_run", lambda self, x, pasts: real(self, x * torch.nan, pasts))
        turn = batch.add()
        batch.push(turn, wave)
        assert set(batch.start([turn]).result()[turn]) == {-1}  # type: ignore[arg-type]
        with pytest.raises(NotFinite, match="the encoder"):
            ENCODER.encode(wave)
    batch.cancel(turn)
    turn = batch.add()
    batch.push(turn, wave)
    heard = batch.finish([turn]).result()[turn]
    assert isinstance(heard, HeardTurn)
    assert heard.codes == ENCODER.encode(wave).tolist()


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.data())
def test_a_fork_ends_the_turn_here_and_the_turn_goes_on(data: st.DataObject) -> None:
    """Wherever a turn is forked, with steps in flight or not, the fork has the codes of a turn that
    ends there, the turn itself has what it has alone, and all pages are free in the end."""
    wave = sound(data.draw(st.sampled_from(KINDS)), data.draw(st.integers(3000, 60_000)))
    cut = data.draw(st.integers(1, len(wave)))
    room = Room(EncoderBatch(ENCODER))
    pages = room.batch.memory.pool.free
    speaker = room.join(wave)
    while speaker.heard < cut:
        room.speak(speaker, min(cut - speaker.heard, data.draw(st.integers(1, 9000))))
        step_now: bool = data.draw(st.booleans())
        if room.batch.ready and step_now:
            room.flight.append(room.batch.start(room.batch.ready))
    fork = room.batch.fork(speaker.turn)
    if dropped := data.draw(st.booleans()):
        room.batch.cancel(fork)
    else:
        ended = room.batch.finish([fork])
    room.speak(speaker, len(wave))
    room.listen()
    assert room.end(speaker).codes == alone(ENCODER, wave)[1].codes
    if not dropped:
        heard = ended.result()[fork]
        assert isinstance(heard, HeardTurn)
        assert heard.codes == ENCODER.encode(wave[:cut]).tolist()
    assert room.batch.memory.pool.free == pages
    with pytest.raises(MossliveError):
        room.batch.fork(speaker.turn)
