"""A running server of `launcher.py`, its log, and clients for tests that need no event loop.

One server serves many tests: `broken` puts faults in force and takes them away again.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from websockets.sync.client import ClientConnection, connect

from tests.faults.rules import Rule, write_rules
from tests.server.bench import message
from tests.server.rig import MANUAL, RATE, WAIT_S, Event, pcm, spoken

ROOT = Path(__file__).parents[2]
GOOD = ("completed", "incomplete")  # incomplete: as long as a reply may be


class Session:
    """A client of the Realtime protocol."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[Event] = []

    def send(self, kind: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"type": kind} | fields))

    def until(self, *kinds: str) -> Event:
        """The next event of one of these types."""
        end = time.monotonic() + WAIT_S
        while True:
            event: Event = json.loads(self.socket.recv(end - time.monotonic()))
            self.events.append(event)
            if event["type"] in kinds:
                return event

    def say(self, wave: NDArray[np.float32]) -> None:
        for first in range(0, len(wave), RATE // 10):
            self.send("input_audio_buffer.append", audio=pcm(wave[first : first + RATE // 10]))

    def begin(self, text: str = "hello") -> None:
        """Asks for a spoken reply to a text."""
        self.send("conversation.item.create", item=message(text))
        self.send("response.create")

    def outcome(self) -> Event:
        """Of the response that was asked for; or the error that came instead."""
        event = self.until("response.done", "error")
        found: Event = event.get("response") or event["error"]
        return found

    def ask(self, text: str = "hello") -> Event:
        self.begin(text)
        return self.outcome()

    def begin_aloud(self, seconds: float = 0.4) -> None:
        self.say(spoken(seconds))
        self.send("input_audio_buffer.commit")
        self.send("response.create")

    def ask_aloud(self) -> Event:
        self.begin_aloud()
        return self.outcome()

    def works(self) -> bool:
        return self.ask()["status"] in GOOD


class Server:
    def __init__(self, rules: Path, **settings: Any) -> None:
        """Starts a server; `ready` waits for it."""
        write_rules(rules)
        self.rules = rules
        self.log: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self.port = 0
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.launcher", str(rules), json.dumps(settings)],
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if line.startswith("{"):
                self.log.append(json.loads(line))

    def ready(self) -> "Server":
        self.until(lambda: bool(self.logged("ready")) or self.process.poll() is not None)
        assert self.process.poll() is None, self.lines[-5:]
        self.port = self.logged("listening")[0]["port"]
        return self

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reading.join()

    @contextmanager
    def broken(self, *rules: Rule) -> Iterator[None]:
        """These faults are in force inside; calls are counted from here."""
        write_rules(self.rules, *rules)
        try:
            yield
        finally:
            write_rules(self.rules)

    @contextmanager
    def session(self, manual: bool = True) -> Iterator[Session]:
        """`manual`: without turn detection."""
        url = f"ws://127.0.0.1:{self.port}/v1/realtime?model=test"
        with connect(url, max_size=None) as socket:
            client = Session(socket)
            client.until("conversation.created")
            if manual:
                client.send("session.update", session=MANUAL)
                client.until("session.updated")
            yield client

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=WAIT_S)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return httpx.post(f"http://127.0.0.1:{self.port}{path}", timeout=WAIT_S, **options)

    def delete(self, path: str) -> httpx.Response:
        return httpx.delete(f"http://127.0.0.1:{self.port}{path}", timeout=WAIT_S)

    def speak(self, text: str = "hello") -> httpx.Response:
        asked = {"input": text, "response_format": "pcm", "voice": "default"}
        return self.post("/v1/audio/speech", json=asked)

    def metric(self, name: str) -> float:
        """Summed over its labels."""
        lines = self.get("/metrics").text.splitlines()
        found = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)

    def logged(self, text: str) -> list[dict[str, Any]]:
        return [line for line in self.log if text in line["message"]]

    def until(self, done: Callable[[], bool], most_s: float = WAIT_S) -> None:
        end = time.monotonic() + most_s
        while not done():
            assert time.monotonic() < end, self.lines[-5:]
            time.sleep(0.01)
