"""A client in a process of its own that plays what it gets: `python -m tests.server.listener URL
[QUESTION TURNS]`.

Without a question it asks for one spoken reply. With one, a FLAC file, it speaks it in real time,
waits until it has heard the reply, and speaks again, TURNS times; the server detects its turns.
Prints one JSON object: how many gaps it heard, how long they were in all, and how long after each
question the first sound came. Playing begins with the first sound of a reply and goes on in real
time. Imports nothing of mosslive.
"""

import asyncio
import base64
import json
import sys
import time
from typing import Any

import numpy as np
import soundfile
from websockets.asyncio.client import ClientConnection, connect

RATE = 24_000
BYTES_PER_S = 2 * RATE  # 16 bits
PACKET_S = 0.04
ASK = {
    "type": "conversation.item.create",
    "item": {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "hello"}],
    },
}
TIMING = {"type": "session.update", "session": {"type": "realtime", "include": ["mosslive.timing"]}}


class Ear:
    """Plays replies and counts the gaps in them."""

    def __init__(self) -> None:
        self.gaps, self.silence_s, self.sound_s = 0, 0.0, 0.0
        self.first_at, self.ends_at = 0.0, 0.0  # of the reply
        self.reported: list[int] = []  # gaps, as the server's timing event says

    def hear(self, delta: str, now: float) -> None:
        if not self.first_at:
            self.first_at = self.ends_at = now
        if now > self.ends_at:
            self.gaps += 1
            self.silence_s += now - self.ends_at
        seconds = len(base64.b64decode(delta)) / BYTES_PER_S
        self.sound_s += seconds
        self.ends_at = max(now, self.ends_at) + seconds

    async def reply(self, socket: ClientConnection) -> str:
        """Hears one reply to its end. Returns its status."""
        self.first_at, status = 0.0, ""
        while True:
            event: dict[str, Any] = json.loads(await socket.recv())
            now = time.monotonic()
            if event["type"] == "response.output_audio.delta":
                self.hear(event["delta"], now)
            elif event["type"] == "response.done":
                status = event["response"]["status"]
            elif event["type"] == "mosslive.timing":  # follows `response.done`
                self.reported.append(event["timing"]["underruns"])
                return status


def packets(question: str) -> list[str]:
    """The question and a second of silence, which ends the turn."""
    wave, rate = soundfile.read(question, dtype="float32")
    at = np.arange(0, len(wave) - 1, rate / RATE)
    wave = np.interp(at, np.arange(len(wave)), wave)
    pcm = (np.concatenate((wave, np.zeros(RATE))) * 32767).astype("<i2").tobytes()
    size = round(PACKET_S * BYTES_PER_S)
    return [
        base64.b64encode(pcm[first : first + size]).decode() for first in range(0, len(pcm), size)
    ]


async def speak(socket: ClientConnection, sound: list[str]) -> float:
    """In real time. Returns when the question, without the silence, ended."""
    began = time.monotonic()
    for number, packet in enumerate(sound):
        await asyncio.sleep(max(0.0, began + number * PACKET_S - time.monotonic()))
        await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": packet}))
    return began + len(sound) * PACKET_S - 1.0


async def main(url: str, question: str = "", turns: str = "1") -> None:
    ear, firsts, statuses = Ear(), list[float](), list[str]()
    async with connect(url, max_size=None) as socket:
        await socket.send(json.dumps(TIMING))
        sound = packets(question) if question else []
        for _ in range(int(turns)):
            if question:
                listening = asyncio.create_task(ear.reply(socket))
                ended_at = await speak(socket, sound)
            else:
                await socket.send(json.dumps(ASK))
                await socket.send(json.dumps({"type": "response.create"}))
                ended_at = time.monotonic()
                listening = asyncio.create_task(ear.reply(socket))
            statuses.append(await listening)
            firsts.append(ear.first_at - ended_at)
            await asyncio.sleep(max(0.0, ear.ends_at - time.monotonic()))
    heard = {
        "gaps": ear.gaps,
        "silence_s": ear.silence_s,
        "sound_s": ear.sound_s,
        "first_s": firsts,
        "reported": ear.reported,
        "status": statuses[-1],
    }
    print(json.dumps(heard), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
