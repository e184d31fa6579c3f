"""LiveKit's plugin for realtime models asks one spoken question and writes the spoken answer.

    pip install livekit-plugins-openai
    mosslive serve
    python examples/livekit_model.py question.wav answer.wav

Both files are WAV: 24 kHz, mono, 16 bit. examples/curl.sh makes a question.wav. In an agent that
joins a LiveKit room, give the same model to AgentSession(llm=model) instead.
"""

import argparse
import asyncio
import wave

import aiohttp
from livekit import rtc
from livekit.plugins import openai

RATE_HZ, PACKET = 24_000, 2400  # bytes of a packet: 50 ms


async def main(url: str, question: bytes) -> bytes:
    answer = bytearray()
    async with aiohttp.ClientSession() as http:
        model = openai.realtime.RealtimeModel(
            model="moss-speech", base_url=url, api_key="any", http_session=http
        )
        session = model.session()
        replies: asyncio.Queue = asyncio.Queue()
        session.on("generation_created", replies.put_nowait)
        session.on("error", lambda event: print("error:", event.error))
        for first in range(0, len(question), PACKET):
            data = question[first : first + PACKET]
            session.push_audio(rtc.AudioFrame(data, RATE_HZ, 1, len(data) // 2))
        async for message in (await replies.get()).message_stream:
            async for frame in message.audio_stream:
                answer += bytes(frame.data)
        await session.aclose()
    return bytes(answer)


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("question")
parser.add_argument("answer")
parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
given = parser.parse_args()
with wave.open(given.question) as sound:
    # Silence ends the turn: LiveKit waits for the server to notice.
    words = sound.readframes(sound.getnframes()) + bytes(2 * 2 * RATE_HZ)
heard = asyncio.run(main(given.url, words))
with wave.open(given.answer, "wb") as sound:
    sound.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
    sound.writeframes(heard)
print(f"{given.answer}: {len(heard) / 2 / RATE_HZ:.1f} s")
