"""Transcripts of spoken turns by the model's text mode."""

import asyncio
from pathlib import Path

from mosslive import Engine, LanguageModel, Sampling, TalkSettings, Turn
from mosslive.rows import WRITE_DOWN_SYSTEM
from mosslive.talk.dialogue import HistoryTurn
from mosslive.talk.transcript import transcribe

GREEDY = Sampling(greedy=True, max_new=12, ignored_audio="pad")
SETTINGS = TalkSettings(reply="text", system="", sampling=GREEDY, turns=None, lead_s=None)


def test_a_transcript_is_the_text_reply_to_the_codes(
    nano_folder: Path, nano_lm: LanguageModel
) -> None:
    """The transcript equals the reply of the reference loop to the same codes, after the system
    turn that asks for it; a turn without sound has none; no page stays in use."""
    codes = [7 * n % 50 for n in range(20)]
    asked = [Turn("system", text=WRITE_DOWN_SYSTEM), Turn("user", codes=codes)]
    prompt = nano_lm.prompt(asked, reply="text")
    wanted = nano_lm.read(list(nano_lm.generate(prompt, GREEDY))).text

    async def story() -> tuple[str, str]:
        async with Engine.load(nano_folder) as engine:
            free = engine.stats().free_pages
            form = engine.format
            said = HistoryTurn("assistant", "speech", tuple(form.turn(Turn("user", codes=codes))))
            silent = HistoryTurn("user", "text", tuple(form.turn(Turn("user", text="Hi"))))
            texts = [await transcribe(engine, one, SETTINGS) for one in (said, silent)]
            async with asyncio.timeout(30):  # the engine frees pages in its next step
                while engine.stats().free_pages != free:
                    await asyncio.sleep(0.01)
            return texts[0], texts[1]

    assert asyncio.run(story()) == (wanted, "")
