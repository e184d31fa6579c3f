"""One live session: client events in, server events out, a conversation (`Talk`) between them.

Knows no transport. A transport calls `handle` for each client event, one after the other, and gets
server events through `send`. The handlers are in `client_events`; this file has what they share.
Everything runs on one event loop; `Talk` uses threads of its own. Invariants: at most one response
writes to the conversation at a time; before a handler runs, all events of the conversation so far
are sent (`catch_up`), and no handler waits for an event that a later call causes.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from mosslive.codec.voice import Voice
from mosslive.errors import MossliveError
from mosslive.server.api_errors import ApiError, Event, as_api_error, new_id
from mosslive.server.backend import Backend
from mosslive.server.gaps import GapReports
from mosslive.server.logs import Named
from mosslive.server.metrics import Metrics
from mosslive.server.realtime import beta_events, talk_config
from mosslive.server.realtime.config import Offer, SessionConfig, first_config, merged
from mosslive.server.realtime.history_edits import Edit
from mosslive.server.realtime.idle_timer import IdleTimer
from mosslive.server.realtime.input_buffer import InputBuffer
from mosslive.server.realtime.input_state import InputState
from mosslive.server.realtime.items import Item, Items
from mosslive.server.realtime.response_output import Place, ResponseEvents
from mosslive.server.realtime.response_state import Phase, ResponseState
from mosslive.server.realtime.server_events import conversation_item, error
from mosslive.server.realtime.server_events import session as session_events
from mosslive.talk import Talk
from mosslive.talk.events import Event as TalkEvent

Handler = Callable[["RealtimeSession", Event], Awaitable[None]]

_APPEND = "input_audio_buffer.append"


@dataclass(frozen=True)
class Client:
    """The client of a session."""

    owner: str  # the key's name; uploaded voices and limits belong to it
    beta: bool = False
    model: str | None = None
    session: dict[str, Any] | None = None  # configuration that came with an ephemeral key


class RealtimeSession:
    def __init__(
        self,
        backend: Backend,
        client: Client,
        send: Callable[[Event], None],
        handlers: dict[str, Handler],
        metrics: Metrics,
        *,
        lead_s: float | None = None,
        gap_reports: GapReports | None = None,
        expires_at: int = 0,
    ) -> None:
        """`lead_s`: how far ahead of playback sound is sent, if the server plays it; None: the
        client plays, and truncates what it did not play. `gap_reports`: of the transport; None: no
        one plays. Raises `EngineFull`."""
        self.backend, self.client, self.metrics = backend, client, metrics
        self.id, self.conversation_id = new_id("sess"), new_id("conv")
        self.items = Items(backend.settings.max_sound_s)
        self.responses = ResponseState(lambda: self.talk.replying)
        self.gap_reports = gap_reports
        self.over = asyncio.Event()  # the conversation cannot go on
        self.transcribing = asyncio.Lock()  # one at a time: each needs pages beyond our share
        self.in_order = asyncio.Lock()  # transcripts of the user's turns
        self.transcripts = 0  # of the user's turns, waiting or being made
        self.waiting_s = 0.0  # of sound that is kept for them
        named = {"session": self.id, "key": client.owner}
        self.log = Named(logging.getLogger("mosslive.session"), named)
        self.on_event: Callable[[TalkEvent], None] = lambda event: None  # set by the forwarder
        self._send, self._handlers, self._lead_s = send, handlers, lead_s
        self._expires_at = expires_at
        self._edits: deque[Edit] = deque()
        self._own_turns = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._progress = asyncio.Event()
        self._closed = False
        self.config = self._expected_config = self._first_config()
        self.idle = IdleTimer()
        self.idle.limit(self.config.turn_detection)
        buffer = InputBuffer(self.config.input_format, backend.settings.max_turn_s + 10)
        self.input = InputState(buffer)
        # `Talk` detects turns unless the settings say otherwise, so it has a voice activity
        # detector from the beginning; `Talk.change` removes it.
        self.talk: Talk = backend.talk(
            talk_config.talk_settings(backend, self.config, lead_s), self.voice()
        )
        self.talk.on_reply_over(self._reply_over)

    # For the transport.

    def open(self) -> None:
        """Sends the first events."""
        self.send(session_events.created(self.document()))
        self.send(session_events.conversation_created(self.conversation_id))

    async def handle(self, event: Any) -> None:
        """Handles one client event, valid or not. An event that fails, for want of memory or by a
        bug of ours, gets an error; the session goes on."""
        event_id = event.get("event_id") if isinstance(event, dict) else None
        try:
            if not isinstance(event, dict) or not isinstance(event.get("type"), str):
                raise ApiError("the event is not an object with a type", "invalid_event", "type")
            if self.client.beta:
                event = beta_events.from_beta(event)
            handler = self._handlers.get(event["type"])
            if handler is None:
                known = ", ".join(self._handlers)
                name = event["type"][:80]
                raise ApiError(f"type is {name!r}; allowed: {known}", "invalid_value", "type")
            if event["type"] != _APPEND:  # appended sound is processed on another thread
                self.catch_up()
            await handler(self, event)
        except Exception as failure:
            if not isinstance(failure, MossliveError):
                self.log.error("a client event failed", exc_info=failure)
            self.send_error(as_api_error(failure), event_id)
        self.take_events()

    async def close(self) -> None:
        """Cancels all tasks and frees all memory. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.idle.stop()
        self._progress.set()
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.talk.close()

    # For handlers: events and configuration.

    def send(self, event: Event) -> None:
        """Sends an event in GA names. No effect after `close`."""
        if self._closed:
            return
        self.idle.saw(event)
        translated = beta_events.to_beta(event) if self.client.beta else event
        if translated is not None:
            self._send({"event_id": new_id("event")} | translated)

    def send_error(self, api_error: ApiError, event_id: object = None) -> None:
        self.metrics.refused(api_error.code or "other")
        self.log.info("refused", extra={"code": api_error.code})
        self.send(error.error(api_error, event_id))

    def document(self) -> dict[str, Any]:
        return {"id": self.id, "expires_at": self._expires_at} | self.config.document()

    @property
    def offer(self) -> Offer:
        return talk_config.offer(self.backend, self.client.owner)

    def voice(self, config: SessionConfig | None = None) -> Voice | None:
        stored = self.backend.voices.find((config or self.config).voice, self.client.owner)
        return stored.voice if stored else None

    def apply(self, config: SessionConfig, system: Edit | None) -> None:
        """Replaces the configuration. `system`: the edit that replaces the system turn, if it
        changes."""
        self.config = config
        self.input.buffer.use(config.input_format)
        self.idle.limit(config.turn_detection)
        self.configure_talk(config)
        if system:
            self.edit(system)

    def configure_talk(self, config: SessionConfig) -> None:
        """Applies this configuration from the next turn and reply on."""
        settings = talk_config.talk_settings(self.backend, config, self._lead_s)
        self.talk.change(settings, self.voice(config))

    # For handlers: the conversation.

    def catch_up(self) -> None:
        """Processes all sound appended so far and sends the events it causes."""
        if not self._closed:
            self.talk.catch_up()
            self.take_events()

    def take_events(self) -> None:
        """Sends all waiting events of the conversation, in order."""
        while not self._closed and (event := self.talk.take_event()) is not None:
            self.on_event(event)
        self.apply_edits()

    def edit(self, change: Edit) -> None:
        """Edits the history as soon as `Talk` does not reply."""
        self._edits.append(change)
        self.apply_edits()

    def apply_edits(self) -> None:
        if not self._edits or self._closed:
            return
        self.talk.catch_up()  # a turn that ends in the sound so far may start a reply
        while self._edits and not self.talk.replying:
            self.talk.edit(self._edits.popleft())

    def own_turn(self) -> int:
        """A number below 0 for a turn of the history that `Talk` has not numbered."""
        self._own_turns -= 1
        return self._own_turns

    def add_item(self, item: Item, place: int | None = None) -> None:
        """Adds a complete item and sends its events."""
        previous = self.items.add(item, place)
        self.send(conversation_item.added(item.document(), previous))
        self.send(conversation_item.done(item.document(), previous))
        self.items.forget_sound()

    # For handlers: responses and tasks.

    def begin_response(
        self, turn: int, config: SessionConfig, metadata: dict[str, str] | None = None
    ) -> ResponseEvents:
        """Starts the response that sends the reply of `Talk` to this turn."""
        response = self.new_response(config, metadata)
        self.responses.begin(response, turn)
        response.begin()
        return response

    def expect_response(self, turn: int) -> None:
        """The user's turn is over and `Talk` prepares the reply, with the configuration of now."""
        self.responses.expect(turn)
        self._expected_config = self.config

    def begin_expected(self, turn: int) -> ResponseEvents:
        """Starts the response to a turn of the user with the configuration that its reply has: an
        update may have come between the end of the turn and the reply."""
        expected = turn == self.responses.expected_turn
        return self.begin_response(turn, self._expected_config if expected else self.config)

    def begin_one_shot(
        self, config: SessionConfig, metadata: dict[str, str] | None
    ) -> ResponseEvents:
        """Starts a response in the conversation whose reply has a context of its own."""
        response = self.new_response(config, metadata)
        self.responses.begin_one_shot(response)
        response.begin()
        return response

    def new_response(
        self, config: SessionConfig, metadata: dict[str, str] | None, *, out_of_band: bool = False
    ) -> ResponseEvents:
        place = Place(self.conversation_id, self.items.add)
        if out_of_band:
            place = Place(None, lambda item: None)
        return ResponseEvents(self.send, config, self.backend.rate_hz, place, metadata)

    @property
    def ending(self) -> bool:
        """Whether only the end of a reply is played whose response is done."""
        return self.responses.phase is Phase.ENDING

    @property
    def busy(self) -> bool:
        """Whether a response is made or played, or a transcript is made that is all a client of
        this session waits for."""
        transcribes = not self.config.replies and self.transcripts > 0
        return self.responses.phase is not Phase.NONE or self.responses.tasks > 0 or transcribes

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Starts a task that ends with the session at the latest."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._log_failure)
        return task

    def progressed(self) -> None:
        """Wakes `until` after an event is sent or a reply is over."""
        self._progress.set()
        self._progress.clear()

    async def until(self, done: Callable[[], bool]) -> None:
        """Waits until `done()`, or until the session is closed. Only for conditions that come true
        while no client event is handled: the end of a response, the end of playback."""
        while not done() and not self._closed:
            await self._progress.wait()

    def _reply_over(self) -> None:
        if not self._closed:
            self.apply_edits()
            self.progressed()

    def _log_failure(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (failure := task.exception()):
            self.log.error("a task of the session failed", exc_info=failure)

    def _first_config(self) -> SessionConfig:
        config = first_config(self.offer, self.client.model or self.backend.settings.name)
        return merged(config, self.client.session, self.offer) if self.client.session else config
