"""The state tables of a session: legal transitions, and assertions on illegal ones."""

import asyncio
from typing import Any

import numpy as np
import pytest

from mosslive.server.realtime.config import SessionConfig
from mosslive.server.realtime.formats import AudioFormat
from mosslive.server.realtime.input_buffer import InputBuffer
from mosslive.server.realtime.input_state import InputState, Mode
from mosslive.server.realtime.response_output import Place, ResponseEvents
from mosslive.server.realtime.response_state import Phase, ResponseState
from tests.server.rig import run


class FakeTalk:
    replying = False


@pytest.fixture
def talk() -> FakeTalk:
    return FakeTalk()


@pytest.fixture
def state(talk: FakeTalk) -> ResponseState:
    return ResponseState(lambda: talk.replying)


def phase_of(state: ResponseState) -> Phase:
    """A call, so that the type checker does not take two reads for the same value."""
    return state.phase


def mode_of(state: InputState) -> Mode:
    return state.mode


def response() -> ResponseEvents:
    place = Place("conv_1", lambda item: None)
    return ResponseEvents(lambda event: None, SessionConfig("moss", "ash", ""), 24_000, place)


def done(over: ResponseEvents) -> ResponseEvents:
    over.finish("completed", None)
    return over


def test_a_spoken_turn_passes_every_phase(talk: FakeTalk, state: ResponseState) -> None:
    """A turn of the user leads through EXPECTED, ACTIVE and ENDING back to NONE."""
    assert phase_of(state) is Phase.NONE
    state.expect(1)
    talk.replying = True
    assert phase_of(state) is Phase.EXPECTED
    reply = response()
    state.begin(reply, 1)
    assert phase_of(state) is Phase.ACTIVE
    assert state.active is state.of_turn(1) is reply
    assert state.of_turn(2) is None
    assert state.turn_of(reply.id) == 1
    state.use_voice()
    assert state.voice_used
    state.end(done(reply))
    assert phase_of(state) is Phase.ENDING
    assert state.of_turn(1) is None
    assert state.turn_of(reply.id) is None
    assert state.is_latest(1)  # what is played still belongs to it
    talk.replying = False
    assert phase_of(state) is Phase.NONE


def test_a_turn_during_a_response_is_expected_afterwards(
    talk: FakeTalk, state: ResponseState
) -> None:
    """If the user's turn does not interrupt, its reply is expected when the active one is done."""
    talk.replying = True
    reply = response()
    state.begin(reply, 1)
    state.expect(2)
    assert phase_of(state) is Phase.ACTIVE
    state.end(done(reply))
    assert phase_of(state) is Phase.EXPECTED


def test_one_shot_replies(talk: FakeTalk, state: ResponseState) -> None:
    """A one-shot reply has no turn of `Talk`, and its task can be cancelled until it is removed."""

    async def test() -> None:
        reply = response()
        state.begin_one_shot(reply)
        task = asyncio.get_running_loop().create_task(asyncio.sleep(60))
        state.add_task(reply.id, task)
        assert phase_of(state) is Phase.ONE_SHOT
        assert state.tasks == 1
        assert state.turn_of(reply.id) is None
        assert not state.cancel_task(None)
        assert not state.cancel_task("resp_other")
        assert state.cancel_task(reply.id)
        await asyncio.wait([task])
        state.remove_task(reply.id)
        state.end(done(reply))
        assert phase_of(state) is Phase.NONE
        assert state.tasks == 0

    run(test())


def test_ending_a_response_that_was_replaced(state: ResponseState) -> None:
    """The end of a response that no longer writes to the conversation changes nothing."""
    first, second = response(), response()
    state.begin(first, 1)
    state.end(done(first))
    state.begin(second, 2)
    state.end(first)
    assert state.active is second


def test_the_reason_of_a_cancel(state: ResponseState) -> None:
    """The client is the reason of one interruption, the user's speech of all others."""
    state.begin(response(), 1)
    assert state.take_cancel_reason() == "turn_detected"
    state.cancel_by_client()
    assert state.take_cancel_reason() == "client_cancelled"
    assert state.take_cancel_reason() == "turn_detected"


def in_phase(state: ResponseState, talk: FakeTalk, phase: Phase) -> None:
    match phase:
        case Phase.EXPECTED:
            talk.replying = True
            state.expect(1)
        case Phase.ACTIVE:
            state.begin(response(), 1)
        case Phase.ONE_SHOT:
            state.begin_one_shot(response())
        case Phase.ENDING:
            talk.replying = True
    assert phase_of(state) is phase


ILLEGAL: list[tuple[str, tuple[Phase, ...]]] = [
    ("begin", (Phase.ACTIVE, Phase.ONE_SHOT)),
    ("begin_one_shot", (Phase.EXPECTED, Phase.ACTIVE, Phase.ONE_SHOT, Phase.ENDING)),
    ("cancel_by_client", (Phase.NONE, Phase.EXPECTED, Phase.ONE_SHOT, Phase.ENDING)),
    ("use_voice", (Phase.NONE, Phase.EXPECTED, Phase.ONE_SHOT, Phase.ENDING)),
]


@pytest.mark.parametrize(("method", "phase"), [(m, p) for m, phases in ILLEGAL for p in phases])
def test_illegal_transitions(
    state: ResponseState, talk: FakeTalk, method: str, phase: Phase
) -> None:
    """A method that is called in another phase than the table allows fails and changes nothing."""
    in_phase(state, talk, phase)
    given: dict[str, tuple[Any, ...]] = {"begin": (response(), 2), "begin_one_shot": (response(),)}
    with pytest.raises(AssertionError):
        getattr(state, method)(*given.get(method, ()))
    assert phase_of(state) is phase


def test_a_response_ends_after_its_last_event(state: ResponseState) -> None:
    """A response cannot end before `response.done`."""
    reply = response()
    state.begin(reply, 1)
    with pytest.raises(AssertionError):
        state.end(reply)
    assert phase_of(state) is Phase.ACTIVE


@pytest.fixture
def input_state() -> InputState:
    return InputState(InputBuffer(AudioFormat(), 60.0))


def test_detached_input(input_state: InputState) -> None:
    """Detached sound is returned whole by the commit, which makes the input live again."""
    wave = np.ones(2400, np.float32)
    input_state.start_turn(1, 0.0)
    input_state.buffer.keep(wave)
    input_state.detach()
    assert mode_of(input_state) is Mode.DETACHED
    assert input_state.end_turn(1) is None
    input_state.buffer.keep(wave)
    assert len(input_state.take_detached()) == 4800
    assert mode_of(input_state) is Mode.LIVE
    input_state.detach()
    input_state.buffer.keep(wave)
    input_state.clear()
    assert mode_of(input_state) is Mode.LIVE
    assert input_state.buffer.kept_s == 0


def test_turns_are_heard_one_at_a_time(input_state: InputState) -> None:
    """A new turn replaces an unfinished one, and unknown turns are None."""
    first = input_state.start_turn(1, 0.5)
    second = input_state.start_turn(2, 1.5)
    assert first.item.id != second.item.id
    assert input_state.stop_turn(1, 2.0) is None
    assert input_state.end_turn(1) is None
    assert input_state.stop_turn(2, 2.0) is second
    assert (second.start_s, second.end_s) == (1.5, 2.0)
    assert input_state.end_turn(2) is second
    assert input_state.end_turn(2) is None


def test_illegal_input_transitions(input_state: InputState) -> None:
    """Live sound cannot be taken as detached; detached sound has no turns and is detached once."""
    with pytest.raises(AssertionError):
        input_state.take_detached()
    input_state.detach()
    with pytest.raises(AssertionError):
        input_state.detach()
    with pytest.raises(AssertionError):
        input_state.start_turn(1, 0.0)


def test_sounds_are_counted_while_the_codec_encodes_them(input_state: InputState) -> None:
    """A sound counts until the codec has encoded it."""
    with input_state.encodes(2):
        with input_state.encodes(1):
            assert input_state.encoding == 3
        assert input_state.encoding == 2
    assert input_state.encoding == 0
