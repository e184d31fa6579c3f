"""The history: mixed turns, re-encoded replies, a full context, files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mosslive import LanguageModel, MossliveError, Turn
from mosslive.rows import Role, Row
from mosslive.talk import load_turns, save_turns
from mosslive.talk.dialogue import HistoryTurn, close_heard, close_whole, leaving
from mosslive.talk.events import ContextTrimmed, ReplyInterrupted, TalkFault
from tests.talk.rig import RIG, Rig, run
from tests.talk.test_interruption import (
    ASKED,
    PUSH_TO_TALK,
    QUESTION,
    SYSTEM,
    asked,
    history,
    reply_of,
)
from tests.talk.toy import TOY_VOICE, ToyCodec, toy_codes, toy_sound


@pytest.mark.parametrize("heard_s", [None, 0.5])
def test_reencoded_history_is_the_encoding_of_the_sound(
    nano_lm: LanguageModel, heard_s: float | None
) -> None:
    """With history="reencode" the history of a reply is the encoding of its sound as far as it was
    heard."""

    async def story() -> None:
        rig = await asked(nano_lm, replace(PUSH_TO_TALK, history="reencode"))
        codes = reply_of(nano_lm, [SYSTEM, ASKED])
        if heard_s is None:
            await rig.until(lambda: not rig.talk.replying)
        else:
            await rig.wait(heard_s)
            rig.talk.cancel()
            await rig.settle()
            codes = codes[: rig.of(ReplyInterrupted)[0].heard_codes]
        again = toy_codes(torch.from_numpy(toy_sound(codes)), 24_000)
        assert again != codes
        assert rig.rows == history(nano_lm, [SYSTEM, ASKED, Turn("assistant", codes=again)])
        await rig.close()
        rig.assert_clean()

    run(story())


def test_a_text_reply_is_not_encoded_again(nano_lm: LanguageModel) -> None:
    """With history="reencode" a text reply is its own history."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, replace(RIG, history="reencode"))
        rig.talk.push_text("Hello", "text")
        await rig.until(lambda: not rig.talk.replying)
        assert not rig.of(TalkFault)
        assert [said.kind for said in rig.talk.turns] == ["text"] * 3
        await rig.close()
        rig.assert_clean()

    run(story())


def test_a_full_context_drops_the_oldest_turns_and_reports_it(nano_lm: LanguageModel) -> None:
    """Whole turns are dropped, the oldest first and never the system turn; the reply is that of a
    conversation that began with the turns that stay."""
    small = replace(PUSH_TO_TALK, context_rows=220)

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, small)
        said: list[HistoryTurn] = rig.talk.turns
        for _ in range(8):
            await rig.say(QUESTION, 16_000)
            rig.talk.commit()
            await rig.until(lambda: not rig.talk.replying)
            said += rig.talk.turns[-2:]
            assert len(rig.rows) <= 220
        trims = rig.of(ContextTrimmed)
        gone = sum(trim.turns for trim in trims)
        assert gone > 0
        assert not rig.of(TalkFault)
        kept = rig.talk.turns
        assert [turn.rows for turn in kept] == [t.rows for t in [said[0], *said[1 + gone :]]]
        assert sum(trim.rows for trim in trims) == sum(len(t.rows) for t in said[1 : 1 + gone])
        prompt = [row for turn in kept[:-1] for row in turn.rows]
        prompt += nano_lm.format.reply_prefix("speech")
        if not any(isinstance(event, ContextTrimmed) for event in rig.events[-3:]):
            made = list(nano_lm.generate(prompt, RIG.sampling))
            assert list(kept[-1].rows)[:-3] == nano_lm.format.reply_prefix("speech") + made
        await rig.close()
        rig.assert_clean()

    run(story())


def test_a_turn_too_long_for_the_context_is_refused_whole(nano_lm: LanguageModel) -> None:
    """If no turn is left to drop, the turn gives an error and is dropped, and the conversation
    continues."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, replace(PUSH_TO_TALK, context_rows=90))
        before = rig.rows
        wave = torch.zeros(16_000 * 9)
        rig.talk.push_audio(wave, 16_000)
        await rig.settle()
        rig.talk.commit()
        await rig.until(lambda: not rig.talk.replying)
        assert "no turn left to forget; allowed: 90" in rig.of(TalkFault)[0].message
        assert rig.rows == before
        await rig.say(QUESTION, 16_000)
        rig.talk.commit()
        await rig.until(lambda: not rig.talk.replying)
        assert rig.talk.turns[-1].role == "assistant"
        await rig.close()
        rig.assert_clean()

    run(story())


def test_a_saved_conversation_continues(nano_lm: LanguageModel, tmp_path: Path) -> None:
    """After save and load the rows are the same, and so is the next reply."""
    path = tmp_path / "talk.json"

    async def first() -> list[Row]:
        rig = await asked(nano_lm)
        await rig.until(lambda: not rig.talk.replying)
        save_turns(path, rig.talk.turns, nano_lm.ids)
        rig.talk.push_text("More")
        await rig.until(lambda: not rig.talk.replying)
        rows = rig.rows
        await rig.close()
        return rows

    async def story() -> None:
        expected = await first()
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK, turns=load_turns(path, nano_lm.ids))
        rig.talk.push_text("More")
        await rig.until(lambda: not rig.talk.replying)
        assert rig.rows == expected
        await rig.close()
        rig.assert_clean()

    run(story())


def test_strange_files_are_refused(nano_lm: LanguageModel, tmp_path: Path) -> None:
    """A file of another model or version, or one that was edited, is refused."""
    path, ids = tmp_path / "talk.json", nano_lm.ids
    save_turns(path, [HistoryTurn("user", "text", ((1, 2),))], ids)
    good = json.loads(path.read_text())
    assert [turn.rows for turn in load_turns(path, ids)] == [((1, 2),)]
    turn = good["turns"][0]
    for change, message in (
        ({"version": 2}, "not a conversation of version 1"),
        ({"extra": 1}, "allowed: an object with format, model, turns, version"),
        ({"model": good["model"] | {"eosp": 7}}, "another model"),
        ({"turns": 3}, "turns is not a list"),
        ({"turns": [turn | {"role": "ghost"}]}, "turn 0: role is 'ghost'"),
        ({"turns": [turn | {"kind": "song"}]}, "turn 0: kind is 'song'"),
        ({"turns": [turn | {"rows": [[1, 10**9]]}]}, "turn 0: row 0: audio id"),
        ({"turns": [turn | {"rows": [[1.5, 2]]}]}, "turn 0: row 0: text id"),
        ({"turns": [turn | {"rows": []}]}, "turn 0: rows is empty"),
    ):
        path.write_text(json.dumps(good | change))
        with pytest.raises(MossliveError, match=message):
            load_turns(path, ids)
    path.write_text("{")
    with pytest.raises(MossliveError, match="not a conversation file"):
        load_turns(path, ids)
    with pytest.raises(MossliveError, match="no such file"):
        load_turns(tmp_path / "none.json", ids)


@pytest.mark.parametrize("name", ["file/talk.json", "none/talk.json", 250 * "x"])
def test_a_file_that_cannot_be_written_is_named(
    nano_lm: LanguageModel, tmp_path: Path, name: str
) -> None:
    """A failed write raises our own error with the file's name, also if the cleanup fails too."""
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(MossliveError, match=f"{name}: cannot be written: "):
        save_turns(tmp_path / name, [], nano_lm.ids)


def test_which_turns_leave() -> None:
    """Turns are dropped oldest first, as few as needed, and never the system turn."""
    turns = [_said("system", 10), *(_said("user", 20) for _ in range(4))]
    assert leaving(turns, 0, 90) == []
    assert leaving(turns, 1, 90) == turns[1:2]
    assert leaving(turns, 30, 70) == turns[1:4]
    assert leaving(turns, 1000, 70) == turns[1:]


def _said(role: Role, rows: int) -> HistoryTurn:
    return HistoryTurn(role, "text", ((0, 0),) * rows)


def test_closing_rows(nano_lm: LanguageModel) -> None:
    """Speech ends with its end row and a turn with its footer; rows that the model generated are
    not written again, and an empty turn has no rows."""
    ids, footer = nano_lm.ids, nano_lm.format.footer()
    code, end = (ids.modality_pad, 7), (ids.modality_pad, ids.eosp)
    stop = (footer[0][0], 3)  # the model's own, with the id it sampled for audio
    other = (next(iter(ids.stops - {footer[0][0]})), 3)
    text = (5, ids.audio_pad)
    assert close_whole([code, code, end, stop], footer, ids) == (4, footer[1:])
    assert close_whole([code, code], footer, ids) == (2, [end, *footer])
    assert close_whole([code, end], footer, ids) == (2, footer)
    assert close_whole([code, end, other], footer, ids) == (2, footer)
    assert close_whole([text, text], footer, ids) == (2, footer)
    assert close_whole([stop], footer, ids) == close_whole([], footer, ids) == (0, [])
    assert close_heard([code, code, end, stop], 1, footer, ids) == (1, [end, *footer])
    assert close_heard([text, code, text, code, end], 2, footer, ids) == (4, [end, *footer])
    assert close_heard([code, end, text, code], 9, footer, ids) == (1, [end, *footer])
    assert close_heard([code], 0, footer, ids) == (0, [])
