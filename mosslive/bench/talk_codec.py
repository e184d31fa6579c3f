"""The published codec at random weights in memory: what conversations are measured with.

`Codec` itself, but for where its networks come from; so what is measured is what is used. Needs
none of the packages that read codec files.
"""

from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from mosslive.bench.codec_networks import Pair, normal, some_codes
from mosslive.codec import Codec, Voice
from mosslive.codec.conformer import FRAMES_PER_TOKEN
from mosslive.codec.flow import FlowVoice
from mosslive.codec.mel import FLOW_MEL

PROMPT_CODES = 50
_NAME = "random"


class RandomCodec(Codec):
    def __init__(self, pair: Pair, dtype: torch.dtype, pool_seconds: float) -> None:
        self.device = torch.device(pair.device)
        self.dtype, self._pool_seconds = dtype, pool_seconds
        self.sample_rate = FLOW_MEL.sample_rate_hz
        flow = pair.flow()[1]
        self._flows = {"chunk-5": flow, "offline": flow}
        self._streams = {}
        self._opened = WeakKeyDictionary()
        # Where `cached_property` would put what it reads from files.
        vars(self)["_encoder"] = pair.encoder()[1]
        vars(self)["_hift"] = pair.hift()[1]
        vars(self)["fingerprint"] = _NAME

    def random_voice(self) -> Voice:
        flow = self._flows["chunk-5"]
        prompt = FlowVoice(
            torch.tensor(some_codes(0, PROMPT_CODES, flow.settings.code_limit)),
            normal(4, FRAMES_PER_TOKEN * PROMPT_CODES, len(flow.noise)),
            normal(5, flow.dims.speaker),
        )
        return Voice(prompt, _NAME, _NAME)


def question(seconds: float, rate_hz: int, seed: int) -> NDArray[np.float32]:
    """Harmonics that glide and swell like syllables, and a little noise."""
    time = np.arange(round(seconds * rate_hz)) / rate_hz
    glide = 120 + 10 * (seed % 8) + 30 * np.sin(2 * np.pi * 0.6 * time + seed)
    phase = 2 * np.pi * np.cumsum(glide) / rate_hz
    tone = sum(np.sin(n * phase) / n for n in range(1, 9))
    loud = 0.05 + np.clip(np.sin(2 * np.pi * 2.2 * time + seed), 0, 1)
    noise = np.random.default_rng(seed).normal(0, 0.01, len(time))
    wave: NDArray[np.float32] = (0.1 * loud * tone + noise).astype(np.float32)
    return wave
