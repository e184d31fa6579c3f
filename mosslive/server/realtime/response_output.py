"""One response on the wire: the rungs from `response.created` to `response.done`, in order.

Whatever happens to a reply, its events follow one grammar:

    created (item_added conversation_added part_added delta* audio_done transcript_done part_done
             item_done conversation_done)? done

The middle is there as soon as the model begins. Knows nothing of where replies come from.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from mosslive.server.api_errors import ApiError, Event, new_id
from mosslive.server.realtime.config import SessionConfig
from mosslive.server.realtime.formats import Encoder, Samples
from mosslive.server.realtime.items import Item

Status = Literal["in_progress", "completed", "cancelled", "incomplete", "failed"]

_STOPS: dict[str, tuple[Status, str | None]] = {
    "stop": ("completed", None),
    "length": ("incomplete", "max_output_tokens"),
    "context": ("incomplete", "max_output_tokens"),
    "pages": ("incomplete", "max_output_tokens"),
}


@dataclass(frozen=True)
class Place:
    """How a response touches the conversation; an out-of-band one does not."""

    conversation_id: str | None
    add: Callable[[Item], str | None]  # returns the id of the item before it


@dataclass
class ResponseEvents:
    send: Callable[[Event], None]
    config: SessionConfig  # in force for this response
    rate_hz: int  # of the sound that comes
    place: Place
    metadata: dict[str, str] | None = None
    id: str = field(default_factory=lambda: new_id("resp"))
    item: Item | None = None
    over: bool = False
    _encoder: Encoder | None = None
    _sounded: bool = False
    _text: str = ""
    _previous: str | None = None

    def begin(self) -> None:
        self.send({"type": "response.created", "response": self.document("in_progress")})

    def open_item(self) -> None:
        """The model begins."""
        if self.item or self.over:
            return
        item = self.item = Item(role="assistant", status="in_progress", rate_hz=self.rate_hz)
        self._encoder = Encoder(self.config.output_format, self.rate_hz)
        self._send("response.output_item.added", item=item.document())
        if self.place.conversation_id:
            self._previous = self.place.add(item)
            self._send_item("conversation.item.added")
        item.content = [self._content()]
        self._send_part("response.content_part.added", part=self._part())

    def audio(self, pcm: Samples) -> None:
        if self.over or not self.item or not self._encoder:
            return
        self.item.hear(pcm)
        self._sounded = True
        self._audio_delta(self._encoder.push(pcm))

    def text(self, delta: str) -> None:
        """A written reply, or words the model writes while it speaks."""
        if self.over or not self.item or not delta:
            return
        self._text += delta
        name = "output_audio_transcript" if self._spoken else "output_text"
        self._send_part(f"response.{name}.delta", delta=delta)

    def end(self, stop: str, usage: dict[str, Any] | None) -> None:
        """The model ended by itself; `stop` says how."""
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
        """All the rungs that are left."""
        if self.over:
            return
        if self.item:
            self._close_item(self.item, "completed" if status == "completed" else "incomplete")
        self.over = True
        details: dict[str, Any] | None = None
        if status != "completed":
            details = {"type": status}
            details |= {"reason": reason} if reason else {}
            if error:
                details["error"] = {"type": error.kind, "code": error.code, "message": str(error)}
        done = self.document(status) | {"status_details": details, "usage": usage}
        self.send({"type": "response.done", "response": done})

    def document(self, status: Status) -> dict[str, Any]:
        config = self.config
        tokens: int | str = "inf" if config.max_tokens is None else config.max_tokens
        output = {"format": config.output_format.document(), "voice": config.voice}
        return {
            "id": self.id,
            "object": "realtime.response",
            "status": status,
            "status_details": None,
            "output": [self.item.document()] if self.item else [],
            "conversation_id": self.place.conversation_id,
            "output_modalities": [config.modality],
            "audio": {"output": output},
            "max_output_tokens": tokens,
            "metadata": self.metadata,
            "usage": None,
        }

    @property
    def _spoken(self) -> bool:
        return self.config.modality == "audio"

    def _close_item(self, item: Item, status: Literal["completed", "incomplete"]) -> None:
        if self._spoken:
            if self._encoder and self._sounded:
                self._audio_delta(self._encoder.finish())
            self._send_part("response.output_audio.done")
            self._send_part("response.output_audio_transcript.done", transcript=self._text)
        else:
            self._send_part("response.output_text.done", text=self._text)
        item.content = [self._content()]
        item.status = status
        self._send_part("response.content_part.done", part=self._part())
        self._send("response.output_item.done", item=item.document())
        if self.place.conversation_id:
            self._send_item("conversation.item.done")

    def _content(self) -> dict[str, Any]:
        if self._spoken:
            known = not (self.item and self.item.is_cut)
            return {"type": "output_audio", "transcript": self._text if known else ""}
        return {"type": "output_text", "text": self._text}

    def _part(self) -> dict[str, Any]:
        # Parts are `audio` and `text`; contents of items are `output_audio` and `output_text`.
        if self._spoken:
            return {"type": "audio", "transcript": self._text}
        return {"type": "text", "text": self._text}

    def _audio_delta(self, data: bytes) -> None:
        if data:
            self._send_part("response.output_audio.delta", delta=base64.b64encode(data).decode())

    def _send_item(self, name: str) -> None:
        assert self.item, "an item is there when it is told"
        self.send({"type": name, "item": self.item.document(), "previous_item_id": self._previous})

    def _send_part(self, name: str, **fields: Any) -> None:
        assert self.item, "an item is there when its parts are told"
        self._send(name, item_id=self.item.id, content_index=0, **fields)

    def _send(self, name: str, **fields: Any) -> None:
        self.send({"type": name, "response_id": self.id, "output_index": 0, **fields})
