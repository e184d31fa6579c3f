"""openai-agents asks one spoken question and writes the spoken answer.

    pip install openai-agents
    mosslive serve
    python examples/openai_agents.py question.wav answer.wav

Both files are WAV: 24 kHz, mono, 16 bit. examples/curl.sh makes a question.wav.
"""

import argparse
import asyncio
import wave

from agents.realtime import RealtimeAgent, RealtimeRunner

RATE_HZ, PACKET = 24_000, 2400  # bytes of a packet: 50 ms


async def main(url: str, question: bytes) -> bytes:
    agent = RealtimeAgent(name="Moss", instructions="Be short.")
    answer = bytearray()
    # The key is not used by a server without keys, but openai-agents wants one.
    config = {"api_key": "any", "url": f"{url}?model=moss-speech"}
    async with await RealtimeRunner(agent).run(model_config=config) as session:
        for first in range(0, len(question), PACKET):
            await session.send_audio(question[first : first + PACKET])
        async for event in session:
            if event.type == "audio":
                answer += event.audio.data
            elif event.type == "error":
                raise SystemExit(f"error: {event.error}")
            elif event.type == "agent_end":
                break
    return bytes(answer)


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("question")
parser.add_argument("answer")
parser.add_argument("--url", default="ws://127.0.0.1:8000/v1/realtime")
given = parser.parse_args()
with wave.open(given.question) as sound:
    # Silence ends the turn: openai-agents waits for the server to notice.
    words = sound.readframes(sound.getnframes()) + bytes(2 * 2 * RATE_HZ)
heard = asyncio.run(main(given.url, words))
with wave.open(given.answer, "wb") as sound:
    sound.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
    sound.writeframes(heard)
print(f"{given.answer}: {len(heard) / 2 / RATE_HZ:.1f} s")
