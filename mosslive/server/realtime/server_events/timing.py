"""`mosslive.timing`: an extension of ours, for clients whose session `include` names it."""

from typing import Any

from mosslive.server.api_errors import Event

TIMING = "mosslive.timing"


def timing_ready(document: dict[str, Any]) -> Event:
    """`document`: where the time to the first sound of a reply went, `TurnTiming.document`."""
    return {"type": TIMING, "timing": document}
