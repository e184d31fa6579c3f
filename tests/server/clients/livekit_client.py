"""`livekit-plugins-openai` has two spoken turns; the second interrupts the first reply.

Runs in an environment of its own. Arguments: PORT, a file of 24 kHz PCM. Prints JSON.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
from livekit import rtc
from livekit.plugins import openai

PACKET = 1200  # samples: 50 ms
SPEECH = 24_000  # bytes at the beginning that are not silence


def say(session: Any, sound: bytes) -> None:
    for first in range(0, len(sound), 2 * PACKET):
        data = sound[first : first + 2 * PACKET]
        session.push_audio(rtc.AudioFrame(data, 24_000, 1, len(data) // 2))


async def main(port: str, turn: bytes) -> None:
    async with aiohttp.ClientSession() as http:
        model = openai.realtime.RealtimeModel(
            model="moss",
            base_url=f"http://127.0.0.1:{port}/v1",
            api_key="unused",
            http_session=http,
        )
        session = model.session()
        generations: asyncio.Queue[Any] = asyncio.Queue()
        heard = asyncio.Event()
        errors: list[str] = []
        session.on("generation_created", generations.put_nowait)
        session.on("input_speech_started", lambda event: heard.set())
        session.on("error", lambda event: errors.append(str(event.error)))
        say(session, turn)
        lengths, modalities = [], []
        for number in range(2):
            generation = await generations.get()
            samples = 0
            async for message in generation.message_stream:
                modalities.append(await message.modalities)
                async for frame in message.audio_stream:
                    samples += frame.samples_per_channel
                    if number == 0 and samples == frame.samples_per_channel:
                        heard.clear()
                        say(session, turn[:SPEECH])
                        await heard.wait()
                        session.interrupt()
                        session.truncate(
                            message_id=message.message_id,
                            modalities=["audio"],
                            audio_end_ms=60,
                        )
            lengths.append(samples)
            if number == 0:
                say(session, turn[SPEECH:])
        await session.aclose()
        print(json.dumps({"lengths": lengths, "modalities": modalities, "errors": errors}))


asyncio.run(main(sys.argv[1], Path(sys.argv[2]).read_bytes()))
