"""Server events as JSON text. Sound in an event is `bytes` and becomes base64 here.

Pure functions, for every thread and process. Does not know what events mean.
"""

import base64
import json
from typing import Any

from mosslive.server.api_errors import Event

_FIELDS_BYTES = 256  # all that an event with sound has besides it


def event_text(event: Event) -> str:
    """ASCII: one byte a character."""
    return json.dumps(event, separators=(",", ":"), default=_base64)


def text_bytes(sound: bytes) -> int:
    """About the length of the text of an event with this sound."""
    return 4 * -(-len(sound) // 3) + _FIELDS_BYTES


def _base64(value: Any) -> str:
    return base64.b64encode(value).decode()
