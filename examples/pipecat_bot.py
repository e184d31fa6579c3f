"""A pipecat pipeline asks one spoken question and writes the spoken answer.

    pip install pipecat-ai
    mosslive serve
    python examples/pipecat_bot.py question.wav answer.wav

Both files are WAV: 24 kHz, mono, 16 bit. examples/curl.sh makes a question.wav. In a bot, put the
same service between transport.input() and transport.output().
"""

import argparse
import asyncio
import wave

from pipecat.frames import frames
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService

RATE_HZ, PACKET = 24_000, 2400  # bytes of a packet: 50 ms


class Recorder(FrameProcessor):
    """Keeps the sound of the answer, and ends the pipeline after it."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = bytearray()
        self.task: PipelineTask | None = None

    async def process_frame(self, frame: frames.Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, frames.TTSAudioRawFrame):
            self.answer += frame.audio
        elif isinstance(frame, frames.ErrorFrame):
            print("error:", frame.error)
        elif isinstance(frame, frames.LLMFullResponseEndFrame):
            await self.task.queue_frame(frames.EndFrame())
        await self.push_frame(frame, direction)


async def main(url: str, question: bytes) -> bytes:
    settings = OpenAIRealtimeLLMService.Settings(model="moss-speech")
    service = OpenAIRealtimeLLMService(api_key="any", base_url=url, settings=settings)
    recorder = Recorder()
    params = PipelineParams(audio_in_sample_rate=RATE_HZ, audio_out_sample_rate=RATE_HZ)
    task = recorder.task = PipelineTask(Pipeline([service, recorder]), params=params)
    await task.queue_frame(frames.LLMContextFrame(LLMContext()))
    for first in range(0, len(question), PACKET):
        data = question[first : first + PACKET]
        await task.queue_frame(frames.InputAudioRawFrame(data, RATE_HZ, 1))
    await PipelineRunner(handle_sigint=False).run(task)
    return bytes(recorder.answer)


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("question")
parser.add_argument("answer")
parser.add_argument("--url", default="ws://127.0.0.1:8000/v1/realtime")
given = parser.parse_args()
with wave.open(given.question) as sound:
    # Silence ends the turn: pipecat waits for the server to notice.
    words = sound.readframes(sound.getnframes()) + bytes(2 * 2 * RATE_HZ)
heard = asyncio.run(main(given.url, words))
with wave.open(given.answer, "wb") as sound:
    sound.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
    sound.writeframes(heard)
print(f"{given.answer}: {len(heard) / 2 / RATE_HZ:.1f} s")
