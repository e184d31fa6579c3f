"""Renders the codes of many replies with the compared settings; equal codes are rendered once.

Knows the settings of the codec, not what is said.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mosslive.codec import Codec, Voice, load_codec
from mosslive.codec.flow_stream import TailRule

Codes = tuple[int, ...]
Wave = NDArray[np.float32]
_AT_ONCE = 16
_POOL_S = 400.0


@dataclass(frozen=True)
class Rendering:
    """How replies are rendered. The default is that of a live conversation, except for the
    published end (`TalkSettings.tail`)."""

    chunk: int = 5  # codes; 0: the whole reply at once
    tail: TailRule = "reference"
    window_frames: int | None = None
    dtype: str = "float32"
    steps: int | None = None  # of the flow; None: the folder's

    @property
    def name(self) -> str:
        named = {
            "chunk": "whole reply at once" if not self.chunk else f"chunks of {self.chunk}",
            "tail": f"{self.tail} tail",
            "window_frames": f"window of {self.window_frames} frames",
            "dtype": f"estimator in {self.dtype}",
            "steps": f"{self.steps} flow steps",
        }
        plain = Rendering()
        changed = [text for key, text in named.items() if getattr(self, key) != getattr(plain, key)]
        return ", ".join(changed) or "chunks of 5, reference tail, float32"


class Renderer:
    """Renders with one `Rendering` and caches the results."""

    def __init__(self, folder: Path, voice: Path, rendering: Rendering | None = None) -> None:
        self.rendering = rendering or Rendering()
        self.codec = load_codec(folder, dtype=self.rendering.dtype, pool_seconds=_POOL_S)
        self.rate_hz = self.codec.sample_rate
        self._voice: Voice = self.codec.voice(voice)
        self._known: dict[Codes, Wave] = {(): np.zeros(0, np.float32)}
        _set_flow(self.codec, self.rendering)

    def render(self, replies: Sequence[Codes], done: Callable[[int], None]) -> list[Wave]:
        """Calls `done` with the number of replies rendered."""
        fresh = [codes for codes in dict.fromkeys(replies) if codes not in self._known]
        done(len(replies) - len(fresh))
        # Replies of similar length finish together, so that batches stay full.
        fresh.sort(key=len)
        for first in range(0, len(fresh), _AT_ONCE):
            some = fresh[first : first + _AT_ONCE]
            for codes, wave in zip(some, self._together(some), strict=True):
                self._known[codes] = wave
            done(len(some))
        return [self._known[codes] for codes in replies]

    def _together(self, replies: list[Codes]) -> list[Wave]:
        rendering = self.rendering
        if not rendering.chunk:
            return [self.codec.decode(codes, self._voice) for codes in replies]
        batch = self.codec.decoder_batch(
            rendering.chunk, tail=rendering.tail, window_frames=rendering.window_frames
        )
        members = [batch.add(self._voice) for _ in replies]
        parts: dict[int, list[Wave]] = {id(member): [] for member in members}
        for member, codes in zip(members, replies, strict=True):
            batch.push(member, codes)
        while batch.ready:
            for member, wave in batch.step().items():
                parts[id(member)].append(wave)
        return [np.concatenate((*parts[id(m)], batch.finish(m))) for m in members]


def _set_flow(codec: Codec, rendering: Rendering) -> None:
    """Overrides the number of flow steps of the folder."""
    if rendering.steps is not None:
        codec.files.decoder = replace(codec.files.decoder, steps=rendering.steps)
