"""Bad calls of the Python interface raise at once and change nothing."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from mosslive import LanguageModel, MossliveError, Turn
from mosslive.codec import Sound
from mosslive.talk import (
    AdaptiveSilence,
    FixedSilence,
    Talk,
    TalkSettings,
    TurnSettings,
)
from mosslive.talk.dialogue import HistoryTurn
from mosslive.talk.events import ReplyDone, TalkFault
from tests.talk.rig import CODES, RIG, Later, Rig, frames, run
from tests.talk.test_interruption import PUSH_TO_TALK
from tests.talk.toy import SAMPLES, TOY_VOICE, ToyCodec

CALLS: dict[str, tuple[Callable[[Talk], Any], str]] = {
    "sound of nothing": (lambda talk: talk.push_audio(None, 16_000), "sound of type NoneType"),  # type: ignore[arg-type]
    "sound of integers": (lambda talk: talk.push_audio(np.zeros(9, np.int32), 16_000), "int32"),
    "too loud": (lambda talk: talk.push_audio(np.full(9, 1e9), 16_000), "exceeds"),
    "rate as words": (lambda talk: talk.push_audio(np.zeros(9), "16000"), "sample_rate is '16000'"),  # type: ignore[arg-type]
    "no text": (lambda talk: talk.push_text(None), "neither text nor codes"),  # type: ignore[arg-type]
    "half a character": (lambda talk: talk.push_text("\ud800"), "surrogate"),
    "a kind unknown": (lambda talk: talk.respond("song"), "reply is 'song'"),  # type: ignore[arg-type]
    "nothing said": (lambda talk: talk.say("user", None), "said is None; allowed: text"),  # type: ignore[arg-type]
    "unknown role": (lambda talk: talk.say("robot", "Hi"), "role is 'robot'"),  # type: ignore[arg-type]
    "sound without a rate": (
        lambda talk: talk.say("user", Sound(torch.zeros(9), 1)),
        "sample_rate is 1",
    ),
    "played half": (lambda talk: talk.played(1.5), "samples is 1.5; allowed: a whole number"),  # type: ignore[arg-type]
    "no change": (lambda talk: talk.edit(None), "change is None; allowed: a function"),  # type: ignore[arg-type]
    "no settings": (lambda talk: talk.change(None), "settings is None; allowed: TalkSettings"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", CALLS)
def test_bad_arguments(nano_lm: LanguageModel, name: str) -> None:
    """A bad argument raises, and the next question gets the same reply as without the call."""
    call, message = CALLS[name]

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        before = rig.rows
        with pytest.raises(MossliveError, match=message):
            call(rig.talk)
        await rig.settle()
        assert (rig.rows, rig.events) == (before, [])
        rig.talk.push_text("Hello")
        await rig.until(lambda: not rig.talk.replying)
        assert [done.turn for done in rig.of(ReplyDone)] == [1]
        await rig.close()
        rig.assert_clean()

    run(story())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sampling": None}, "sampling is None"),
        ({"turns": "vad"}, "turns is 'vad'; allowed: TurnSettings, or None"),
        ({"system": 5}, "system is 5"),
        ({"barge_in": None}, "barge_in is None; allowed: True or False"),
        ({"chunk": 5.0}, "chunk is 5.0"),
        ({"voice_seed": -1}, "voice_seed is -1"),
        ({"lead_s": "x"}, "lead_s is 'x'"),
        ({"lead_s": float("nan")}, "lead_s is nan"),
        ({"history": None}, "history is None"),
        ({"speculate": True, "turns": None}, "speculate is True"),
    ],
)
def test_bad_settings(wrong: dict[str, Any], message: str) -> None:
    """Bad settings raise when they are created, not during a conversation."""
    with pytest.raises(MossliveError, match=message):
        TalkSettings(**wrong)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TurnSettings(end=None),  # type: ignore[arg-type]
            "end is None; allowed: FixedSilence, AdaptiveSilence or SemanticEnd",
        ),
        (lambda: TurnSettings(on="x"), "on, off is"),  # type: ignore[arg-type]
        (lambda: FixedSilence(float("inf")), "end_s is inf"),
        (lambda: AdaptiveSilence(window=0), "window is 0"),
        (lambda: AdaptiveSilence(brief_s=-1), "brief_s is -1"),
    ],
)
def test_bad_rules_of_turns(make: Callable[[], object], message: str) -> None:
    """Bad turn settings raise when they are created."""
    with pytest.raises(MossliveError, match=message):
        make()


def broken(lm: LanguageModel) -> dict[str, list[Any]]:
    whole = lm.format.turn(Turn("user", text="Hello"))
    return {
        "of type int": [1],
        "turn 1 is not whole": [
            HistoryTurn("user", "text", tuple(whole)),
            HistoryTurn("user", "text", ()),
        ],
        "turn 0 is not whole": [HistoryTurn("user", "text", tuple(whole[:-1]))],
        "the assistant's header": [HistoryTurn("assistant", "text", tuple(whole))],
    }


@pytest.mark.parametrize("what", range(4))
def test_turns_from_outside_are_whole(nano_lm: LanguageModel, what: int) -> None:
    """Turns of the caller, at the start or from an edit, must be whole. A conversation that could
    not start frees everything."""
    message, turns = list(broken(nano_lm).items())[what]

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        before, threads = rig.rows, threading.active_count()
        with pytest.raises(MossliveError, match=message):
            Talk(rig.engine, ToyCodec(), TOY_VOICE, PUSH_TO_TALK, turns=turns)
        assert threading.active_count() == threads
        rig.talk.edit(lambda said: turns)
        await rig.settle()
        (fault,) = rig.of(TalkFault)
        assert message in fault.message
        assert (fault.stage, fault.fatal) == ("memory", False)
        assert rig.rows == before
        assert rig.engine.stats().conversations == 1
        await rig.close()
        rig.assert_clean()

    run(story())


def test_a_system_turn_too_long_for_the_model(nano_lm: LanguageModel) -> None:
    """The conversation does not start, and holds neither pages nor a thread."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        threads = threading.active_count()
        with pytest.raises(MossliveError, match=r"no turn left to forget; allowed: \d+ rows"):
            Talk(rig.engine, ToyCodec(), TOY_VOICE, replace(PUSH_TO_TALK, system="x " * 4096))
        await rig.settle()
        assert threading.active_count() == threads
        assert rig.engine.stats().conversations == 1
        await rig.close()
        rig.assert_clean()

    run(story())


def test_calls_without_an_event_loop(nano_lm: LanguageModel) -> None:
    """A call without a running event loop raises our own error and changes nothing."""

    async def begin() -> Rig:
        return Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK, reads=False)

    talk = asyncio.run(begin()).talk
    for call in (
        lambda: talk.push_text("Hello"),
        lambda: talk.push_audio(np.zeros(9, np.float32), 16_000),
        talk.respond,
    ):
        with pytest.raises(MossliveError, match="no event loop is running"):
            call()
    assert not talk.replying
    assert not talk.listening


@pytest.mark.parametrize("threaded", [False, True])
def test_a_rate_that_cannot_be_resampled(nano_lm: LanguageModel, threaded: bool) -> None:
    """A rate with hardly a common factor with 16 kHz is refused, and other rates still work."""

    async def story() -> None:
        threads = Later() if threaded else None
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, threads=threads)
        for _ in range(2):
            with pytest.raises(MossliveError, match="191999 Hz to 16000 Hz"):
                rig.talk.push_audio(np.zeros(999, np.float32), 191_999)
            await rig.say(frames((0.64, True), (0.6, False)), 16_000)
            await rig.until(lambda: not rig.talk.replying)
            assert len(rig.sound(rig.of(ReplyDone)[-1].turn)) == CODES * SAMPLES
        await rig.close()
        rig.assert_clean()

    run(story())


def test_ten_minutes_in_one_packet(nano_lm: LanguageModel) -> None:
    """A turn longer than the context is reported and dropped, and the conversation continues."""
    settings = replace(RIG, turns=None, context_rows=1000)

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, settings)
        before = rig.rows
        rig.talk.push_audio(np.zeros(600 * 8000, np.int16), 8000)
        rig.talk.commit()
        await rig.until(lambda: not rig.talk.replying)
        (fault,) = rig.of(TalkFault)
        assert fault.stage == "listening"
        assert "rows and no turn left to forget; allowed: 1000" in fault.message
        assert rig.rows == before
        rig.talk.push_text("Hello")
        await rig.until(lambda: not rig.talk.replying)
        assert len(rig.of(ReplyDone)) == 1
        await rig.close()
        rig.assert_clean()

    run(story())
