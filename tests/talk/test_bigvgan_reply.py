"""A live reply through BigVGAN, played in real time."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from mosslive import LanguageModel
from mosslive.codec import Voice, load_codec
from mosslive.talk.events import ReplyDone, TimingReady
from tests.talk.rig import run
from tests.talk.test_pace import PACED, SAMPLING, paced_rig

CODES = 43
AHEAD_S = 1.0  # the least that is allowed


def test_a_paced_reply_is_whole(
    nano_lm: LanguageModel, codec_folder: Path, voice: Voice, flow_bigvgan: Path
) -> None:
    """The look-ahead of the vocoder neither stops a reply that is made little ahead of its listener
    nor interrupts its sound, which is that of the same codes rendered alone."""
    codec = load_codec(codec_folder, vocoder=flow_bigvgan, trace_cpu_steps=False)
    length = replace(SAMPLING, max_new=CODES, min_new=CODES + 1)

    async def story() -> None:
        settings = replace(PACED, sampling=length, ahead_s=AHEAD_S)
        rig = paced_rig(nano_lm, settings, codec, voice)
        rig.talk.push_text("Hello")
        await rig.until(lambda: bool(rig.of(ReplyDone)))
        assert rig.of(TimingReady)[0].timing.underruns == 0
        stream = codec.decoder_stream(voice, tail="cached")
        wanted = np.concatenate((stream.push([7] * CODES), stream.finish()))
        assert rig.sound().shape == wanted.shape == (1920 * CODES,)
        np.testing.assert_allclose(rig.sound(), wanted, atol=5e-3)
        await rig.close()
        assert rig.codec.open_replies == 0

    run(story())
