"""The words of `mosslive chat`: prints question and answer of each turn.

What was written is printed as it is. What was spoken is transcribed by the model's own text mode:
by default only if the model's folder states that its transcripts are good (`capabilities.json`),
and on request otherwise. If there are none, the reason is printed once. Runs on the event loop.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mosslive.cli.console import err
from mosslive.config import SECONDS_PER_CODE
from mosslive.config.capabilities import Capabilities
from mosslive.engine import Engine
from mosslive.errors import MossliveError
from mosslive.talk.dialogue import HistoryTurn
from mosslive.talk.settings import TalkSettings
from mosslive.talk.transcript import transcribe


@dataclass
class TurnResult:
    """The reply to one turn."""

    question: str  # a text, the path of a recording, or "microphone"
    text: str = ""
    codes: int = 0
    stop: str = ""
    sound: list[NDArray[np.float32]] = field(default_factory=list)
    output: Path | None = None
    # In words: as written, or the model's transcript of speech; None: there is none.
    question_text: str | None = None
    answer_text: str | None = None

    def document(self) -> dict[str, Any]:
        return {
            "question": self.question,
            "question_text": self.question_text,
            "text": self.text,
            "answer_text": self.answer_text,
            "codes": self.codes,
            "stop": self.stop,
            "output": str(self.output) if self.output else None,
        }


class Transcripts:
    def __init__(
        self, asked: bool | None, capabilities: Capabilities, settings: TalkSettings
    ) -> None:
        """`asked`: the user's choice; None: as the model states. `settings`: of the talk."""
        self._settings = replace(
            settings, reply="text", system="", turns=None, speculate=False, lead_s=None
        )
        self._reason = _reason(asked, capabilities)
        self._reported = asked is False  # who turns them off knows why there are none

    async def of(self, engine: Engine, said: HistoryTurn) -> str | None:
        """The transcript of a spoken turn; None: there is none."""
        reason = self._reason
        if reason is None:
            try:
                return await transcribe(engine, said, self._settings)
            except MossliveError as error:
                reason = str(error)
        if not self._reported:
            err.print(f"no transcripts: {reason}", soft_wrap=True, markup=False)
            self._reported = True
        return None


class Words:
    def __init__(self, transcripts: Transcripts, as_json: bool) -> None:
        """`as_json`: makes transcripts and prints nothing."""
        self._transcripts, self._as_json = transcripts, as_json
        self._streams = False  # whether the answer is printed as it comes
        self._one_turn = asyncio.Lock()  # so that the lines of a turn stay together

    def begin(self, question: str, streams: bool, shown: bool = False) -> None:
        """Prints a text question, unless it is `shown` already. `streams`: its answer is text."""
        if self._as_json:
            return
        if not shown:
            print(f"question: {question}")
        self._streams = streams
        if streams:
            print("answer:   ", end="", flush=True)

    def write(self, text: str) -> None:
        """The next piece of a text answer."""
        if self._streams:
            print(text, end="", flush=True)

    async def end(self, engine: Engine, replied: TurnResult, said: Sequence[HistoryTurn]) -> None:
        """Transcribes the spoken turns of `said` and prints what is not printed yet."""
        replied.answer_text = replied.text or None
        asked, streamed = replied.question_text is not None, self._streams
        self._streams = False
        async with self._one_turn:
            for one in said:
                if one.role == "user" and not asked:
                    replied.question_text = await self._transcripts.of(engine, one)
                elif one.role == "assistant" and replied.codes and not replied.text:
                    replied.answer_text = await self._transcripts.of(engine, one)
            if not self._as_json:
                _print(replied, question=not asked, answer=not streamed)


def _print(replied: TurnResult, question: bool, answer: bool) -> None:
    if question:
        print(f"question: {_or_kind(replied.question_text, replied.question)}")
    if answer:
        seconds = replied.codes * SECONDS_PER_CODE
        words = _or_kind(replied.answer_text, f"{seconds:.2f} s of speech")
        print(f"answer:   {words}", flush=True)
    else:
        print()  # the end of a streamed line


def _or_kind(text: str | None, kind: str) -> str:
    return f"({kind})" if text is None else text


def _reason(asked: bool | None, capabilities: Capabilities) -> str | None:
    """Why there are no transcripts; None: there are."""
    if asked is False:
        return "turned off by --no-transcripts"
    if not capabilities.supports("speech", "text"):
        return "this model was not trained for speech-to-text"
    if asked is None and not capabilities.transcripts:
        return (
            "this model does not state that it transcribes well; --transcripts turns them on all "
            "the same"
        )
    return None
