"""The items of a conversation: what a client sees of what was said.

Ordered, addressed by id. An item remembers which turns of the conversation it stands for, and its
sound for `retrieve`. Knows nothing of how the model is told; invariant: an id stands for one item
at a time. Clients delete an item and make it anew under its old id to change it.
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
    turns: list[int] = field(default_factory=list)  # of the conversation; none: not told
    sound: list[Samples] = field(default_factory=list)  # until it is forgotten
    samples: int = 0  # of its sound, forgotten or not
    rate_hz: int = 24_000
    is_cut: bool = False

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
        """The document with the sound inside its audio part."""
        document, sound = self.document(), list(self.sound)
        for part in document.get("content", []):
            if part["type"] in ("input_audio", "output_audio") and sound:
                # Minutes of sound take a while, in which others go on.
                part["audio"] = await asyncio.to_thread(_written, sound, self.rate_hz, form)
                break
        return document

    def hear(self, wave: Samples) -> None:
        """More of its sound; after it was cut short there is no more."""
        if not self.is_cut:
            self.sound.append(wave)
            self.samples += len(wave)

    @property
    def text(self) -> str:
        """All its words, for those who count them."""
        parts = (part.get("text") or part.get("transcript") or "" for part in self.content)
        return "".join(parts)

    @property
    def spoken(self) -> bool:
        """Whether it is sound the model made."""
        return self.role == "assistant" and any(
            part["type"] == "output_audio" for part in self.content
        )

    @property
    def sound_ms(self) -> int:
        return self.samples * 1000 // self.rate_hz

    def cut(self, end_ms: int) -> None:
        """Keeps the sound before `end_ms`; what was said after it is not known by text."""
        self.is_cut = True
        end = end_ms * self.rate_hz // 1000
        self.samples = min(self.samples, end)
        if self.sound:
            self.sound = [np.concatenate(self.sound)[:end]]
        for part in self.content:
            if part["type"] == "output_audio":
                part["transcript"] = ""


class Items:
    def __init__(self, most_sound_s: float) -> None:
        """`most_sound_s`: of sound kept for `retrieve`; the oldest goes first."""
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
        """Where an item goes: None: the end; "root": the beginning; else after that item."""
        if after is None:
            return len(self._order)
        if after == "root":
            return 0
        return self._order.index(self.get(after)) + 1

    def add(self, item: Item, place: int | None = None) -> str | None:
        """Returns the id of the item before it."""
        self.check_new(item.id)
        place = len(self._order) if place is None else place
        self._ids.add(item.id)
        self._order.insert(place, item)
        return self._order[place - 1].id if place else None

    def check_new(self, item_id: str) -> None:
        if item_id in self._ids:
            code = "item_create_duplicate_item_id"
            raise ApiError(f"item {item_id!r} exists", code, "item.id")

    def remove(self, item: Item) -> None:
        self._ids.discard(item.id)
        self._order.remove(item)

    def forget_sound(self) -> None:
        """Lets the oldest sound go when there is too much."""
        sounding = [item for item in self._order if item.sound]
        total_s = sum(map(_kept_s, sounding))
        for item in sounding:
            if total_s <= self._most_sound_s:
                return
            total_s -= _kept_s(item)
            if item.status != "in_progress":
                item.sound = []


def _kept_s(item: Item) -> float:
    return sum(map(len, item.sound)) / item.rate_hz


def _written(sound: list[Samples], rate_hz: int, form: AudioFormat) -> str:
    encoder = Encoder(form, rate_hz)
    data = encoder.push(np.concatenate(sound)) + encoder.finish()
    return base64.b64encode(data).decode()
