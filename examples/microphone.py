"""Talk with the server by microphone and loudspeaker, over a WebSocket.

    pip install websockets sounddevice
    mosslive serve
    python examples/microphone.py

Use headphones: there is no echo cancellation. With --files QUESTION ANSWER two WAV files (24 kHz,
mono, 16 bit) take the places of microphone and loudspeaker, and the first answer ends the program.
"""

import argparse
import asyncio
import base64
import json
import wave
from collections.abc import AsyncIterator

from websockets.asyncio.client import connect

RATE_HZ, BLOCK = 24_000, 1200  # samples of a packet: 50 ms
played = bytearray()  # what is still to be played; with --files, the whole answer


async def microphone() -> AsyncIterator[bytes]:
    import sounddevice

    loop, recorded = asyncio.get_running_loop(), asyncio.Queue()

    def both(heard: memoryview, said: memoryview, *_: object) -> None:
        loop.call_soon_threadsafe(recorded.put_nowait, bytes(heard))
        said[:] = bytes(played[: len(said)]).ljust(len(said), b"\0")
        del played[: len(said)]

    with sounddevice.RawStream(RATE_HZ, BLOCK, channels=1, dtype="int16", callback=both):
        while True:
            yield await recorded.get()


async def file(path: str) -> AsyncIterator[bytes]:
    with wave.open(path) as sound:
        while data := sound.readframes(BLOCK):
            yield data
            await asyncio.sleep(BLOCK / RATE_HZ)
    for _ in range(24):  # more than a second of silence ends the turn
        yield bytes(2 * BLOCK)


async def main(url: str, files: list[str] | None) -> None:
    async def send() -> None:
        async for block in file(files[0]) if files else microphone():
            audio = base64.b64encode(block).decode()
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))

    problem = ""
    try:
        async with connect(url, max_size=None) as socket, asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(send())
            async for message in socket:
                event = json.loads(message)
                if event["type"] == "response.output_audio.delta":
                    played.extend(base64.b64decode(event["delta"]))
                elif event["type"] == "input_audio_buffer.speech_started":
                    played.clear()  # the user interrupts
                elif event["type"] == "response.output_audio_transcript.done":
                    print("model:", event["transcript"] or "(spoken)")
                elif event["type"] == "error":
                    raise RuntimeError(event["error"]["message"])
                elif event["type"] == "response.done" and files:
                    break
            sending.cancel()
    except* Exception as failed:  # no server, no sound card, an error event
        problem = f"error: {failed.exceptions[0]}"
    if problem:
        raise SystemExit(problem)


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--url", default="ws://127.0.0.1:8000/v1/realtime")
parser.add_argument("--files", nargs=2, metavar=("QUESTION", "ANSWER"))
given = parser.parse_args()
asyncio.run(main(given.url, given.files))
if given.files:
    with wave.open(given.files[1], "wb") as sound:
        sound.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
        sound.writeframes(played)
