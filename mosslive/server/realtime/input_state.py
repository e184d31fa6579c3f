"""The user's audio input: whether it goes to `Talk` at once, and which turn is being heard.

Used on the event loop of the session only. Owns the `InputBuffer`. Knows no server event and does
not call `Talk`; its callers do both.

Sound is in one of two modes:

| mode     | appended sound                                                               |
|----------|------------------------------------------------------------------------------|
| LIVE     | is kept in the buffer and goes to `Talk` at once                             |
| DETACHED | is kept in the buffer only. A response was created before the commit, so the |
|          | turn must not be part of the conversation yet; the commit passes it on whole |

In LIVE mode `Talk` reports turns. Turns are heard one at a time.

| method          | legal in             | afterwards                                          |
|-----------------|----------------------|-----------------------------------------------------|
| `detach`        | LIVE                 | DETACHED, no turn                                   |
| `take_detached` | DETACHED             | LIVE, empty buffer                                  |
| `clear`         | both                 | LIVE, no turn, empty buffer                         |
| `start_turn`    | LIVE                 | the turn is heard; an earlier unfinished one is     |
|                 |                      | forgotten                                           |
| `stop_turn`     | both; unknown: None  | the end of the turn is known                        |
| `end_turn`      | both; unknown: None  | no turn                                             |

A call in the wrong mode is a bug of ours and fails an assertion.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto

from mosslive.server.realtime.formats import Samples
from mosslive.server.realtime.input_buffer import InputBuffer
from mosslive.server.realtime.items import Item


class Mode(Enum):
    LIVE = auto()
    DETACHED = auto()


@dataclass
class InputTurn:
    """A turn of the user, from its first sound to its commit. Times are seconds of input audio."""

    turn: int
    item: Item
    start_s: float
    end_s: float = 0.0


class InputState:
    def __init__(self, buffer: InputBuffer) -> None:
        self.buffer = buffer
        self._mode = Mode.LIVE
        self._turn: InputTurn | None = None
        self._encoding = 0

    @property
    def mode(self) -> Mode:
        return self._mode

    @property
    def detached(self) -> bool:
        return self._mode is Mode.DETACHED

    def detach(self) -> None:
        """Keeps the turn being heard, and what follows, out of the conversation until `commit`."""
        assert self._mode is Mode.LIVE, "the input is detached already"
        self._mode, self._turn = Mode.DETACHED, None

    def take_detached(self) -> Samples:
        """All sound since the last commit."""
        assert self._mode is Mode.DETACHED, "live sound has gone to Talk already"
        self._mode = Mode.LIVE
        return self.buffer.take()

    def clear(self) -> None:
        """Forgets the sound of the turn being heard."""
        self._mode, self._turn = Mode.LIVE, None
        self.buffer.forget()

    # The turn being heard.

    def start_turn(self, turn: int, start_s: float) -> InputTurn:
        assert self._mode is Mode.LIVE, "Talk hears nothing of detached sound"
        self._turn = InputTurn(turn, self.new_item(), start_s)
        return self._turn

    def stop_turn(self, turn: int, end_s: float) -> InputTurn | None:
        heard = self._turn if self._turn and self._turn.turn == turn else None
        if heard:
            heard.end_s = end_s
        return heard

    def end_turn(self, turn: int) -> InputTurn | None:
        heard = self._turn if self._turn and self._turn.turn == turn else None
        if heard:
            self._turn = None
        return heard

    def new_item(self) -> Item:
        """An item of the user for sound of the buffer's rate."""
        content = [{"type": "input_audio", "transcript": None}]
        return Item(content=content, rate_hz=self.buffer.rate_hz)

    # Items with sound that a client has created.

    @property
    def encoding(self) -> int:
        """How many sounds of created items the codec has not encoded yet."""
        return self._encoding

    @contextmanager
    def encodes(self, sounds: int) -> Iterator[None]:
        """Counts this many sounds in `encoding` for the duration of the block."""
        self._encoding += sounds
        try:
            yield
        finally:
            self._encoding -= sounds
