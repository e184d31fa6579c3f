"""A ZeroMQ socket on the event loop: messages of one turn of the loop travel together.

The plain socket and its file descriptor are used, not `zmq.asyncio`: that makes a future for each
message, which costs more than the message. Sending never blocks; `Window` bounds what is on its
way. A message that cannot be handled is logged, and does not harm those after it. Runs on the event
loop. Does not know what messages mean.
"""

import asyncio
import logging
from collections.abc import Callable

import zmq

from mosslive.server.front.messages import Packet, pack, unpack

_AT_ONCE = 64  # messages read before other tasks run

OnPacket = Callable[[bytes, Packet], None]
_log = logging.getLogger("mosslive.fronts")


class Link:
    """One end: a ROUTER in the core, a DEALER in a front."""

    def __init__(
        self,
        socket: "zmq.Socket[bytes]",
        on_packet: OnPacket,
        on_bad: Callable[[bytes], None] = lambda peer: None,
    ) -> None:
        """`on_packet`: called with the peer's name (empty in a front) and the message. `on_bad`:
        with the name of a peer whose message cannot be handled."""
        self._socket, self._on_packet, self._on_bad = socket, on_packet, on_bad
        self._named = socket.type == zmq.ROUTER
        self._loop = asyncio.get_running_loop()
        self._outbox: dict[bytes, list[bytes]] = {}
        self._reading: asyncio.Handle | None = None
        self._closed = False
        self._fd = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._read)
        self._read_soon()  # the descriptor reports changes only, and one may have passed

    def send(self, packet: Packet, peer: bytes = b"") -> None:
        """Sends soon, in order. Messages to a peer that is gone are dropped."""
        if self._closed:
            return
        data = pack(packet)  # here, so that the sender gets the error of what cannot be packed
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.setdefault(peer, []).append(data)

    def close(self) -> None:
        """Sends what waits, and closes the socket. Idempotent."""
        if self._closed:
            return
        self._flush()
        self._closed = True
        self._loop.remove_reader(self._fd)
        self._socket.close(linger=0 if self._named else 500)

    def _flush(self) -> None:
        if self._closed:
            return
        outbox, self._outbox = self._outbox, {}
        for peer, frames in outbox.items():
            self._socket.send_multipart([peer, *frames][not self._named :], zmq.NOBLOCK)
        if outbox:
            self._read_soon()  # sending may consume the change that the descriptor reports

    def _read_soon(self) -> None:
        if self._reading is None:
            self._reading = self._loop.call_soon(self._read)

    def _read(self) -> None:
        if self._reading:
            self._reading.cancel()
            self._reading = None
        for _ in range(_AT_ONCE):
            if self._closed:
                return
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            peer = frames.pop(0) if self._named else b""
            for data in frames:
                self._take(peer, data)
        self._read_soon()

    def _take(self, peer: bytes, data: bytes) -> None:
        try:
            self._on_packet(peer, unpack(data))
        except Exception as error:
            extra = {"peer": peer.decode(errors="replace")}
            _log.error("a message cannot be handled", exc_info=error, extra=extra)
            self._on_bad(peer)
