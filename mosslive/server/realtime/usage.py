"""The token usage of a reply: one row of the model is one token.

Pure function, for every thread. Knows turns of the history, not events.
"""

from collections.abc import Sequence
from typing import Any

from mosslive.talk.dialogue import HistoryTurn
from mosslive.talk.events import ReplyDone


def usage_of(
    before: Sequence[HistoryTurn], done: ReplyDone, rows: int | None = None
) -> dict[str, Any]:
    """`before`: the turns of the prompt. `rows`: the number of rows of the reply; None: unknown,
    then its codes are counted."""
    text_in = sum(len(said.rows) for said in before if said.kind == "text")
    audio_in = sum(len(said.rows) for said in before if said.kind == "speech")
    output = done.codes if rows is None else max(rows, done.codes)
    text_out = output - done.codes
    return {
        "total_tokens": text_in + audio_in + output,
        "input_tokens": text_in + audio_in,
        "output_tokens": output,
        "input_token_details": {
            "text_tokens": text_in,
            "audio_tokens": audio_in,
            "image_tokens": 0,
            "cached_tokens": 0,
        },
        "output_token_details": {"text_tokens": text_out, "audio_tokens": done.codes},
    }
