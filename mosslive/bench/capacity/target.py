"""What a capacity benchmark calls: a server elsewhere, one of its own, or one in this process.

A server in this process is shared by callers over sockets and callers of `Talk`; the event loop and
the Python lock are then shared too. Runs on the event loop of the benchmark; models load on a
thread.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from mosslive.bench.subject import Subject
from mosslive.bench.talk.parts import PartsSettings, make_parts
from mosslive.bench.talk.random_codec import CHUNK_CODES
from mosslive.config import Sampling
from mosslive.errors import MossliveError
from mosslive.server.backend import Backend
from mosslive.server.run import make_server
from mosslive.server.settings import ServerSettings
from mosslive.server.voice_store import VoiceStore
from mosslive.talk import CodecService, Talk, TalkSettings

_LONG_REPLY_S = 120.0  # random weights end a reply at any moment, unless it must be this long
_ROWS_EACH = 2048  # of a conversation, more than calls of eight turns need
_SPARE_REQUESTS = 1
_FEW, _POOL_SHARE, _PROMPT_S = 16, 0.25, 30.0


@dataclass(frozen=True)
class Target:
    url: str
    backend: Backend | None = None  # of a server in this process

    def talk_settings(self) -> TalkSettings:
        backend, lead_s = self._local, TalkSettings().lead_s
        instructions, sampling = backend.instructions(), backend.sampling()
        return backend.talk_settings("speech", instructions, sampling, lead_s=lead_s)

    def make_talk(self, settings: TalkSettings) -> Talk:
        voice = self._local.voices.default
        if voice is None:
            raise MossliveError("the model has no voice, so it cannot reply in speech")
        return self._local.talk(settings, voice.voice)

    @property
    def _local(self) -> Backend:
        assert self.backend is not None, "only a server in this process can be called directly"
        return self.backend


@asynccontextmanager
async def local_folder(model: Path, device: str, sessions: int) -> AsyncIterator[Target]:
    """Serves a model folder in this process."""
    settings = ServerSettings(model=model, device=device, port=0, max_sessions=sessions)
    async with _local_server(settings, None) as target:
        yield target


@asynccontextmanager
async def local_random(
    subject: Subject,
    precision: str,
    codec_precision: str | None,
    sessions: int,
    reply_s: float,
    report_progress: Callable[[str], None],
) -> AsyncIterator[Target]:
    """Serves random weights in this process. `reply_s`: the longest reply."""
    settings = ServerSettings(
        port=0,
        device=subject.device,
        max_sessions=sessions,
        max_requests=_SPARE_REQUESTS,
        min_reply_s=_LONG_REPLY_S,
        max_reply_s=reply_s,
        context_rows=_ROWS_EACH - 2 * 128,  # the rest is the engine's headroom
    )
    # A few callers may all be answered at once. Of many, a part is: the others speak or listen to
    # a reply that is rendered already, and replies are at all points of their length.
    whole_s = (reply_s + 2) * min(sessions, _FEW)
    pool_s = max(whole_s, _POOL_SHARE * reply_s * sessions) + _PROMPT_S
    parts = PartsSettings(
        subject,
        sessions,
        _ROWS_EACH,
        pool_s,
        precision,
        codec_precision,
        spare=_SPARE_REQUESTS,
    )
    engine, codec = make_parts(parts, report_progress)

    async def load() -> Backend:
        voice, worker = codec.random_voice(), CodecService(codec, priority=engine.priority)
        await worker.warm(voice, CHUNK_CODES, sessions, "cached")
        report_progress("the codec warmed")
        store = VoiceStore(voice, [], 0)
        return Backend(engine, worker, store, settings, default_sampling=Sampling.driver())

    async with _local_server(settings, load) as target:
        yield target


@asynccontextmanager
async def _local_server(
    settings: ServerSettings, load: Callable[[], Awaitable[Backend]] | None
) -> AsyncIterator[Target]:
    server, server_state = make_server(settings, load)
    serving = asyncio.get_running_loop().create_task(server._serve())
    try:
        while server_state.state != "ready" and not serving.done():
            await asyncio.sleep(0.05)
        if server.failure or serving.done():
            raise MossliveError(f"the server did not start: {server.failure}")
        backend = server_state.backend
        yield Target(f"ws://127.0.0.1:{server.port}/v1/realtime", backend)
    finally:
        server.should_exit = True
        await serving
