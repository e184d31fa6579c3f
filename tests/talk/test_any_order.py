"""Any calls in any order at any time: turns stay complete, nothing leaks, and the conversation
continues."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive import LanguageModel
from mosslive.codec import Sound
from mosslive.errors import MossliveError
from mosslive.talk import TalkSettings
from mosslive.talk.events import ReplyDone, TalkFault
from tests.talk.rig import RIG, Later, Rig, frames, run
from tests.talk.test_interruption import QUESTION
from tests.talk.toy import TOY_VOICE, ToyCodec

LOUD, SILENT = frames((0.32, True)), frames((0.32, False))
CALLS: dict[str, Callable[[Rig, int], object]] = {
    "speak": lambda rig, n: rig.talk.push_audio(LOUD[: 60 * n], 16_000),
    "be silent": lambda rig, n: rig.talk.push_audio(SILENT[: 60 * n], 16_000),
    "almost nothing": lambda rig, n: rig.talk.push_audio(np.zeros(n % 2, np.int16), 16_000),
    "at another rate": lambda rig, n: rig.talk.push_audio(LOUD, (8_000, 48_000)[n % 2]),
    "write": lambda rig, n: rig.talk.push_text("Hello", ("text", "speech", None)[n % 3]),
    "say": lambda rig, n: rig.talk.say(("user", "assistant")[n % 2], "By the way."),
    "say sound": lambda rig, n: rig.talk.say("user", Sound(torch.from_numpy(QUESTION), 16_000)),
    "forget": lambda rig, n: rig.talk.edit(lambda turns: [t for t in turns if t.turn % 5 != n % 4]),
    "commit": lambda rig, n: rig.talk.commit(("text", "speech", None)[n % 3]),
    "clear": lambda rig, n: rig.talk.clear(),
    "cancel": lambda rig, n: rig.talk.cancel(),
    "respond": lambda rig, n: rig.talk.respond(("text", "speech", None)[n % 3]),
    "report": lambda rig, n: rig.talk.played(400 * (n - 5)),
    "change": lambda rig, n: rig.talk.change(
        replace(rig.talk.settings, barge_in=n % 2 == 0, auto_reply=n % 4 < 2)
    ),
}
WAITS = ("a step", "some steps", "a while", "until it is quiet")
MOVES = st.tuples(st.sampled_from([*CALLS, *WAITS]), st.integers(0, 80))
SETTINGS = st.builds(
    lambda push_to_talk, lead_s, rows, history, speculate: replace(
        RIG,
        turns=None if push_to_talk else RIG.turns,
        lead_s=lead_s,
        context_rows=rows,
        history=history,
        speculate=speculate and not push_to_talk,
    ),
    st.booleans(),
    st.sampled_from([0.5, 0.02, float("inf"), None]),
    st.sampled_from([200, 10_240]),
    st.sampled_from(["generated", "reencode"]),
    st.booleans(),
)


async def move(rig: Rig, name: str, amount: int) -> None:
    if name == "a while":
        await rig.wait(amount / 80)
    elif name == "until it is quiet":
        await rig.settle()
    elif name in WAITS:
        for _ in range(1 if name == "a step" else amount % 12):
            await rig.one_step()
    else:
        with suppress(MossliveError):  # refused: out of turn
            CALLS[name](rig, amount)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(SETTINGS, st.booleans(), st.lists(MOVES, min_size=10, max_size=60))
def test_turns_stay_whole(
    nano_lm: LanguageModel, chosen: TalkSettings, threaded: bool, moves: list[tuple[str, int]]
) -> None:
    """With calls and steps of engine, codec and VAD in any order, the only error is a full context,
    every turn has its header and footer, the engine's rows are those of the turns, and another
    question gets a reply."""
    header, footer = nano_lm.format.header("user")[0], nano_lm.format.footer()

    async def story() -> None:
        threads = Later() if threaded else None
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, chosen, threads=threads)
        for name, amount in moves:
            await move(rig, name, amount)
        rig.talk.clear()
        rig.talk.cancel()
        await rig.wait(5.0)
        others = [one for one in rig.of(TalkFault) if "no turn left to forget" not in one.message]
        assert not others
        assert rig.rows == [row for said in rig.talk.turns for row in said.rows]
        for said in rig.talk.turns:
            assert said.rows[0] == header
            assert said.rows.count(header) == 1
            assert list(said.rows[-len(footer) :]) == footer
        done = len(rig.of(ReplyDone))
        rig.talk.push_text("Hello", "text")
        await rig.until(lambda: not rig.talk.replying)
        assert len(rig.of(ReplyDone)) == done + 1
        await rig.close()
        rig.assert_clean()

    run(story())
