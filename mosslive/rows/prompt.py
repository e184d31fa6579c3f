"""Turns → rows: the prompt format of MOSS-Speech.

Each text segment is tokenised separately, so tokens never merge across segments. The Qwen chat
template is not used. Does not know audio: a spoken turn is a list of codes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from mosslive.rows.grid import Row, RowIds, RowsError, checked_codes
from mosslive.rows.tokenizer import TURN_END, TURN_START, TextTokenizer

Role = Literal["system", "user", "assistant"]
ReplyKind = Literal["speech", "text"]
Fallback = Literal["none", "processor"]

# The explicit first system turn of the published driver.
DRIVER_SYSTEM: dict[ReplyKind, str] = {
    "speech": "You are a helpful voice assistant. "
    "Answer the user's questions with spoken responses.",
    "text": "You are a helpful assistant. Answer the user's questions with text.",
}
# The published processor adds this turn if the first turn is not a system turn.
PROCESSOR_SYSTEM: dict[ReplyKind, str] = {
    "speech": "You are a helpful assistant. Respond with spoken outputs.",
    "text": "You are a helpful assistant. Respond with text outputs.",
}
# Not published; how well a model does these tasks depends on its training. Training and inference
# must use the same wording, so all callers take it from here.
WRITE_DOWN_SYSTEM = "Write down what the user says."
READ_ALOUD_SYSTEM = "Read the user's text aloud."


@dataclass(frozen=True)
class Turn:
    """One turn of a conversation: text, or codes (80 ms each), never both."""

    role: Role
    text: str | None = None
    codes: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise RowsError(f"role is {self.role!r}; allowed: {', '.join(get_args(Role))}")
        if (self.text is None) == (self.codes is None):
            given = "neither text nor codes" if self.text is None else "both text and codes"
            raise RowsError(f"a {self.role} turn has {given}; allowed: exactly one of them")
        if self.text is not None and not isinstance(self.text, str):
            raise RowsError(f"text is a {type(self.text).__name__}; allowed: a string")
        if self.text is not None and any("\ud800" <= c <= "\udfff" for c in self.text):
            raise RowsError("text contains an unpaired surrogate; allowed: whole characters")
        if self.codes is not None and not hasattr(self.codes, "__iter__"):
            kind = type(self.codes).__name__
            raise RowsError(f"codes is a {kind}; allowed: a list of integers")


def check_reply(reply: str) -> None:
    if reply not in get_args(ReplyKind):
        raise RowsError(f"reply is {reply!r}; allowed: {', '.join(get_args(ReplyKind))}")


class PromptFormat:
    """The pieces of a prompt as rows, for one tokenizer and one set of ids."""

    def __init__(self, tokenizer: TextTokenizer, ids: RowIds) -> None:
        self._tokenizer = tokenizer
        self._ids = ids
        # Tokenised once: every turn has both.
        self._headers: dict[Role, list[Row]] = {
            role: self._text(f"{TURN_START}{role}\n", control=True) for role in get_args(Role)
        }
        self._footer = self._text(f"{TURN_END}\n", control=True)

    def header(self, role: Role) -> list[Row]:
        if role not in self._headers:
            raise RowsError(f"role is {role!r}; allowed: {', '.join(get_args(Role))}")
        return self._headers[role][:]

    def footer(self) -> list[Row]:
        return self._footer[:]

    def speech(self, codes: Sequence[int], where: str = "codes") -> list[Row]:
        """n codes → n + 2 rows: the start of speech, the codes, the end of speech."""
        ids = self._ids
        rows = [(ids.sosp, ids.audio_pad)]
        rows += [(ids.modality_pad, code) for code in checked_codes(codes, ids, where)]
        return [*rows, (ids.modality_pad, ids.eosp)]

    def reply_prefix(self, reply: ReplyKind) -> list[Row]:
        check_reply(reply)
        opening = [(self._ids.sosp, self._ids.audio_pad)] if reply == "speech" else []
        return self.header("assistant") + opening

    def turn(self, turn: Turn, control: bool = False, where: str = "codes") -> list[Row]:
        if turn.codes is not None:
            content = self.speech(turn.codes, where)
        else:
            content = self._text(turn.text or "", control)
        return self.header(turn.role) + content + self.footer()

    def prompt(
        self,
        turns: Sequence[Turn],
        reply: ReplyKind,
        fallback: Fallback = "none",
        control: bool = False,
    ) -> list[Row]:
        """All turns, then the reply prefix.

        `fallback="processor"` adds the published processor's own system turn if the first turn is
        not a system turn. It comes after all turns, just before the reply prefix. That is odd, but
        it is what the published code feeds the model. `control`: see `TextTokenizer.encode`.
        """
        check_reply(reply)
        if fallback not in get_args(Fallback):
            raise RowsError(f"fallback is {fallback!r}; allowed: {', '.join(get_args(Fallback))}")
        rows: list[Row] = []
        if not isinstance(turns, Sequence) or not all(isinstance(turn, Turn) for turn in turns):
            raise RowsError("turns must be a list of Turn(role, text=... or codes=...)")
        for number, turn in enumerate(turns):
            rows += self.turn(turn, control, where=f"turn {number} ({turn.role})")
        if fallback == "processor" and (not turns or turns[0].role != "system"):
            rows += self.turn(Turn("system", text=PROCESSOR_SYSTEM[reply]))
        return rows + self.reply_prefix(reply)

    def _text(self, text: str, control: bool) -> list[Row]:
        pad = self._ids.audio_pad
        return [(index, pad) for index in self._tokenizer.encode(text, control)]
