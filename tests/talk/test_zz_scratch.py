"""scratch"""
import asyncio
from dataclasses import replace
import torch, numpy as np, pytest
from mosslive.talk.dialogue import Said
from mosslive.talk.saved import save_turns, BadConversation
from mosslive.codec.flow import FlowVoice
from mosslive.codec.voice import Voice
from mosslive import Engine
from tests.talk.rig import *
from tests.talk.toy import *
from tests.talk.test_interruption import TOLD
from tests.talk.test_pace import paced_rig, PACED
from mosslive.engine.settings import EngineSettings
from mosslive.talk.events import ReplyDone

def test_save(tmp_path, nano_lm):
    f = tmp_path/"a"; f.write_text("x")
    from mosslive.rows import RowIds
    with pytest.raises(BadConversation):
        save_turns(f/"b.json", [], nano_lm.ids)
def test_save_long(tmp_path, nano_lm):
    with pytest.raises(BadConversation):
        save_turns(tmp_path/("b"*252), [], nano_lm.ids)

def test_short_prompt(nano_lm, codec, voice):
    v = Voice(FlowVoice(voice.prompt.prompt_codes[:4], voice.prompt.prompt_feat[:16], voice.prompt.embedding), "short")
    async def story():
        clock = FakeClock()
        limits = EngineSettings(headroom_rows=0, ahead_rows=20)
        engine = Engine(Script(nano_lm, [(1, 7)]), nano_lm.tokenizer, limits, clock=clock.now, threaded=False)
        rig = Rig(nano_lm, codec, v, replace(PACED, chunk=25, ahead_s=1.0, sampling=replace(PACED.sampling, max_new=80, min_new=81)), engine=engine, clock=clock)
        rig.eager = True
        rig.talk.push_text("Hello")
        await rig.until(lambda: rig.of(ReplyDone), 20)
        await rig.close()
    run(story())
