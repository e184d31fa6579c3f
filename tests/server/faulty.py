"""A server process with a fault in it: `python -m tests.server.faulty MODEL SWITCH FAULT REPLY_S
ADMIT_OVERLOAD`.

The nano language model, and a toy codec that costs nothing. A fault is in force while the file
SWITCH exists; its content is a number that some faults use.

| fault | effect |
|---|---|
| `pause` | the process stops itself (SIGSTOP) in the decode step with the number in SWITCH, once |
| `slow-step` | a decode step takes as many seconds more for each reply in it |
| `step-fails` | every decode step raises |
| `render-fails` | every step of the codec raises |
| `thread-ends` | the next step of the codec ends its thread |
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mosslive.engine import Engine, EngineSettings
from mosslive.engine.load import load_stepper
from mosslive.engine.request import Request
from mosslive.engine.stepper import StepResult
from mosslive.server import run
from mosslive.server.backend import Backend
from mosslive.server.settings import ServerSettings
from mosslive.server.voice_store import VoiceStore
from mosslive.talk import CodecService
from tests.server.rig import settings as rig_settings
from tests.talk.rig import LoudVad
from tests.talk.toy import TOY_VOICE, Samples, ToyBatch, ToyCodec


class Fault:
    def __init__(self, name: str, switch: Path) -> None:
        self.name, self._switch = name, switch

    def value(self, name: str) -> float | None:
        """None: this fault is not in force."""
        if name != self.name or not self._switch.exists():
            return None
        return float(self._switch.read_text() or 0)


def faulty_engine(folder: str, fault: Fault) -> Engine:
    stepper, tokenizer = load_stepper(folder, "cpu", None)
    decode, calls = stepper.decode, [0]

    def with_fault(requests: Sequence[Request]) -> list[StepResult]:
        calls[0] += 1
        if fault.value("pause") == calls[0]:
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep((fault.value("slow-step") or 0.0) * len(requests))
        if fault.value("step-fails") is not None:
            raise RuntimeError("injected")
        return decode(requests)

    stepper.decode = with_fault  # type: ignore[method-assign]
    return Engine(stepper, tokenizer, EngineSettings(deadline_margin=1.0))


class FaultyBatch(ToyBatch):
    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self._fault = fault

    def step(self, replies: Sequence[Any]) -> dict[Any, Samples]:
        if self._fault.value("render-fails") is not None:
            raise RuntimeError("injected")
        if self._fault.value("thread-ends") is not None:
            raise SystemExit("injected")
        return super().step(replies)


def main(folder: str, switch: str, name: str, reply_s: str, admit_overload: str) -> None:
    fault = Fault(name, Path(switch))
    seconds = float(reply_s)

    def load(settings: ServerSettings) -> Backend:
        engine = faulty_engine(folder, fault)
        codec = ToyCodec()
        codec.speaking = FaultyBatch(fault)
        thread = CodecService(codec, priority=engine.priority)
        return Backend(engine, thread, VoiceStore(TOY_VOICE, [], 4), settings, LoudVad)

    run.load_backend = load  # type: ignore[attr-defined]
    changes = {"max_reply_s": seconds, "min_reply_s": 2 * seconds}
    run.serve(rig_settings(**changes, admit_overload=admit_overload == "True"))


if __name__ == "__main__":
    main(*sys.argv[1:])
