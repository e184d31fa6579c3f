"""Faults on purpose: which call of which part fails, and how.

Rules are JSON in a file, so that one running server can be given one fault after the other. They
are read again when the file changes, and calls are counted from then on. Any thread may ask. Knows
parts by name only; `patches.py` connects them with the product.
"""

import json
import os
import random
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch

What = Literal[
    "error", "memory", "gpu-memory", "device", "exit", "sleep", "hang", "nan", "disk", "jump"
]
# As PyTorch prints it when a kernel has written beyond its memory.
LOST = "CUDA error: an illegal memory access was encountered"
INJECTED = "injected"


@dataclass(frozen=True)
class Rule:
    """`where`: a part. `call`: the first call of it that fails, counted from 1. `times`: how many
    calls fail from there on; None: all. `chance`: of each of them. `seconds`: of a sleep or a
    jump."""

    where: str
    what: What
    call: int = 1
    times: int | None = 1
    chance: float = 1.0
    seconds: float = 0.0

    def act(self) -> None:
        """Raises or sleeps. Wrong output ("nan"), calls that hang until the rules change, and a
        clock that jumps are made elsewhere."""
        match self.what:
            case "error":
                raise RuntimeError(INJECTED)
            case "memory":
                raise MemoryError(INJECTED)
            case "gpu-memory":
                raise torch.OutOfMemoryError(f"CUDA out of memory. {INJECTED}")
            case "device":
                raise torch.AcceleratorError(LOST)
            case "exit":
                raise SystemExit(INJECTED)
            case "disk":
                raise OSError(28, "No space left on device")
            case "sleep":
                time.sleep(self.seconds)


def write_rules(path: Path, *rules: Rule) -> None:
    """In one step: a reader sees the old rules or the new ones."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps([asdict(rule) for rule in rules]))
    part.replace(path)


class Rules:
    """The rules of a process."""

    def __init__(self, path: Path, seed: int = 0) -> None:
        self._path, self._random = path, random.Random(seed)
        self._lock = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        self._rules: list[Rule] = []
        self._calls: Counter[str] = Counter()

    def due(self, where: str) -> Rule | None:
        """The rule that this call of a part breaks by. Counts the call."""
        with self._lock:
            self._read()
            self._calls[where] += 1
            count = self._calls[where]
            for rule in self._rules:
                last = float("inf") if rule.times is None else rule.call + rule.times - 1
                due = rule.where == where and rule.call <= count <= last
                if due and (rule.chance >= 1 or self._random.random() < rule.chance):
                    return rule
        return None

    def hold(self, rule: Rule) -> None:
        """Returns when this rule is no longer in force."""
        while rule in self._rules:
            time.sleep(0.01)
            with self._lock:
                self._read()

    def jump_s(self) -> float:
        """How far the clock of the day has jumped."""
        with self._lock:
            self._read()
            return sum(rule.seconds for rule in self._rules if rule.what == "jump")

    def _read(self) -> None:
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return
        if self._stamp != (stamp := (found.st_ino, found.st_mtime_ns)):
            self._stamp = stamp
            self._rules = [Rule(**raw) for raw in json.loads(self._path.read_text())]
            self._calls.clear()
