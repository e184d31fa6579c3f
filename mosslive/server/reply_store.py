"""Spoken replies of `/v1/chat/completions`, kept by id so that a later request can refer to them.

A reply is kept as the rows of its turn, 8 bytes each and 12.5 a second, without its sound. It
belongs to the key that asked for it, and lasts `KEPT_S`. Invariants: one key holds at most
`_MOST_PER_KEY` replies and `_MOST_BYTES_PER_KEY`, all keys together `_MOST_BYTES`; the oldest of
the key that holds the most makes room. Used on the event loop only. Does not know requests.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mosslive.server.api_errors import ApiError
from mosslive.talk.dialogue import HistoryTurn

KEPT_S = 3600  # as the public service keeps them
_MOST_PER_KEY = 1000
_MOST_BYTES_PER_KEY = 8 << 20
_MOST_BYTES = 64 << 20
_OWN_BYTES = 200  # of an entry: its id and objects


@dataclass(frozen=True)
class _Stored:
    rows: NDArray[np.int32]  # [rows, channels]
    expires_at: int

    @property
    def size(self) -> int:
        return self.rows.nbytes + _OWN_BYTES


class _OfKey:
    """The replies of one key, oldest first."""

    def __init__(self) -> None:
        self.replies: OrderedDict[str, _Stored] = OrderedDict()
        self.size = 0

    def put(self, reply_id: str, stored: _Stored) -> None:
        self.replies[reply_id] = stored
        self.size += stored.size

    def drop_oldest(self) -> None:
        self.size -= self.replies.popitem(last=False)[1].size

    def drop_expired(self, now: float) -> None:
        while self.replies and next(iter(self.replies.values())).expires_at <= now:
            self.drop_oldest()


class ReplyStore:
    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._keys: dict[str, _OfKey] = {}

    def put(self, reply_id: str, owner: str, said: HistoryTurn) -> int:
        """Keeps the turn of a spoken reply. Returns until when, as Unix time."""
        assert (said.role, said.kind) == ("assistant", "speech"), "only spoken replies have an id"
        now = self._clock()
        expires_at = int(now) + KEPT_S
        self._drop_expired(now)
        mine = self._keys.setdefault(owner, _OfKey())
        mine.put(reply_id, _Stored(np.asarray(said.rows, np.int32), expires_at))
        while len(mine.replies) > _MOST_PER_KEY or mine.size > _MOST_BYTES_PER_KEY:
            mine.drop_oldest()
        while sum(one.size for one in self._keys.values()) > _MOST_BYTES:
            max(self._keys.values(), key=lambda one: one.size).drop_oldest()
        return expires_at

    def get(self, reply_id: str, owner: str, where: str) -> HistoryTurn:
        """The turn of a reply. Raises `ApiError` about the field `where` if this key has none with
        that id: it never had, or not any more."""
        self._drop_expired(self._clock())
        mine = self._keys.get(owner)
        stored = mine.replies.get(reply_id) if mine else None
        if stored is None:
            raise ApiError(
                f"{where} is {reply_id[:80]!r}, which is not stored for this key: it is unknown, "
                f"older than {KEPT_S} s, or newer replies took its place; send the text instead",
                "audio_not_found",
                where,
                status=404,
            )
        rows = ((text_id, audio_id) for text_id, audio_id in stored.rows.tolist())
        return HistoryTurn("assistant", "speech", tuple(rows))

    def _drop_expired(self, now: float) -> None:
        for owner, one in list(self._keys.items()):
            one.drop_expired(now)
            if not one.replies:
                del self._keys[owner]
