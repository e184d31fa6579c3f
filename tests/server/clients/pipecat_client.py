"""`pipecat-ai` has two spoken turns; the second interrupts the first reply.

Runs in an environment of its own. Arguments: PORT, a file of 24 kHz PCM. Prints JSON.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    InputAudioRawFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    TTSAudioRawFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService

PACKET = 2400  # bytes: 50 ms


class Watch(FrameProcessor):
    def __init__(self, turn: bytes) -> None:
        super().__init__()
        self.turn = turn
        self.task: Any = None
        self.audio: list[int] = [0]
        self.errors: list[str] = []

    async def process_frame(self, frame: Any, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            self.audio[-1] += len(frame.audio)
            if len(self.audio) == 1 and self.audio[0] == len(frame.audio):
                await self.say()
        elif isinstance(frame, LLMFullResponseEndFrame):
            self.audio.append(0)
            if len(self.audio) == 3:
                await self.task.queue_frame(EndFrame())
        elif isinstance(frame, ErrorFrame):
            self.errors.append(str(frame.error))
        await self.push_frame(frame, direction)

    async def say(self) -> None:
        for first in range(0, len(self.turn), PACKET):
            data = self.turn[first : first + PACKET]
            await self.task.queue_frame(InputAudioRawFrame(data, 24_000, 1))


async def main(port: str, turn: bytes) -> None:
    service = OpenAIRealtimeLLMService(
        api_key="unused",
        base_url=f"ws://127.0.0.1:{port}/v1/realtime",
        settings=OpenAIRealtimeLLMService.Settings(model="moss"),
    )
    watch = Watch(turn)
    params = PipelineParams(audio_in_sample_rate=24_000, audio_out_sample_rate=24_000)
    task = watch.task = PipelineTask(Pipeline([service, watch]), params=params)
    await task.queue_frame(LLMContextFrame(LLMContext()))
    await watch.say()
    await PipelineRunner(handle_sigint=False).run(task)
    print(json.dumps({"audio": watch.audio, "errors": watch.errors}))


asyncio.run(main(sys.argv[1], Path(sys.argv[2]).read_bytes()))
