"""The published codec at random weights in memory, for measuring conversations.

It is `Codec` with other sources of its networks, so the product itself is measured. Does not need
the packages that read codec files. Also lists the kernels that conversations use, so that none is
compiled during one.
"""

from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from mosslive.bench.codec.networks import (
    normal,
    random_encoder,
    random_flow,
    random_hift,
    some_codes,
)
from mosslive.bench.codec.precompile import CompileJob, encoder_jobs
from mosslive.checkpoint.codec import FlowProfile
from mosslive.checkpoint.synth import SizeName
from mosslive.codec import Codec, Voice
from mosslive.codec.conformer import FRAMES_PER_TOKEN
from mosslive.codec.device import COMPUTE
from mosslive.codec.flow import Flow, FlowVoice
from mosslive.codec.graph_sets import buckets_for
from mosslive.codec.hift.arena import LAST_BUCKETS, OVERLAP_FRAMES
from mosslive.codec.hift.stream import HiftStream
from mosslive.codec.mel import FLOW_MEL
from mosslive.codec.vocoder import Vocoder
from mosslive.codec.vocoder_files import open_bigvgan_folder
from mosslive.kernels.arithmetic import Precision

MICROPHONE_HZ = 24_000
PROMPT_CODES = 50
CHUNK_CODES = 5
_NAME = "random"
_HIFT_PROCESSES = 4  # to compile HiFT's kernels, for one stream and for several


def compile_jobs(
    precision: Precision,
    conversations: int,
    with_hift: bool = True,
    encoder: Precision = "fp32",
    vocoder: Precision = "fp32",
) -> list[CompileJob]:
    """Returns the compile jobs for this many conversations. `precision`: of the flow."""
    first = FRAMES_PER_TOKEN * CHUNK_CODES  # frames of a reply's first window
    steady = OVERLAP_FRAMES + first
    # A reply ends with up to 7 codes; a reply of no more codes is one window.
    last = {FRAMES_PER_TOKEN * codes for codes in range(1, CHUNK_CODES + 3)}
    last |= {OVERLAP_FRAMES + frames for frames in last}
    hift = [CompileJob("hift", vocoder, (1,), tuple(sorted(last)))]
    sizes = buckets_for(conversations)
    if conversations > 1:
        hift.append(CompileJob("hift", vocoder, tuple(sizes[1:]), (first, steady)))
        ends = tuple(size for size in LAST_BUCKETS if size in sizes[1:])
        hift.append(CompileJob("hift", vocoder, ends, tuple(sorted(last))))
    return [
        *(CompileJob("flow", precision, (size,)) for size in sizes),
        *(part for job in hift if with_hift for part in job.split(_HIFT_PROCESSES)),
        *encoder_jobs(encoder),
    ]


@dataclass(frozen=True)
class _RandomHift:
    size: SizeName
    dtype: torch.dtype = torch.float32
    delay_frames: int = OVERLAP_FRAMES

    def load(self, device: torch.device, trace_cpu_steps: bool) -> Vocoder:
        hift = random_hift(self.size)
        hift.compute_in(self.dtype)
        return HiftStream(hift.to(device), trace_cpu_steps)


class RandomCodec(Codec):
    def __init__(
        self,
        size: SizeName,
        device: str,
        dtype: torch.dtype,
        pool_seconds: float,
        vocoder: Path | None = None,
        *,
        encoder_dtype: torch.dtype = torch.float32,
        hearing_seconds: float | None = None,
        vocoder_dtype: str = "float32",
    ) -> None:
        self._vocoder_files = (
            open_bigvgan_folder(vocoder, vocoder_dtype)
            if vocoder
            else _RandomHift(size, COMPUTE[vocoder_dtype])
        )
        self.device = torch.device(device)
        self.dtype, self._pool_seconds = dtype, pool_seconds
        self.pool_seconds = pool_seconds
        self._trace_cpu_steps = True
        self.encoder_dtype, self._hearing_seconds = encoder_dtype, hearing_seconds
        self.sample_rate = FLOW_MEL.sample_rate_hz
        self._random_flow = random_flow(size).to(self.device)
        self._streams = {}
        self._opened = WeakKeyDictionary()
        # Fills the attributes in which `cached_property` stores what it reads from files.
        encoder = random_encoder(size).to(self.device)
        vars(self)["_encoder"] = encoder.to_precision(encoder_dtype)
        vars(self)["fingerprint"] = _NAME

    def random_voice(self) -> Voice:
        flow = self._random_flow
        prompt = FlowVoice(
            torch.tensor(some_codes(0, PROMPT_CODES, flow.settings.code_limit)),
            normal(4, FRAMES_PER_TOKEN * PROMPT_CODES, len(flow.noise)),
            normal(5, flow.dims.speaker),
        )
        return Voice(prompt, _NAME, _NAME)

    def _flow(self, profile: FlowProfile) -> Flow:
        return self._random_flow


def question(seconds: float, rate_hz: int, seed: int) -> NDArray[np.float32]:
    """Returns harmonics that change pitch and loudness like syllables, and a little noise."""
    time = np.arange(round(seconds * rate_hz)) / rate_hz
    glide = 120 + 10 * (seed % 8) + 30 * np.sin(2 * np.pi * 0.6 * time + seed)
    phase = 2 * np.pi * np.cumsum(glide) / rate_hz
    tone = sum(np.sin(n * phase) / n for n in range(1, 9))
    loud = 0.05 + np.clip(np.sin(2 * np.pi * 2.2 * time + seed), 0, 1)
    noise = np.random.default_rng(seed).normal(0, 0.01, len(time))
    wave: NDArray[np.float32] = (0.1 * loud * tone + noise).astype(np.float32)
    return wave
