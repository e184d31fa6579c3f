"""Settings of a live conversation: replies, turn taking, sound and history. Data only."""

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from mosslive.codec.flow_stream import TailRule, check_tail
from mosslive.config import Sampling, refuse
from mosslive.config.files import is_positive_number
from mosslive.rows import ReplyKind, check_reply
from mosslive.talk.playback import PIECE_S
from mosslive.talk.turn_detection import TurnSettings

History = Literal["generated", "reencode"]


def _talk_sampling() -> Sampling:
    # Text rows then have the form of the prompt format, and the audio tail need not run for them.
    return Sampling.driver(ignored_audio="pad")


@dataclass(frozen=True)
class TalkSettings:
    reply: ReplyKind = "speech"
    system: str | None = None  # the system turn; None: the published one for this reply, "": none
    sampling: Sampling = field(default_factory=_talk_sampling)
    # How the end of a turn is detected. None: push to talk, `commit` ends a turn.
    turns: TurnSettings | None = field(default_factory=TurnSettings)
    barge_in: bool = True  # whether speech interrupts a reply; else it is ignored
    # Whether a reply follows the user's turn. False: `respond` starts it, and speech that may not
    # interrupt a reply is processed after it.
    auto_reply: bool = True
    speculate: bool = False  # begin the reply at the first pause, drop it if the user continues
    # What the history keeps of a reply. "generated": its own codes. "reencode": its sound, encoded
    # again, as the published driver does.
    history: History = "generated"
    chunk: int = 5  # codes rendered at a time, 5 or 25
    # How the last codes of a reply are rendered. "cached": as all others, in one step. "reference":
    # with the whole reply once more, as published, which delays the sound of all conversations.
    tail: TailRule = "cached"
    voice_seed: int = 0  # of the vocoder's noise
    # How far ahead of the listener sound is sent. None: it is not played in real time.
    lead_s: float | None = 0.5
    ahead_s: float = 5.0  # how far ahead of the listener a reply is generated, if it is played
    unread_s: float = 30.0  # sound that may wait unread; if more would, the reply waits
    # If a turn and its reply do not fit into so many rows, the oldest turns leave, until the rest
    # fills at most `keep` of them.
    context_rows: int = 10_240
    keep: float = 0.5

    def __post_init__(self) -> None:
        check_reply(self.reply)
        if self.system is not None and not isinstance(self.system, str):
            raise refuse("system", self.system, "text, or None")
        if not isinstance(self.sampling, Sampling):
            raise refuse("sampling", self.sampling, "Sampling")
        if self.turns is not None and not isinstance(self.turns, TurnSettings):
            raise refuse("turns", self.turns, "TurnSettings, or None")
        for name in ("barge_in", "auto_reply", "speculate"):
            if not isinstance(getattr(self, name), bool):
                raise refuse(name, getattr(self, name), "True or False")
        if self.history not in get_args(History):
            raise refuse("history", self.history, " or ".join(get_args(History)))
        if type(self.chunk) is not int or self.chunk not in (5, 25):
            raise refuse("chunk", self.chunk, "5 or 25")
        check_tail(self.tail)
        if type(self.voice_seed) is not int or not 0 <= self.voice_seed < 1 << 63:
            raise refuse("voice_seed", self.voice_seed, "a whole number, 0 or more")
        lead_s = math.inf if self.lead_s is None else self.lead_s
        fits = is_positive_number(lead_s) and lead_s >= PIECE_S
        if lead_s != math.inf and not fits:
            raise refuse("lead_s", self.lead_s, f"{PIECE_S:g} seconds or more, inf, or None")
        enough = is_positive_number(self.ahead_s) and self.ahead_s >= 1
        if self.ahead_s != math.inf and not enough:
            raise refuse("ahead_s", self.ahead_s, "1 second or more, or inf")
        if not is_positive_number(self.unread_s):
            raise refuse("unread_s", self.unread_s, "above 0 seconds")
        if type(self.context_rows) is not int or self.context_rows < 64:
            raise refuse("context_rows", self.context_rows, "64 rows or more")
        if not is_positive_number(self.keep) or self.keep > 1:
            raise refuse("keep", self.keep, "above 0 and at most 1")
        if self.speculate and self.turns is None:
            raise refuse("speculate", True, "False with push to talk (turns=None)")
