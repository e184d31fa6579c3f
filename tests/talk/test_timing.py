"""The record of a turn: definitions, sums, and the timeline page."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from mosslive import LanguageModel, MossliveError
from mosslive.talk import Talk, TalkSettings
from mosslive.talk.events import TimingReady
from mosslive.talk.timing import Stopwatch, TurnTiming, timeline_html
from tests.talk.rig import RIG, Rig, frames, run
from tests.talk.test_interruption import PUSH_TO_TALK
from tests.talk.toy import TOY_VOICE, ToyCodec

TURN = TurnTiming(
    turn=1,
    reply="speech",
    speech_end=10.0,
    turn_detected=10.5,
    heard=10.51,
    last_row_in=10.511,
    first_row=10.52,
    first_chunk=10.55,
    first_pcm=10.57,
    first_out=10.571,
    last_pcm=11.5,
    audio_s=10.0,
)


def test_time_to_first_audio_and_real_time_factor() -> None:
    """Time to first audio excludes turn detection, which is stated apart; the real-time factor is
    the wall time of the whole reply over the duration of its sound."""
    assert TURN.detection_s == 0.5
    assert TURN.ttfa_s == pytest.approx(0.071)
    assert TURN.rtf == pytest.approx(0.1)
    assert sum(TURN.stages.values()) == pytest.approx(TURN.ttfa_s)
    assert list(TURN.stages.values()) == pytest.approx([0.01, 0.001, 0.009, 0.03, 0.02, 0.001])


def test_stages_before_the_end_of_the_turn_take_no_time() -> None:
    """Stages that were over before the end of the turn take no time, and the rest still adds up."""
    early = replace(TURN, turn_detected=10.56, speculative=True)
    assert early.ttfa_s == pytest.approx(0.011)
    assert sum(early.stages.values()) == pytest.approx(0.011)
    assert early.stages["codes of the first chunk"] == 0


def test_the_factor_of_a_speculative_reply_counts_from_its_start() -> None:
    """The real-time factor of a speculative reply counts the work done before the turn was over."""
    early = replace(TURN, turn_detected=11.6, speculative=True, begun=10.5)
    assert early.rtf == pytest.approx(0.1)


def test_a_text_reply_has_no_first_audio() -> None:
    """A text reply has no time to first audio."""
    written = TurnTiming(turn=1, reply="text", speech_end=None, turn_detected=1.0, first_row=1.2)
    assert written.ttfa_s is written.rtf is written.detection_s is None
    assert json.loads(json.dumps(written.document()))["stages_s"] == {
        "prefill and first code": pytest.approx(0.2)
    }


def test_a_moment_is_set_once() -> None:
    """A repeated mark does not move the first one."""
    watch = Stopwatch(3, "speech")
    watch.set(turn_detected=1.0)
    watch.mark("first_row", 2.0)
    watch.mark("first_row", 3.0)
    watch.add(render_s=0.5)
    watch.add(render_s=0.25)
    assert watch.read().first_row == 2.0
    assert watch.read().render_s == 0.75


def test_moments_of_a_live_turn(nano_lm: LanguageModel) -> None:
    """On a clock that moves only with the microphone, speech ends when its last packet arrives, the
    turn is detected half a second of sound later, and the reply takes no time."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE)
        began = rig.clock.now()
        await rig.say(frames((0.64, True), (0.64, False)), 16_000, packet=512)
        await rig.until(lambda: not rig.talk.replying)
        timing = rig.of(TimingReady)[0].timing
        assert timing.speech_end == pytest.approx(began + 0.64)
        assert timing.detection_s == pytest.approx(0.512)
        assert timing.ttfa_s == timing.rtf == 0
        assert timing.audio_s == pytest.approx(1.6)
        assert timing.codes_heard == 15  # 1.152 s, the last 80 ms filled up
        await rig.close()

    run(story())


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.outside += [name for name, _ in attributes if name in ("src", "href")]


def test_the_timeline_is_one_page_without_other_files() -> None:
    """The page has a bar per stage of each spoken turn, a row per turn, no link and no script."""
    written = TurnTiming(turn=2, reply="text", speech_end=None, turn_detected=1.0)
    html = timeline_html([TURN, written], title="<b>")
    page = _Page()
    page.feed(html)
    assert page.outside == []
    assert "script" not in page.tags
    assert page.tags.count("rect") == 7
    assert page.tags.count("tr") == 3
    assert "&lt;b&gt;" in html
    assert "71.0" in html
    assert "No turn has a spoken reply" in timeline_html([written])


def test_a_conversation_in_text_needs_no_codec(nano_lm: LanguageModel) -> None:
    """Without a codec text works, and calls that need a codec raise at once."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        settings = replace(RIG, reply="text")
        talk = Talk(rig.engine, None, None, settings, clock=rig.clock)
        talk.push_text("Hello")
        await rig.until(lambda: not talk.replying)
        assert talk.turns[-1].role == "assistant"
        with pytest.raises(MossliveError, match="no codec"):
            talk.push_audio(np.zeros(10, np.float32), 16_000)
        with pytest.raises(MossliveError, match="reply is 'speech'; allowed: text"):
            talk.push_text("Hello", reply="speech")
        await talk.close()
        await rig.close()
        rig.assert_clean()

    run(story())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"history": "song"}, "history is 'song'; allowed: generated or reencode"),
        ({"chunk": 7}, "chunk is 7; allowed: 5 or 25"),
        ({"lead_s": 0}, "lead_s is 0; allowed: 0.02 seconds or more, inf, or None"),
        ({"lead_s": 0.019}, "lead_s is 0.019; allowed: 0.02 seconds or more, inf, or None"),
        ({"context_rows": 3}, "context_rows is 3; allowed: 64 rows or more"),
        ({"keep": 1.5}, "keep is 1.5; allowed: above 0 and at most 1"),
        ({"speculate": True, "turns": None}, "speculate is True; allowed: False with push to talk"),
    ],
)
def test_bad_settings(wrong: dict[str, object], message: str) -> None:
    """The error names the setting, its value and the allowed values."""
    with pytest.raises(MossliveError, match=message):
        TalkSettings(**wrong)  # type: ignore[arg-type]
