"""Call the server as a telephone gateway does: G.711 u-law, 8 kHz, packets of 20 ms in real time.

    pip install websockets soundfile soxr
    mosslive serve
    python examples/phone.py question.wav answer.wav

Takes any sound file as the caller's words and writes what the caller hears, as u-law, too.
"""

import argparse
import asyncio
import base64
import io
import json

import soundfile
import soxr
from websockets.asyncio.client import ClientConnection, connect

RATE_HZ, PACKET_S = 8000, 0.02
SILENCE = b"\xff"  # the quietest value of u-law
PHONE = {"format": {"type": "audio/pcmu"}}


def ulaw(path: str) -> bytes:
    """The sound file as a telephone transmits it: one byte a sample."""
    sound, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
    out = io.BytesIO()
    narrow = soxr.resample(sound[:, 0], rate_hz, RATE_HZ)
    soundfile.write(out, narrow, RATE_HZ, format="RAW", subtype="ULAW")
    return out.getvalue()


async def speak(socket: ClientConnection, words: bytes) -> None:
    """Sends the words, then silence for ever, as a line that stays open."""
    size, loop = round(RATE_HZ * PACKET_S), asyncio.get_running_loop()
    first, began = 0, loop.time()
    while True:
        packet = words[first : first + size].ljust(size, SILENCE)
        audio = base64.b64encode(packet).decode()
        await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
        first += size
        await asyncio.sleep(began + first / RATE_HZ - loop.time())


async def main(url: str, question: str, answer: str) -> None:
    heard = bytearray()
    async with connect(url, max_size=None) as socket:
        session = {"type": "realtime", "audio": {"input": PHONE, "output": PHONE}}
        await socket.send(json.dumps({"type": "session.update", "session": session}))
        speaking = asyncio.create_task(speak(socket, ulaw(question)))
        async for message in socket:
            event = json.loads(message)
            if event["type"] == "response.output_audio.delta":
                heard += base64.b64decode(event["delta"])
            elif event["type"] == "error":
                raise SystemExit(f"error: {event['error']['message']}")
            elif event["type"] == "response.done":
                break
        speaking.cancel()
    with soundfile.SoundFile(answer, "w", RATE_HZ, 1, "ULAW", format="WAV") as out:
        raw = {"format": "RAW", "subtype": "ULAW", "samplerate": RATE_HZ, "channels": 1}
        out.write(soundfile.read(io.BytesIO(heard), **raw)[0])
    print(f"{answer}: {len(heard) / RATE_HZ:.1f} s")


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("question")
parser.add_argument("answer")
parser.add_argument("--url", default="ws://127.0.0.1:8000/v1/realtime")
given = parser.parse_args()
asyncio.run(main(given.url, given.question, given.answer))
