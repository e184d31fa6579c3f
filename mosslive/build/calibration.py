"""Calibration sequences for fp8: synthetic conversations, or a file of real ones.

Works with rows and text only; does not know the model. Synthetic speech is random codes: it covers
every kind of row and the whole codebook, but shows nothing about how a reply sounds.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mosslive.config import ModelConfig
from mosslive.config.files import each_once
from mosslive.errors import MossliveError
from mosslive.rows import (
    DRIVER_SYSTEM,
    END_OF_TEXT,
    PromptFormat,
    ReplyKind,
    Row,
    RowIds,
    TextTokenizer,
    Turn,
    checked_rows,
)

DEFAULT_SEQUENCES = 500
_TURNS = (1, 3)  # user turns of a synthetic conversation, minimum and maximum
_CODES = (8, 40)  # codes of a synthetic spoken turn: 0.64 to 3.2 seconds
_SENTENCES = (
    "What is the weather like this morning?",
    "Please tell me a short story about a river and an old bridge.",
    "The train leaves at ten, so we should be there by half past nine.",
    "I would like to learn to cook something simple with rice.",
    "Yes.",
    "How far is it from the station to the museum, and is it open on Monday?",
    "请用一句话介绍一下你自己。",
    "今天晚上我们去哪里吃饭？",
    "Count from one to five: 1, 2, 3, 4, 5.",
    "That sounds good, thank you very much.",
)


class CalibrationError(MossliveError, ValueError):
    """A calibration file is unreadable or invalid; the message names the line."""


@dataclass(frozen=True)
class Sample:
    rows: list[Row]
    prompt_rows: int  # the first rows, up to where the model would reply


class Samples:
    """Makes samples for one model. No sample is longer than its context."""

    def __init__(self, config: ModelConfig, tokenizer: TextTokenizer) -> None:
        self.ids = RowIds.from_config(config, tokenizer.id_of(END_OF_TEXT))
        self._format = PromptFormat(tokenizer, self.ids)
        self._longest = config.max_position_embeddings

    def synthetic(self, count: int, seed: int = 0) -> list[Sample]:
        """Half of the replies are spoken, half are text. Deterministic by seed."""
        return [self._conversation(random.Random(f"{seed}:{n}"), n) for n in range(count)]

    def from_file(self, path: Path, most: int) -> list[Sample]:
        """Reads at most `most` JSON lines. Each is a list of rows [[text id, audio id], ...] or an
        object {"turns": [{"role": ..., "text" or "codes": ...}, ...], "reply": "speech" or "text"}.
        `reply` is allowed only if the last turn is not the assistant's."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CalibrationError(f"{path}: not readable: {error}") from None
        samples: list[Sample] = []
        for number, line in enumerate(lines, 1):
            if not line.strip() or len(samples) == most:
                continue
            try:
                samples.append(self._parsed(json.loads(line, object_pairs_hook=each_once)))
            except (MossliveError, ValueError, TypeError, RecursionError) as error:
                raise CalibrationError(f"{path}, line {number}: {error}") from None
        if not samples:
            raise CalibrationError(f"{path}: contains no sequence; allowed: JSON lines")
        return samples

    def _parsed(self, content: Any) -> Sample:
        if isinstance(content, list):
            rows = checked_rows(content, self.ids, self._longest)
            return Sample(rows, len(rows))
        if not isinstance(content, dict) or not {"turns"} <= content.keys() <= {"turns", "reply"}:
            raise CalibrationError("allowed: a list of rows, or an object with turns and reply")
        if not isinstance(content["turns"], list) or not content["turns"]:
            raise CalibrationError("turns is not a list of turns; allowed: at least one turn")
        turns = [_turn(n, turn) for n, turn in enumerate(content["turns"])]
        return self._sample(turns, content.get("reply"))

    def _sample(self, turns: Sequence[Turn], reply: Any) -> Sample:
        *before, last = turns
        if last.role != "assistant":
            rows = self._format.prompt(turns, "speech" if reply is None else reply)
            return self._checked(rows, len(rows))
        if reply is not None:
            raise CalibrationError("reply is given, but the last turn is already a reply")
        kind: ReplyKind = "text" if last.codes is None else "speech"
        opening = len(self._format.reply_prefix(kind))
        prompt = self._format.prompt(before, kind)
        # A turn starts with the rows of the reply prefix, which the prompt already has.
        rows = prompt + self._format.turn(last, where="the last turn")[opening:]
        return self._checked(rows, len(prompt))

    def _checked(self, rows: list[Row], prompt_rows: int) -> Sample:
        return Sample(checked_rows(rows, self.ids, self._longest), prompt_rows)

    def _conversation(self, chance: random.Random, number: int) -> Sample:
        def said(role: Any, spoken: bool) -> Turn:
            if not spoken:
                return Turn(role, text=chance.choice(_SENTENCES))
            count = chance.randint(*_CODES)
            return Turn(role, codes=[chance.randrange(self.ids.eosp) for _ in range(count)])

        reply: ReplyKind = "speech" if number % 2 else "text"
        turns = [Turn("system", text=DRIVER_SYSTEM[reply])]
        for _ in range(chance.randint(*_TURNS)):
            turns.append(said("user", chance.random() < 0.5))
            turns.append(said("assistant", reply == "speech"))
        return self._sample(turns, None)


def _turn(number: int, content: Any) -> Turn:
    if not isinstance(content, dict) or not content.keys() <= {"role", "text", "codes"}:
        raise CalibrationError(f"turn {number}: allowed: an object with role and text or codes")
    return Turn(content.get("role"), text=content.get("text"), codes=content.get("codes"))  # type: ignore[arg-type]
