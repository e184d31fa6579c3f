"""The events of one response, from `response.created` to `response.done`, in order.

Whatever happens to a reply, its events follow one grammar:

    created (item_added conversation_added part_added delta* audio_done transcript_done part_done
             item_done conversation_done)? done

The middle begins with the first output of the model. A written reply has text events in place of
audio and transcript events; a response outside the conversation has no conversation events. Used on
the event loop of the session only. Does not know where replies come from.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from mosslive.server.api_errors import ApiError, Event, new_id
from mosslive.server.realtime.config import SessionConfig
from mosslive.server.realtime.formats import Encoder, Samples
from mosslive.server.realtime.items import Item
from mosslive.server.realtime.server_events import conversation_item
from mosslive.server.realtime.server_events import response as events
from mosslive.server.realtime.server_events.response import Status

# By the stop reason of `ReplyDone`.
_STOPS: dict[str, tuple[Status, str | None]] = {
    "stop": ("completed", None),
    "length": ("incomplete", "max_output_tokens"),
    "context": ("incomplete", "max_output_tokens"),
    "pages": ("incomplete", "max_output_tokens"),
}


@dataclass(frozen=True)
class Place:
    """The conversation that a response writes to. Out-of-band responses have no id here."""

    conversation_id: str | None
    add: Callable[[Item], str | None]  # returns the id of the previous item


@dataclass
class ResponseEvents:
    send: Callable[[Event], None]
    config: SessionConfig  # in force for this response
    rate_hz: int  # of the sound that `audio` takes
    place: Place
    metadata: dict[str, str] | None = None
    id: str = field(default_factory=lambda: new_id("resp"))
    item: Item | None = None
    over: bool = False  # response.done is sent
    _encoder: Encoder | None = None
    _has_audio: bool = False
    _text: str = ""
    _previous: str | None = None

    def begin(self) -> None:
        self.send(events.created(self._object("in_progress")))

    def open_item(self) -> None:
        """Adds the output item when the model begins. Idempotent."""
        if self.item or self.over:
            return
        item = self.item = Item(role="assistant", status="in_progress", rate_hz=self.rate_hz)
        self._encoder = Encoder(self.config.output_format, self.rate_hz)
        self.send(events.output_item_added(self.id, item.document()))
        if self.place.conversation_id:
            self._previous = self.place.add(item)
            self.send(conversation_item.added(item.document(), self._previous))
        item.content = [self._content()]
        self.send(events.content_part_added(self.id, item.id, self._part()))

    def audio(self, pcm: Samples) -> None:
        if self.over or not self.item or not self._encoder:
            return
        self.item.add_sound(pcm)
        self._has_audio = True
        self._send_audio(self.item, self._encoder.push(pcm))

    def text(self, delta: str) -> None:
        """More of a written reply, or of the transcript of a spoken one."""
        if self.over or not self.item or not delta:
            return
        self._text += delta
        if self._spoken:
            event = events.output_audio_transcript_delta(self.id, self.item.id, delta)
        else:
            event = events.output_text_delta(self.id, self.item.id, delta)
        self.send(event)

    def end(self, stop: str, usage: dict[str, Any] | None) -> None:
        """The model ended the reply. `stop`: the stop reason of `ReplyDone`."""
        self.finish(*_STOPS.get(stop, ("completed", None)), usage=usage)

    def fail(self, api_error: ApiError) -> None:
        self.finish("failed", None, error=api_error)

    def finish(
        self,
        status: Status,
        reason: str | None,
        usage: dict[str, Any] | None = None,
        error: ApiError | None = None,
    ) -> None:
        """Sends all events that are left. Idempotent."""
        if self.over:
            return
        if self.item:
            self._close_item(self.item, "completed" if status == "completed" else "incomplete")
        self.over = True
        details = events.status_details(status, reason, error)
        self.send(events.done(self._object(status, details, usage)))

    def _object(
        self,
        status: Status,
        details: dict[str, Any] | None = None,
        usage: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        output = [self.item.document()] if self.item else []
        place = self.place.conversation_id
        return events.response_object(
            self.id, status, self.config, output, place, self.metadata, details, usage
        )

    @property
    def _spoken(self) -> bool:
        return self.config.modality == "audio"

    def _close_item(self, item: Item, status: Literal["completed", "incomplete"]) -> None:
        if self._spoken:
            if self._encoder and self._has_audio:
                self._send_audio(item, self._encoder.finish())
            self.send(events.output_audio_done(self.id, item.id))
            self.send(events.output_audio_transcript_done(self.id, item.id, self._text))
        else:
            self.send(events.output_text_done(self.id, item.id, self._text))
        item.content = [self._content()]
        item.status = status
        self.send(events.content_part_done(self.id, item.id, self._part()))
        self.send(events.output_item_done(self.id, item.document()))
        if self.place.conversation_id:
            self.send(conversation_item.done(item.document(), self._previous))

    def _content(self) -> dict[str, Any]:
        if self._spoken:
            # The transcript of a truncated item is unknown.
            known = not (self.item and self.item.truncated)
            return {"type": "output_audio", "transcript": self._text if known else ""}
        return {"type": "output_text", "text": self._text}

    def _part(self) -> dict[str, Any]:
        # Parts are `audio` and `text`; contents of items are `output_audio` and `output_text`.
        if self._spoken:
            return {"type": "audio", "transcript": self._text}
        return {"type": "text", "text": self._text}

    def _send_audio(self, item: Item, data: bytes) -> None:
        if data:
            self.send(events.output_audio_delta(self.id, item.id, data))
