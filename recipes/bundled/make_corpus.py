"""Makes the corpus: `python -m recipes.bundled.make_corpus OUT --hours H --seed S --jobs N`.

    xz -dc voices.tar.xz | tar x        # makes voices/, see pack_voices.sh
    python -m recipes.bundled.make_corpus corpus --voices voices --hours 14 --seed 1 --jobs 16

    python -m recipes.bundled.make_corpus exam --voices voices --hours 14 --seed 1 --only-exam
    python -m recipes.bundled.make_corpus more --voices voices --hours 40 --seed 2 --quick

The result depends on hours, seed and the pack, not on the number of jobs. `--only-exam` makes the
examination of that corpus without training data; `--quick` makes more training data with user
voices that are cheap to compute, and no examination. Needs numpy and no GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import platform
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from recipes.bundled import grammar
from recipes.bundled.corpus import SAMPLE_RATE_HZ, Writer
from recipes.bundled.plan import EXAM_EACH, Plan, Planned, examination, make_plan, make_quick_plan
from recipes.bundled.voices import HELDOUT_USERS, Line, Spoken, check_pack, speak

CHUNK = 64  # lines per task: festival starts once per task
SHORTEST_S, LONGEST_S = 0.2, 12.0
_EVERY_S = 5.0


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Make the speech the bundled voice learns from.")
    parser.add_argument("out", type=Path, help="write this folder")
    parser.add_argument(
        "--voices", type=Path, default=Path("voices"), help="use the unpacked voices in this folder"
    )
    parser.add_argument(
        "--hours", type=float, default=10.0, help="set the hours of training speech"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument(
        "--exam", type=int, default=EXAM_EACH, help="set the dialogues per held-out kind"
    )
    parser.add_argument(
        "--only-exam", action="store_true", help="make only the held-out part of this corpus"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="make more training data: cheap user voices, no examination",
    )
    given = parser.parse_args(arguments)
    if given.quick and given.only_exam:
        parser.error("--quick has no examination: not with --only-exam")
    try:
        check_pack(given.voices)
    except ValueError as error:
        parser.error(f"--voices {error}")
    began = time.monotonic()
    if given.quick:
        plan = make_quick_plan(given.hours, given.seed)
    else:
        plan = make_plan(given.hours, given.seed, given.exam)
    if given.only_exam:
        plan = examination(plan)
    planned_s = time.monotonic() - began
    print(
        f"{len(plan.utterances)} utterances, {len(plan.dialogues)} dialogues planned"
        f" in {planned_s:.1f} s"
    )
    with Writer(given.out) as writer:
        _write(plan, writer, given.voices.resolve(), given.jobs)
        writer.meta = {
            "seed": given.seed,
            "hours_asked": given.hours,
            "exam_each": 0 if given.quick else given.exam,
            "only_exam": given.only_exam,
            "quick": given.quick,
            "unseen_voices": HELDOUT_USERS,
            "planned_s": round(planned_s, 1),
            "wall_s": round(time.monotonic() - began, 1),
            "jobs": given.jobs,
            "grammar_sha256": grammar.digest(),
            "voices_lock_sha256": _digest(given.voices / "voices.lock"),
            "python": platform.python_version(),
            "numpy": np.__version__,
            **_counts(plan),
        }
        hours = writer.samples / SAMPLE_RATE_HZ / 3600
    wall_s = time.monotonic() - began
    print(f"{hours:.2f} h in {wall_s:.0f} s, {hours * 3600 / wall_s:.0f} times real time")


def _write(plan: Plan, writer: Writer, voices: Path, jobs: int) -> None:
    """Speaks in parallel and writes in the order of the plan."""
    began = shown = time.monotonic()
    # A fresh process for each chunk: eSpeak NG carries state over, and a corpus must not depend on
    # who spoke what before. Forked from a server that has the imports done, so it costs little.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([speak.__module__])
    with context.Pool(jobs, maxtasksperchild=1) as pool:
        results = pool.imap(partial(_spoken, folder=voices), _chunks(plan.utterances))
        for planned, made in zip(plan.utterances, _flat(results), strict=True):
            seconds = made.sound.size / SAMPLE_RATE_HZ
            line = planned.line
            if not SHORTEST_S <= seconds <= LONGEST_S or not made.phones:
                raise ValueError(f"{line.voice} said {line.text!r} in {seconds:.2f} s")
            writer.utterance(
                made.sound, line.text, made.phones, line.voice, planned.role, planned.split
            )
            if time.monotonic() - shown > _EVERY_S:
                shown = time.monotonic()
                spoken_s = writer.samples / SAMPLE_RATE_HZ
                print(
                    f"{writer.utterances}/{len(plan.utterances)} utterances,"
                    f" {spoken_s / 3600:.2f} h, {spoken_s / (shown - began):.0f} times real time",
                    flush=True,
                )
    for row in plan.dialogues:
        writer.dialogue(row.category, row.split, row.turns, row.heldout_by)


def _chunks(utterances: list[Planned]) -> Iterator[list[Line]]:
    lines = [planned.line for planned in utterances]
    yield from (lines[start : start + CHUNK] for start in range(0, len(lines), CHUNK))


def _flat(results: Iterator[list[Spoken]]) -> Iterator[Spoken]:
    for chunk in results:
        yield from chunk


def _spoken(lines: list[Line], folder: Path) -> list[Spoken]:
    return speak(lines, folder)


def _counts(plan: Plan) -> dict[str, dict[str, int]]:
    return {
        "utterances_by_split": dict(Counter(row.split for row in plan.utterances)),
        "utterances_by_voice": dict(sorted(Counter(r.line.voice for r in plan.utterances).items())),
        "dialogues_by_category": dict(sorted(Counter(r.category for r in plan.dialogues).items())),
        "dialogues_by_heldout": dict(Counter(r.heldout_by or "train" for r in plan.dialogues)),
    }


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "unknown"


if __name__ == "__main__":
    main()
