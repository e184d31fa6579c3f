"""A front process: `python -m mosslive.server.front.process SETTINGS`, with JSON as its argument.

Connections come as file descriptors over the control socket that the core has passed on. Its end of
file means that the core is gone, so the front exits at once. Signals are for the core: a front
ignores them. The event loop runs on the main thread. Does not know the application.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
import zmq

from mosslive.server import logs
from mosslive.server.front.forwarder import Forwarder
from mosslive.server.front.link import Link
from mosslive.server.front.messages import Kind, Packet
from mosslive.server.front.speech_input import warm
from mosslive.server.http_config import HttpSettings, http_config

_BEAT_TICKS = 10  # of 0.1 s: the core kills a front that is silent


@dataclass(frozen=True)
class FrontSettings:
    name: str
    folder: str  # contains the core's ZeroMQ socket
    control_fd: int
    log: logs.LogSettings
    http: HttpSettings

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> "FrontSettings":
        raw = json.loads(text)
        http = raw["http"]
        for name in ("ssl_certfile", "ssl_keyfile"):
            http[name] = Path(http[name]) if http[name] else None
        log = logs.LogSettings(**raw["log"])
        return cls(**raw | {"http": HttpSettings(**http), "log": log})


def core_address(folder: str) -> str:
    return f"ipc://{folder}/core"


class FrontServer(uvicorn.Server):
    def __init__(self, settings: FrontSettings) -> None:
        self._settings = settings
        self._forwarder = Forwarder(lambda packet: self._link.send(packet))
        super().__init__(http_config(self._forwarder, settings.http))
        self.config.lifespan = "off"
        self._control = socket.socket(fileno=settings.control_fd)
        self._control.setblocking(False)
        self._handshakes: set[asyncio.Task[Any]] = set()
        self._accepted = 0  # connections
        self._closed = 0  # of these, as the core knows

    async def startup(self, sockets: object = None) -> None:
        await super().startup(sockets=[])
        context = zmq.Context()
        dealer = context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.ROUTING_ID, self._settings.name.encode())
        dealer.setsockopt(zmq.SNDHWM, 0)
        dealer.setsockopt(zmq.RCVHWM, 0)
        dealer.connect(core_address(self._settings.folder))
        self._link = Link(dealer, self._take)
        warm()
        self._link.send([Kind.HELLO])
        asyncio.get_running_loop().add_reader(self._control, self._accept)

    async def shutdown(self, sockets: object = None) -> None:
        asyncio.get_running_loop().remove_reader(self._control)
        await super().shutdown()
        self._link.close()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The core decides what a signal means."""

    async def on_tick(self, counter: int) -> bool:
        held = len(self.server_state.connections) + len(self._handshakes)
        if self._accepted - held != self._closed or counter % _BEAT_TICKS == 0:
            self._closed = self._accepted - held
            self._link.send([Kind.CLOSED, self._closed])
        return await super().on_tick(counter)

    def _take(self, peer: bytes, packet: Packet) -> None:
        if packet[0] == Kind.STOP:
            self.should_exit = True
        else:
            self._forwarder.take(packet)

    def _accept(self) -> None:
        try:
            data, passed, _, _ = socket.recv_fds(self._control, 1, 1)
        except BlockingIOError:
            return
        if not data:
            shutil.rmtree(self._settings.folder, ignore_errors=True)
            os._exit(0)
        for fd in passed:
            self._accepted += 1
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._connect(socket.socket(fileno=fd)))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _connect(self, client: socket.socket) -> None:
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(self._protocol, client, ssl=self.config.ssl)
        except OSError:  # the client left, or does not speak TLS
            client.close()

    def _protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state={}
        )
        return made


def main() -> None:
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    settings = FrontSettings.from_json(sys.argv[1])
    logs.set_up(settings.log)
    FrontServer(settings).run()


if __name__ == "__main__":
    main()
