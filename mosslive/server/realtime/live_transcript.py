"""Transcripts of a spoken reply while it is spoken, for clients that show captions.

The model transcribes what it has said so far: after 1, 2, 4 and 8 s of speech, then every 4 s, and
when the reply is complete. Each transcript replaces the one before, because more sound can change
the last words; so they are events of our own, and the standard events, which only append, come at
the end as before. Only for sessions that ask for them: each pass is work for the language model.

Passes are tasks of the session, one at a time, on the event loop. A pass that fails is left out.
Does not know how sound is played: the client cuts the words where its sound stopped.
"""

from mosslive.config import SECONDS_PER_CODE
from mosslive.errors import MossliveError
from mosslive.server.one_shot import transcribe_codes
from mosslive.server.realtime.server_events import transcription as events
from mosslive.server.realtime.session import RealtimeSession

_FIRST, _MOST = 12, 50  # codes until the first pass, and at most between two of them


class LiveTranscript:
    """Of the current reply."""

    def __init__(self, session: RealtimeSession) -> None:
        self._session = session
        self._turn = 0
        self._item_id = ""
        self._codes: list[int] = []
        self._begun = 0  # codes of the latest pass
        self._busy = False
        self._done: tuple[list[int], str] = ([], "")  # the latest pass: codes and transcript

    @property
    def _wanted(self) -> bool:
        session = self._session
        return session.backend.transcripts and events.LIVE in session.config.included

    def grow(self, turn: int, item_id: str) -> None:
        """Sound of this reply was sent: begins a pass if enough is new."""
        if not self._wanted:
            return
        if item_id != self._item_id:
            self._turn, self._item_id, self._codes, self._begun = turn, item_id, [], 0
        codes, generated = self._session.talk.reply_codes
        if len(codes) < len(self._codes):  # a later reply has begun
            return
        self._codes = codes
        new = len(codes) - self._begun
        due = new >= max(_FIRST, min(self._begun, _MOST)) or (generated and new > 0)
        if due and not self._busy:
            self._start()

    def interrupt(self, turn: int) -> None:
        """The reply was interrupted: transcribes what it has said, unless a pass has."""
        if self._wanted and turn == self._turn and self._codes and not self._begun:
            self._start()

    def known(self, codes: list[int]) -> str | None:
        """The transcript of exactly these codes, if a pass has made it."""
        done, text = self._done
        return text if codes and done == codes else None

    def _start(self) -> None:
        self._busy, self._begun = True, len(self._codes)
        self._session.start(self._pass(self._item_id, self._codes))

    async def _pass(self, item_id: str, codes: list[int]) -> None:
        session = self._session
        try:
            async with session.transcribing:
                text = await transcribe_codes(session.backend, codes)
        except MossliveError as error:
            session.log.info("no live transcript: %s", error)
            return
        finally:
            self._busy = False
        self._done = (codes, text)
        session.send(events.live(item_id, text, round(1000 * len(codes) * SECONDS_PER_CODE)))
