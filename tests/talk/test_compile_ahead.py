"""Compiling in processes: shares, notes, and processes that fail."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from mosslive.codec import Sound, load_codec
from mosslive.codec.decoder_batch import DecoderBatch
from mosslive.talk import compile_ahead as module
from mosslive.talk.compile_ahead import (
    CompileJob,
    compile_ahead,
    note_of,
    process_count,
    run_share,
)

JOB = CompileJob("codec", None, "a.voice", {"dtype": "float16"}, 5, 64, "cached")
GIB = 1 << 30


def test_processes_fit_into_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as usable cores and memory allow; a small GPU gets fewer, or none."""
    monkeypatch.setattr("mosslive.talk.compile_ahead.usable_cores", lambda: 16)
    counts = [process_count(JOB, 118_000_000, 50, free * GIB) for free in (130, 20, 3)]
    assert counts == [12, 4, 0]
    assert process_count(replace(JOB, replies=4), 118_000_000, 50, 130 * GIB) == 12


def test_a_note_belongs_to_one_warm_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another precision, number of replies or GPU needs other kernels; the note is in the cache."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    others = [replace(JOB, replies=8), replace(JOB, dtypes={"dtype": "float32"})]
    notes = {note_of(job, "H200") for job in (JOB, *others)} | {note_of(JOB, "H100")}
    assert len(notes) == 4
    assert {note.parent for note in notes} == {tmp_path}


@pytest.mark.parametrize("fails", [False, True])
def test_a_note_is_written_if_all_succeed(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed process leaves no note, so that the next start compiles again; after success it does
    not."""
    program = "import sys; sys.stdin.read(); sys.exit(int(sys.argv[1]))"
    run_all, asked = module._run_all, []

    def run(commands: list[list[str]], given: str) -> list[int]:
        asked.append(given)
        codes = ["0", "1" if fails else "0"]
        return run_all([[sys.executable, "-c", program, code] for code in codes], given)

    monkeypatch.setattr(module, "_run_all", run)
    note = tmp_path / "cache" / "note"
    assert compile_ahead(JOB, 2, note)
    assert note.exists() is not fails
    assert compile_ahead(JOB, 2, note) is fails
    assert len(asked) == 1 + fails
    assert not compile_ahead(JOB, 1, tmp_path / "other"), "one process would gain nothing"


def test_shares_together_run_every_piece_once(
    codec_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pieces of the warm-up are divided among the processes, on the codec of the job."""
    recording = Sound(torch.sin(torch.arange(24_000) / 20), 24_000)
    load_codec(codec_folder).voice(recording).save(tmp_path / "a.voice")
    ran: list[str] = []

    def pieces(kind: str) -> Callable[..., list[Callable[[], None]]]:
        return lambda *_, **__: [partial(ran.append, f"{kind} {n}") for n in range(4)]

    # A batch without recordings of its own; asking a real one computes a reply.
    monkeypatch.setattr(DecoderBatch, "recordings", lambda *_: [])
    monkeypatch.setattr("mosslive.talk.warmup.speaking_pieces", pieces("speak"))
    monkeypatch.setattr("mosslive.talk.warmup.hearing_pieces", pieces("hear"))
    job = replace(
        JOB, codec=str(codec_folder), voice=str(tmp_path / "a.voice"), replies=2, device="cpu"
    )
    for share in range(3):
        run_share(replace(job, device="cpu"), share, 3)
    assert sorted(ran) == sorted(f"{kind} {n}" for kind in ("speak", "hear") for n in range(4))


def test_processes_that_take_too_long_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is left, and their exit codes say so."""
    monkeypatch.setattr(module, "_MOST_SECONDS", 0.2)
    program = "import time; time.sleep(600)"
    assert module._run_all([[sys.executable, "-c", program]] * 2, "{}") == [-9, -9]
