"""A client in a process of its own that plays what it gets: `python -m tests.server.listener URL`.

Asks for one spoken reply, and prints one JSON object: how many gaps it heard and how long they were
in all. Playing begins with the first sound and goes on in real time. Imports nothing of mosslive.
"""

import asyncio
import base64
import json
import sys
import time

from websockets.asyncio.client import connect

BYTES_PER_S = 48_000  # 24 kHz, 16 bits
ASK = {
    "type": "conversation.item.create",
    "item": {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "hello"}],
    },
}


async def main(url: str) -> None:
    gaps, silence_s, sound_s, ends_at = 0, 0.0, 0.0, 0.0
    async with connect(url, max_size=None) as socket:
        await socket.send(json.dumps(ASK))
        await socket.send(json.dumps({"type": "response.create"}))
        while True:
            event = json.loads(await socket.recv())
            now = time.monotonic()
            if event["type"] == "response.output_audio.delta":
                if sound_s and now > ends_at:
                    gaps += 1
                    silence_s += now - ends_at
                seconds = len(base64.b64decode(event["delta"])) / BYTES_PER_S
                sound_s += seconds
                ends_at = max(now, ends_at) + seconds
            if event["type"] == "response.done":
                break
    status = event["response"]["status"]
    heard = {"gaps": gaps, "silence_s": silence_s, "sound_s": sound_s, "status": status}
    print(json.dumps(heard), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
