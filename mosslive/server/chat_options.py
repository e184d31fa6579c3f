"""Which options of a chat completion this server knows, and which values of the others it accepts.

An option that would change the reply and has no effect here is refused by name: a client that asks
for tools or JSON must not get something else. Its neutral value is accepted, because many clients
send all options. Pure functions over JSON, for every thread. Does not know how a reply is made.
"""

import json
from typing import Any

from mosslive.server.api_errors import ApiError
from mosslive.server.realtime import fields

_USED = (
    *("model", "messages", "modalities", "audio", "stream", "stream_options"),
    *("max_tokens", "max_completion_tokens", "temperature", "top_p", "seed", "n"),
)
# They concern the public service's bookkeeping, not the reply.
_WITHOUT_EFFECT = (
    *("user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key"),
    *("prompt_cache_retention", "parallel_tool_calls"),
)
# Refused, with the values that ask for nothing. null is accepted too.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "stop": ([],),
    "prediction": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "store": (False,),
    "web_search_options": (),
}


def check_options(raw: dict[str, Any]) -> None:
    """Raises `ApiError` about the first option that is not supported or not known."""
    for name, value in raw.items():
        if name in _USED or name in _WITHOUT_EFFECT or value is None:
            continue
        if name not in NEUTRAL:
            message = f"{name[:80]} is not an option of this endpoint; docs/server.md lists them"
            raise ApiError(message, "unknown_parameter", name[:80])
        if not _is_neutral(value, NEUTRAL[name]):
            raise _unsupported(name, NEUTRAL[name])
    if fields.whole(raw, "n", 1, 128, default=1) != 1:
        raise fields.bad("n", raw["n"], "1")


def check_message(message: dict[str, Any], where: str) -> None:
    """Refuses calls of tools in the history: the model would not see them."""
    for name in ("tool_calls", "function_call"):
        if message.get(name) not in (None, []):
            raise _unsupported(f"{where}.{name}", ())


def _is_neutral(value: Any, neutral: tuple[Any, ...]) -> bool:
    # `False == 0` in Python, and not in JSON.
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in neutral)


def _unsupported(name: str, neutral: tuple[Any, ...]) -> ApiError:
    allowed = " or ".join(["null", *(json.dumps(one) for one in neutral)])
    message = f"{name} is not supported by this model; leave it out (allowed: {allowed})"
    return ApiError(message, "unsupported_parameter", name)
