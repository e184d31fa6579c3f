"""Where faults enter the product: the border of each part, before its work and at its result.

| part | its calls |
|---|---|
| `encoder` | steps that make codes of sound |
| `flow` | steps codes → mel, of one or more replies |
| `vocoder` | steps mel → sound, of one or more replies |
| `stepper` | steps of the language model that make rows of replies |
| `prefill` | steps of the language model over rows of the user |
| `logits` | what the language model's steps compute |
| `vad` | frames of 32 ms |
| `tokenizer` | texts |
| `voices` | voices that are stored |
| `deletions` | voices that are deleted |
| `uploads` | uploads that do not fit in memory and go to a temporary file |
| `clock` | none: with "jump" the time of day is wrong |

Knows names of the product; `rules.py` decides which call fails.
"""

import tempfile
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from mosslive.codec import rendering, voice
from mosslive.codec.encoder import Encoder
from mosslive.codec.hift.stream import HiftStream
from mosslive.engine.runner import Runner
from mosslive.engine.stepper import PlainStepper
from mosslive.rows import TextTokenizer
from mosslive.server.voice_folder import VoiceFolder
from mosslive.talk.vad import SileroVad
from tests.faults.rules import Rules

_NAN = float("nan")


def _poisoned(value: Any) -> Any:
    if isinstance(value, Tensor):
        return torch.full_like(value, _NAN)
    return _NAN if isinstance(value, float) else [_poisoned(one) for one in value]


def install(rules: Rules) -> None:
    """Patches the classes of this process. For its whole life: there is no way back."""

    def patch(owner: Any, name: str, where: str, *, poison: int | None = -1) -> None:
        """`poison`: the argument that is not finite with "nan"; -1: the result; None: nothing."""
        real = getattr(owner, name)

        @wraps(real)
        def faulty(*given: Any, **named: Any) -> Any:
            idle = isinstance(given[-1], list) and not given[-1]  # no work: no call
            rule = None if idle else rules.due(where)
            if rule and rule.what == "hang":
                rules.hold(rule)
            elif rule:
                rule.act()
            at = poison if rule and rule.what == "nan" else None
            if at is not None and at >= 0:
                given = (*given[:at], _poisoned(given[at]), *given[at + 1 :])
            made = real(*given, **named)
            return _poisoned(made) if at == -1 else made

        setattr(owner, name, faulty)

    patch(Encoder, "_run", "encoder", poison=1)  # so that keys and values are not finite either
    patch(rendering, "step_together", "flow")
    patch(HiftStream, "push", "vocoder")
    patch(HiftStream, "finish", "vocoder")
    patch(PlainStepper, "decode", "stepper", poison=None)
    patch(PlainStepper, "prefill", "prefill", poison=None)
    patch(Runner, "tail_logits", "logits")
    patch(SileroVad, "probability", "vad")
    patch(TextTokenizer, "encode", "tokenizer", poison=None)
    patch(voice, "save_file", "voices", poison=None)
    patch(VoiceFolder, "remove", "deletions", poison=None)
    patch(tempfile.SpooledTemporaryFile, "rollover", "uploads", poison=None)
    real_time: Callable[[], float] = time.time
    time.time = lambda: real_time() + rules.jump_s()
