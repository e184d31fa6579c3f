"""One live session: client events in, server events out, a conversation between them.

Transport-neutral: whoever owns it calls `handle` for each client event, one after the other, and is
given server events through `send`. Handlers are in the files of the event families; here is what
they share. Invariants: at most one response writes to the conversation at a time; a handler sees
all events of the conversation that its call brings about (`catch_up`) and never waits for one.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from mosslive.codec.voice import Voice
from mosslive.errors import MossliveError
from mosslive.server.api_errors import ApiError, Event, as_api_error, error_event, new_id
from mosslive.server.backend import Backend
from mosslive.server.logs import Named
from mosslive.server.metrics import Metrics
from mosslive.server.realtime import beta_events, talk_config
from mosslive.server.realtime.config import Offer, SessionConfig, first_config, merged
from mosslive.server.realtime.history_edits import Edit
from mosslive.server.realtime.idle_timer import IdleTimer
from mosslive.server.realtime.input_buffer import InputBuffer
from mosslive.server.realtime.items import Item, Items
from mosslive.server.realtime.response_output import Place, ResponseEvents
from mosslive.talk import Talk
from mosslive.talk.events import Event as TalkEvent

Handler = Callable[["RealtimeSession", Event], Awaitable[None]]

_APPEND = "input_audio_buffer.append"


@dataclass(frozen=True)
class Client:
    """Who is at the other end."""

    owner: str  # of uploaded voices and limits: the key's name
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
        expires_at: int = 0,
    ) -> None:
        """`lead_s`: how far ahead of the ear sound is handed out, where this side plays it; None:
        the client plays, and truncates what it did not. Raises `EngineFull`."""
        self.backend, self.client, self.metrics = backend, client, metrics
        self.id, self.conversation_id = new_id("sess"), new_id("conv")
        self.items = Items(backend.settings.max_sound_s)
        self.active: ResponseEvents | None = None  # the response that writes to the conversation
        self.active_turn = 0  # the number of its reply
        self.out_of_band: dict[str, asyncio.Task[None]] = {}  # out-of-band responses, by id
        self.expected_turn = 0  # whose reply is on its way
        self.cancelled_by_client = False  # what interrupts a reply next
        self.unheard = 0  # items with sound that the codec has not come to yet
        self.detached = False  # sound is kept here, and told to the conversation when committed
        self.over = asyncio.Event()  # the conversation cannot go on
        self.spoke = False  # sound was produced: the voice stays
        named = {"session": self.id, "key": client.owner}
        self.log = Named(logging.getLogger("mosslive.session"), named)
        self.on_event: Callable[[TalkEvent], None] = lambda event: None  # of the conversation
        self._send, self._handlers, self._lead_s = send, handlers, lead_s
        self._expires_at = expires_at
        self._edits: deque[Edit] = deque()
        self._own_numbers = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._progress = asyncio.Event()
        self._closed = False
        self.config = self._first_config()
        self.idle = IdleTimer()
        self.idle.limit(self.config.turn_detection)
        self.buffer = InputBuffer(self.config.input_format, backend.settings.max_turn_s + 10)
        # The conversation listens by turns unless told otherwise, so an ear is there from the
        # beginning; `change` takes it away.
        self.talk: Talk = backend.talk(
            talk_config.talk_settings(backend, self.config, lead_s), self.voice()
        )
        self.talk.on_reply_over(self._reply_over)

    # The owner's side.

    def open(self) -> None:
        """The first words."""
        self.send({"type": "session.created", "session": self.document()})
        conversation = {"id": self.conversation_id, "object": "realtime.conversation"}
        self.send({"type": "conversation.created", "conversation": conversation})

    async def handle(self, event: Any) -> None:
        """One client event, whatever it is. Only our own bugs raise."""
        event_id = event.get("event_id") if isinstance(event, dict) else None
        try:
            if not isinstance(event, dict) or not isinstance(event.get("type"), str):
                raise ApiError("an event is an object with a type", "invalid_event", "type")
            handler = self._handlers.get(event["type"])
            if handler is None:
                known = ", ".join(self._handlers)
                name = event["type"][:80]
                raise ApiError(f"type is {name!r}; allowed: {known}", "invalid_value", "type")
            if self.client.beta:
                event = beta_events.from_beta(event)
            if event["type"] != _APPEND:  # sound is heard on another thread
                self.catch_up()
            await handler(self, event)
        except MossliveError as error:
            self.send_error(as_api_error(error), event_id)
        self.take_events()

    async def close(self) -> None:
        """Ends everything and gives all memory back. Again is fine."""
        if self._closed:
            return
        self._closed = True
        self.idle.stop()
        self._progress.set()
        tasks = self._tasks | set(self.out_of_band.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.talk.close()

    # What handlers use.

    def send(self, event: Event) -> None:
        if self._closed:
            return
        self.idle.saw(event)
        told = beta_events.to_beta(event) if self.client.beta else event
        if told is not None:
            self._send({"event_id": new_id("event")} | told)

    def send_error(self, api_error: ApiError, event_id: object = None) -> None:
        self.metrics.refused(api_error.code or "other")
        self.log.info("refused", extra={"code": api_error.code})
        self.send(error_event(api_error, event_id))

    def document(self) -> dict[str, Any]:
        return {"id": self.id, "expires_at": self._expires_at} | self.config.document()

    @property
    def offer(self) -> Offer:
        return talk_config.offer(self.backend, self.client.owner)

    def voice(self, config: SessionConfig | None = None) -> Voice | None:
        stored = self.backend.voices.find((config or self.config).voice, self.client.owner)
        return stored.voice if stored else None

    def apply(self, config: SessionConfig, system: Edit | None) -> None:
        """A new configuration, as a whole. `system`: its system turn, where that changes."""
        self.config = config
        self.buffer.use(config.input_format)
        self.idle.limit(config.turn_detection)
        self.retune(config)
        if system:
            self.edit(system)

    def retune(self, config: SessionConfig) -> None:
        """The conversation goes by this configuration from the next turn and reply on."""
        settings = talk_config.talk_settings(self.backend, config, self._lead_s)
        self.talk.change(settings, self.voice(config))

    def catch_up(self) -> None:
        """All sound so far is heard, and all that the conversation has to say of it is told."""
        if not self._closed:
            self.talk.catch_up()
            self.take_events()

    def take_events(self) -> None:
        """All events of the conversation that wait are told now, in order."""
        while not self._closed and (event := self.talk.take_event()) is not None:
            self.on_event(event)
        self.run_edits()

    def edit(self, change: Edit) -> None:
        """Soon: while a reply is being given, what was said cannot be changed."""
        self._edits.append(change)
        self.run_edits()

    def run_edits(self) -> None:
        if not self._edits or self._closed:
            return
        self.talk.catch_up()  # a turn that ends here may begin a reply
        while self._edits and not self.talk.replying:
            self.talk.edit(self._edits.popleft())

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """A task that ends with the session at the latest."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._told)
        return task

    def own_number(self) -> int:
        """For a turn the conversation has not numbered; its own are above 0."""
        self._own_numbers -= 1
        return self._own_numbers

    def add_item(self, item: Item, place: int | None = None) -> None:
        """A finished item joins the conversation, and the client is told."""
        previous = self.items.add(item, place)
        for name in ("conversation.item.added", "conversation.item.done"):
            self.send({"type": name, "item": item.document(), "previous_item_id": previous})
        self.items.forget_sound()

    def begin_response(
        self, turn: int, config: SessionConfig, metadata: dict[str, str] | None = None
    ) -> ResponseEvents:
        place = Place(self.conversation_id, self.items.add)
        response = ResponseEvents(self.send, config, self.backend.rate_hz, place, metadata)
        self.active, self.active_turn = response, turn
        response.begin()
        return response

    @property
    def ending(self) -> bool:
        """While the last of a reply is played whose response is done."""
        told = self.active is None and self.expected_turn <= self.active_turn
        return told and self.talk.replying and not self._closed

    @property
    def busy(self) -> bool:
        """While a response is made or played."""
        return bool(self.active or self.out_of_band or self.talk.replying)

    def progressed(self) -> None:
        """An event was told, or a reply is over: `until` looks again."""
        self._progress.set()
        self._progress.clear()

    async def until(self, done: Callable[[], bool]) -> None:
        """Until it is so, or the session is closed. Only for what comes about while no event of the
        client is handled: the end of a response, the end of playing."""
        while not done() and not self._closed:
            await self._progress.wait()

    def _reply_over(self) -> None:
        if not self._closed:
            self.run_edits()
            self.progressed()

    def _told(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()):
            self.log.error("a task of the session failed", exc_info=error)

    def _first_config(self) -> SessionConfig:
        config = first_config(self.offer, self.client.model or self.backend.settings.name)
        return merged(config, self.client.session, self.offer) if self.client.session else config
