"""Finds a short run that still fails: first fewer sessions, then fewer steps, then fewer pauses.

Delta debugging: halves are left out first, then quarters, down to single parts. A run may fail by
chance, so a candidate is played several times. Does not know servers: the caller plays.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tests.fuzz.script import Run, Session, Step

Fails = Callable[[Run], Awaitable[bool]]
Part = TypeVar("Part")


async def shrink(run: Run, fails: Fails, most_s: float = 600.0) -> Run:
    """`fails`: plays a run; whether it fails in the same way. Begins no try after so many
    seconds."""
    end = time.monotonic() + most_s

    async def tried(candidate: Run) -> bool:
        return time.monotonic() < end and await fails(candidate)

    run = await minimal(run, tried)
    for number in range(len(run)):
        run = await _fewer_steps(run, number, tried)
    together = [replace(session, delay_s=0.0) for session in run]
    return together if await tried(together) else run


async def _fewer_steps(run: Run, number: int, fails: Fails) -> Run:
    """The run with as few steps of this session as possible."""

    def with_steps(steps: Sequence[Step]) -> Run:
        shorter = replace(run[number], steps=tuple(steps))
        return [*run[:number], shorter, *run[number + 1 :]]

    async def fails_with(steps: Sequence[Step]) -> bool:
        return await fails(with_steps(steps))

    return with_steps(await minimal(list(run[number].steps), fails_with))


async def minimal(parts: list[Part], fails: Callable[[list[Part]], Awaitable[bool]]) -> list[Part]:
    """A part of the list that fails and of which no single element can be left out."""
    pieces = 2
    while len(parts) >= 1:
        size = -(-len(parts) // pieces)
        for first in range(0, len(parts), size):
            rest = parts[:first] + parts[first + size :]
            if rest and await fails(rest):
                parts, pieces = rest, max(2, pieces - 1)
                break
        else:
            if size == 1:
                return parts
            pieces = min(len(parts), 2 * pieces)
    return parts


def as_test(run: Run, seed: int, failures: Sequence[str]) -> str:
    """The source of a test that plays the run."""
    why = failures[0].splitlines()[0][:80].replace("\\", "").replace('"', "'")
    lines = [
        f"def test_seed_{seed}(nano_folder: Path) -> None:",
        f'    """{why}"""',
        "    replay(",
        "        nano_folder,",
    ]
    for session in run:
        lines += _session(session)
    return "\n".join([*lines, "    )", ""])


def _session(session: Session) -> list[str]:
    def step(each: Any) -> str:
        return f"                {each!r},"

    head = f"        Session(\n            {session.transport!r},\n            {session.delay_s!r},"
    return [head, "            (", *map(step, session.steps), "            ),", "        ),"]
