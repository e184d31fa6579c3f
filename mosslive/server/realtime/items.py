"""The items of a conversation: what a client sees of its history.

Items are ordered and have ids. An item knows which turns of the history it stands for, and keeps
its sound for `conversation.item.retrieve`. Does not know how the model is prompted. Invariant: an
id belongs to one item at a time; clients change an item by deleting it and creating another with
the same id. Used on the event loop of the session; audio is encoded on another thread.
"""

import asyncio
import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from mosslive.server.api_errors import ApiError, new_id
from mosslive.server.realtime.formats import AudioFormat, Encoder, Samples

Status = Literal["in_progress", "completed", "incomplete"]


@dataclass(eq=False)
class Item:
    kind: str = "message"  # or function_call, function_call_output
    role: str | None = "user"
    content: list[dict[str, Any]] = field(default_factory=list)  # without audio
    id: str = field(default_factory=lambda: new_id("item"))
    status: Status = "completed"
    extra: dict[str, Any] = field(default_factory=dict)  # of function calls, as given
    turns: list[int] = field(default_factory=list)  # of the history; empty: not in the prompt
    sound: list[Samples] = field(default_factory=list)  # until `forget_sound`
    samples: int = 0  # of its sound, whether it is still kept or not
    rate_hz: int = 24_000
    truncated: bool = False

    def document(self) -> dict[str, Any]:
        base: dict[str, Any] = {
            "id": self.id,
            "object": "realtime.item",
            "type": self.kind,
            "status": self.status,
        }
        if self.kind != "message":
            return base | self.extra
        return base | {"role": self.role, "content": [dict(part) for part in self.content]}

    async def with_audio(self, form: AudioFormat) -> dict[str, Any]:
        """The document, with the sound in its audio part if it is still kept."""
        document, sound = self.document(), list(self.sound)
        for part in document.get("content", []):
            if part["type"] in ("input_audio", "output_audio") and sound:
                # Minutes of sound take a while to encode; other sessions run meanwhile.
                part["audio"] = await asyncio.to_thread(_base64, sound, self.rate_hz, form)
                break
        return document

    def add_sound(self, wave: Samples) -> None:
        """No effect once the item is truncated."""
        if not self.truncated:
            self.sound.append(wave)
            self.samples += len(wave)

    @property
    def text(self) -> str:
        """All texts and transcripts, for limits on their length."""
        parts = (part.get("text") or part.get("transcript") or "" for part in self.content)
        return "".join(parts)

    @property
    def spoken(self) -> bool:
        """Whether it is sound of the model."""
        return self.role == "assistant" and any(
            part["type"] == "output_audio" for part in self.content
        )

    @property
    def sound_ms(self) -> int:
        return self.samples * 1000 // self.rate_hz

    def truncate(self, end_ms: int) -> None:
        """Keeps the sound before `end_ms`. Clears the transcript: which words of it are kept is
        unknown."""
        self.truncated = True
        end = end_ms * self.rate_hz // 1000
        self.samples = min(self.samples, end)
        if self.sound:
            self.sound = [np.concatenate(self.sound)[:end]]
        for part in self.content:
            if part["type"] == "output_audio":
                part["transcript"] = ""


class Items:
    def __init__(self, most_sound_s: float) -> None:
        """`most_sound_s`: of sound that is kept in all; the oldest is forgotten first."""
        self._most_sound_s = most_sound_s
        self._order: list[Item] = []
        self._ids: set[str] = set()

    def __iter__(self) -> Iterator[Item]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)

    @property
    def last_id(self) -> str | None:
        return self._order[-1].id if self._order else None

    def get(self, item_id: str, code: str = "item_not_found") -> Item:
        for item in self._order:
            if item.id == item_id:
                return item
        raise ApiError(f"item {item_id[:80]!r} does not exist", code, "item_id")

    def place(self, after: str | None) -> int:
        """The index after the item with this id. None: the end. "root": the beginning."""
        if after is None:
            return len(self._order)
        if after == "root":
            return 0
        return self._order.index(self.get(after)) + 1

    def add(self, item: Item, place: int | None = None) -> str | None:
        """Inserts an item at an index, default the end. Returns the id of the previous item."""
        self.check_new(item.id)
        place = len(self._order) if place is None else place
        self._ids.add(item.id)
        self._order.insert(place, item)
        return self._order[place - 1].id if place else None

    def check_new(self, item_id: str) -> None:
        if item_id in self._ids:
            code = "item_create_duplicate_item_id"
            raise ApiError(f"item {item_id!r} exists already; delete it first", code, "item.id")

    def remove(self, item: Item) -> None:
        self._ids.discard(item.id)
        self._order.remove(item)

    def forget_sound(self) -> None:
        """Forgets the oldest sound while more than the limit is kept."""
        with_sound = [item for item in self._order if item.sound]
        total_s = sum(map(_kept_s, with_sound))
        for item in with_sound:
            if total_s <= self._most_sound_s:
                return
            total_s -= _kept_s(item)
            if item.status != "in_progress":
                item.sound = []


def _kept_s(item: Item) -> float:
    return sum(map(len, item.sound)) / item.rate_hz


def _base64(sound: list[Samples], rate_hz: int, form: AudioFormat) -> str:
    encoder = Encoder(form, rate_hz)
    data = encoder.push(np.concatenate(sound)) + encoder.finish()
    return base64.b64encode(data).decode()
