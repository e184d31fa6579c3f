"""Transcripts of a spoken reply while it is spoken, for clients that show captions.

The model transcribes what it has said so far: after 0.8, 1.6, 3.2 and 6.4 s of speech, then every
4 s, and when the reply is complete or interrupted. A model guesses the end of a sentence that it
hears in part, so of the passes before the last only the words are sent on which two of them agree.
Each transcript replaces the one before; so they are events of our own, and the standard events,
which only append, come at the end as without them. Only for sessions that ask for them: each pass
is work for the language model.

Passes are tasks of the session, one at a time, on the event loop. A pass that fails is left out.
Does not know how sound is played: the client cuts the words where its sound stopped.
"""

import asyncio
from itertools import takewhile

from mosslive.config import SECONDS_PER_CODE
from mosslive.errors import MossliveError
from mosslive.server.one_shot import transcribe_codes
from mosslive.server.realtime.server_events import transcription as events
from mosslive.server.realtime.session import RealtimeSession

_FIRST, _MOST = 10, 50  # codes until the first pass, and at most between two of them
# No pass before this many chunks were sent: the second must come while the first, which is short,
# is played, and a pass delays it where the processor is slow.
_CHUNKS = 3


class LiveTranscript:
    """Of the current reply."""

    def __init__(self, session: RealtimeSession) -> None:
        self._session = session
        self._turn = 0
        self._item_id = ""
        self._codes: list[int] = []
        self._chunks = 0  # of sound that was sent
        self._whole = False  # no more codes come
        self._begun = 0  # codes of the latest pass
        self._before = ""  # its transcript
        self._running: asyncio.Task[None] | None = None  # the pass
        self._interrupted = ""  # item of the latest interrupted reply
        self._done: tuple[list[int], str] = ([], "")  # codes and transcript of the latest pass

    @property
    def _wanted(self) -> bool:
        session = self._session
        return session.backend.transcripts and events.LIVE in session.config.included

    def grow(self, turn: int, item_id: str) -> None:
        """Sound of this reply was sent: begins a pass if enough is new."""
        if not self._wanted:
            return
        if item_id != self._item_id:
            self._turn, self._item_id, self._codes, self._whole = turn, item_id, [], False
            self._begun, self._before, self._chunks = 0, "", 0
        self._chunks += 1
        codes, generated = self._session.talk.reply_codes
        if len(codes) >= len(self._codes):  # otherwise they are those of a later reply
            self._codes, self._whole = codes, generated
        self._start_if_due()

    def interrupt(self, turn: int) -> None:
        """The reply was interrupted: sends the words of all that it was going to say so far. A pass
        that runs is the last if the next reply begins before another one can."""
        if self._wanted and turn == self._turn and self._codes:
            self._whole, self._interrupted = True, self._item_id
            self._start_if_due()

    async def of_reply(self, item_id: str, codes: list[int]) -> str:
        """The transcript of a complete reply: of the pass over all of it, which may still run, or
        else a new one."""
        while item_id == self._item_id and self._running:
            await asyncio.wait({self._running})
        done, text = self._done
        if codes and done == codes:
            return text
        async with self._session.transcribing:
            return await transcribe_codes(self._session.backend, codes)

    def _start_if_due(self) -> None:
        new = len(self._codes) - self._begun
        due = new >= max(_FIRST, min(self._begun, _MOST)) or (self._whole and new > 0)
        if self._chunks < _CHUNKS and self._interrupted != self._item_id:
            due = False
        if due and not self._running:
            self._begun = len(self._codes)
            work = self._pass(self._item_id, self._codes, self._whole)
            self._running = self._session.start(work)

    async def _pass(self, item_id: str, codes: list[int], whole: bool) -> None:
        session, before = self._session, self._before
        try:
            async with session.transcribing:
                text = await transcribe_codes(session.backend, codes)
        except MossliveError as error:
            session.log.info("no live transcript: %s", error)
            return
        finally:
            self._running = None
        self._done = (codes, text)
        if item_id == self._item_id:  # otherwise a later reply has begun
            self._before = text
            whole = whole or (self._whole and len(codes) == len(self._codes))
        last = whole or item_id == self._interrupted
        sure = text if last else common_words(before, text)
        if sure:
            seconds = len(codes) * SECONDS_PER_CODE * len(sure) / len(text)
            session.send(events.live(item_id, sure, round(1000 * seconds)))
        self._start_if_due()


def common_words(one: str, other: str) -> str:
    """The words with which both begin."""
    pairs = zip(one.split(), other.split(), strict=False)
    return " ".join(word for word, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
