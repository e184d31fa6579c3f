"""`openai-agents` has two spoken turns; the second interrupts the first reply.

Runs in an environment of its own. Arguments: PORT, a file of 24 kHz PCM. Prints JSON.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from agents.realtime import RealtimeAgent, RealtimeRunner

PACKET = 2400  # bytes: 50 ms


async def say(session: Any, sound: bytes) -> None:
    for first in range(0, len(sound), PACKET):
        await session.send_audio(sound[first : first + PACKET])


async def main(port: str, turn: bytes) -> None:
    runner = RealtimeRunner(RealtimeAgent(name="Anna", instructions="Be short."))
    url = f"ws://127.0.0.1:{port}/v1/realtime?model=moss"
    async with await runner.run(model_config={"api_key": "unused", "url": url}) as session:
        await say(session, turn)
        seen: list[str] = []
        replies = interrupted = audio = 0
        async for event in session:
            seen.append(event.type)
            if event.type == "error":
                raise SystemExit(f"error: {event.error}")
            if event.type == "audio":
                audio += len(event.audio.data)
                if not interrupted and seen.count("audio") == 1:
                    await say(session, turn)
            if event.type == "audio_interrupted":
                interrupted += 1
            if event.type == "agent_end":
                replies += 1
                if replies == 2:
                    break
        print(json.dumps({"replies": replies, "interrupted": interrupted, "audio": audio}))


asyncio.run(main(sys.argv[1], Path(sys.argv[2]).read_bytes()))
