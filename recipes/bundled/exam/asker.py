"""Asks the language model many dialogues in one batch.

Each dialogue is asked turn by turn with the model's own replies as history, as in a live
conversation. Knows prompts and rows, not whether an answer is right.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mosslive.checkpoint.generation import folder_sampling
from mosslive.config import Sampling
from mosslive.engine import LanguageModel
from mosslive.engine.load import load_stepper
from mosslive.engine.stepper import PlainStepper
from mosslive.rows import DRIVER_SYSTEM, ReplyKind, Turn

MOST_ROWS = 250  # of a reply, 20 s; the longest right answer takes six
_AT_ONCE = 48
_ROWS_EACH = 1000  # a dialogue of three turns, and a reply that does not end
_PAGE_ROWS = 16


@dataclass(frozen=True)
class ModelReply:
    """The reply to the last turn of a dialogue."""

    text: str
    codes: tuple[int, ...]
    stop: str  # "stop": the model ended its turn

    @property
    def runaway(self) -> bool:
        return self.stop != "stop"


UserTurn = str | Sequence[int]  # a user's turn: text, or codes


class Asker:
    def __init__(self, lm: LanguageModel, sampling: Sampling) -> None:
        self._lm, self._sampling = lm, sampling

    @classmethod
    def load(cls, folder: Path, sampling: Sampling | None = None) -> "Asker":
        """Loads a model or engine folder on the CPU, by default with the sampling of the folder."""
        stepper, tokenizer = load_stepper(
            folder, "cpu", kv_rows=_AT_ONCE * _ROWS_EACH, page_size=_PAGE_ROWS
        )
        assert isinstance(stepper, PlainStepper)
        chosen = replace(sampling or folder_sampling(folder), max_new=MOST_ROWS)
        return cls(LanguageModel(stepper.runner, tokenizer), chosen)

    @property
    def sampling(self) -> Sampling:
        return self._sampling

    def ask(
        self,
        dialogues: Sequence[Sequence[UserTurn]],
        reply: ReplyKind,
        done: Callable[[int], None],
        system: str | None = None,
    ) -> list[ModelReply]:
        """Returns one reply per dialogue. Calls `done` with the number of dialogues finished.
        `system`: the system turn; None: the driver's."""
        first_turn = Turn("system", text=DRIVER_SYSTEM[reply] if system is None else system)
        answers: dict[int, ModelReply] = {}
        for first in range(0, len(dialogues), _AT_ONCE):
            some = range(first, min(first + _AT_ONCE, len(dialogues)))
            histories = {i: [first_turn] for i in some}
            for turn in range(max(len(dialogues[i]) for i in some)):
                going = [i for i in some if turn < len(dialogues[i])]
                for i in going:
                    histories[i].append(_user(dialogues[i][turn]))
                for i, given in zip(going, self._replies(histories, going, reply), strict=True):
                    answers[i] = given
                    histories[i].append(_assistant(given, reply))
            done(len(some))
        return [answers[i] for i in range(len(dialogues))]

    def _replies(
        self, histories: dict[int, list[Turn]], going: list[int], reply: ReplyKind
    ) -> list[ModelReply]:
        lm = self._lm
        prompts = [(lm.prompt(histories[i], reply), self._sampling) for i in going]
        requests, rows = lm.generate_many(prompts)
        for _ in rows:
            pass
        outputs = [lm.read(request.new_rows) for request in requests]
        return [
            ModelReply(output.text, tuple(output.codes), str(request.stop))
            for output, request in zip(outputs, requests, strict=True)
        ]


def _user(said: UserTurn) -> Turn:
    return Turn("user", text=said) if isinstance(said, str) else Turn("user", codes=said)


def _assistant(given: ModelReply, reply: ReplyKind) -> Turn:
    if reply == "speech":
        return Turn("assistant", codes=given.codes)
    return Turn("assistant", text=given.text)
