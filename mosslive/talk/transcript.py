"""The transcript of a spoken turn, from the model's own text mode.

There is no speech recogniser: a system turn asks the model to write down what it hears, in the
words that it was trained with. Runs on the event loop. Does not know who asks.
"""

from mosslive.engine import Engine
from mosslive.errors import MossliveError
from mosslive.rows import WRITE_DOWN_SYSTEM, Turn
from mosslive.talk.dialogue import HistoryTurn
from mosslive.talk.events import ReplyDone, TalkFault
from mosslive.talk.settings import TalkSettings
from mosslive.talk.talk import Talk


def codes_of(engine: Engine, said: HistoryTurn) -> list[int]:
    """The speech of a turn."""
    ids = engine.ids
    return [row[1] for row in said.rows if ids.is_speech(row) and row[1] < ids.eosp]


def transcription_turns(engine: Engine, codes: list[int]) -> list[HistoryTurn]:
    """The conversation whose reply is the transcript; empty without codes."""
    form = engine.format
    if not codes:
        return []
    asked = Turn("system", text=WRITE_DOWN_SYSTEM)
    return [
        HistoryTurn("system", "text", tuple(form.turn(asked))),
        HistoryTurn("user", "speech", tuple(form.turn(Turn("user", codes=codes)))),
    ]


async def transcribe(engine: Engine, said: HistoryTurn, settings: TalkSettings) -> str:
    """`settings`: of a text reply without a system turn of its own. Raises `MossliveError`."""
    turns = transcription_turns(engine, codes_of(engine, said))
    if not turns:
        return ""
    talk = Talk(engine, None, None, settings, turns=turns)
    try:
        talk.respond()
        async for event in talk.events():
            match event:
                case ReplyDone(text=text):
                    return text
                case TalkFault(message=message):
                    raise MossliveError(message)
    finally:
        await talk.close()
    return ""
