"""Runs the parts of the examination in order and collects their figures.

docs/bundled-evaluation.md describes how each part measures.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from mosslive.bench.report import BenchResult, Conditions, conditions_of
from mosslive.config import refuse
from mosslive.config.folders import BUNDLED, find_parts
from mosslive.errors import MossliveError
from recipes.bundled.exam.answers import measure_answers, measure_texts
from recipes.bundled.exam.compare import (
    measure_fp8,
    measure_hearing,
    measure_rendering,
    measure_sampling,
)
from recipes.bundled.exam.conversations import measure_conversations
from recipes.bundled.exam.examiner import Answer, Examiner, Stage
from recipes.bundled.exam.fetch import JUDGES_FOLDER, NPM_PACKAGE
from recipes.bundled.exam.figure import LEAST_COUNT, Figure
from recipes.bundled.exam.folder import Exam
from recipes.bundled.exam.human import measure_human
from recipes.bundled.exam.judges import Judges
from recipes.bundled.exam.live import measure_live
from recipes.bundled.exam.reference import measure_reference

_PARTS: dict[str, str] = {
    "answers": "spoken questions, spoken answers, and their sound",
    "text": "written answers",
    "reference": "right answers spoken by the codec, judged alike",
    "hearing": "codes computed live against codes of the whole turn",
    "codec": "settings of rendering, compared",
    "sampling": "the folder's sampling against the driver's",
    "fp8": "the float8 build, same questions",
    "human": "two recordings of people through the codec",
    "live": "time to first audio and speed of live conversations",
    "conversations": "conversations of eight turns, and the model's own transcripts",
}
PARTS = tuple(_PARTS)
NOTES = {
    "right": "the transcript has the words of the accepted text, with numbers as words and without "
    "case and punctuation; or it equals the transcript of the right answer spoken by the "
    "synthesiser or the codec; or the codes are those of that answer",
    "exact words heard": "only the first of these; its ceiling is that of the synthesiser's own "
    "answers",
    "where the synthesiser is understood": "only questions whose answer the recogniser understands "
    "from the synthesiser: there the verdict is about the model",
    "intervals": "95 %: Wilson for shares, bootstrap over replies for word error rates and "
    "medians, normal for means",
    "replies that do not end": "those that did not stop within 250 rows, 20 s",
    "judges": f"Moonshine base, int8, of npm {NPM_PACKAGE}; DNSMOS of PyPI speechmos",
    "taught by": "synthetic voices; synthetic voices also speak the questions",
}


def _silent(_: str, __: int) -> AbstractContextManager[Callable[[int], None]]:
    return nullcontext(lambda _: None)


@dataclass(frozen=True)
class ExamSettings:
    exam: Path
    model: str = BUNDLED
    judges: Path = JUDGES_FOLDER
    parts: tuple[str, ...] = PARTS
    questions: int | None = None  # per set at most; None: all
    answers: Path | None = None  # file for all answers
    threads: int | None = None  # of PyTorch; None: its default

    def __post_init__(self) -> None:
        for part in self.parts:
            if part not in _PARTS:
                raise refuse("part", part, ", ".join(_PARTS))
        for name in ("questions", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise refuse(name, value, "1 or more")

    @property
    def command(self) -> str:
        words = [f"mosslive bench bundled {self.model} --exam {self.exam}"]
        if self.parts != PARTS:
            words += [f"--part {part}" for part in self.parts]
        if self.questions is not None:
            words.append(f"--questions {self.questions}")
        if self.threads is not None:
            words.append(f"--threads {self.threads}")
        return " ".join(words)


@dataclass(frozen=True)
class ExamResult:
    conditions: Conditions
    figures: tuple[Figure, ...]
    refused: tuple[str, ...] = ()  # parts that failed, with the reason

    def document(self) -> dict[str, Any]:
        rows = [asdict(f) | {"met": f.met, "few": f.few} for f in self.figures]
        conditions = asdict(self.conditions)
        return {"conditions": conditions, "figures": rows, "refused": self.refused}

    def as_table(self) -> BenchResult:
        """Returns the result for the text and HTML reports."""
        values = {figure.name: line(figure) for figure in self.figures}
        title = "the bundled model"
        return BenchResult(title, self.conditions, None, (), figures=values, refused=self.refused)


def line(figure: Figure) -> str:
    """Formats a figure: '93.1 % (95 %: 89.3-95.6) of 260; goal >= 90: met'."""
    interval = f" (95 %: {figure.interval})" if figure.interval else ""
    goal = f"; goal {figure.verdict}" if figure.verdict else ""
    note = f"; {figure.note}" if figure.note else ""
    return f"{figure.shown}{interval} of {figure.sample_size}{goal}{note}"


def measure_exam(
    settings: ExamSettings,
    seen: Callable[[Figure], None] = lambda _: None,
    stage: Stage = _silent,
) -> ExamResult:
    """Calls `seen` with each figure when it is ready."""
    if settings.threads:
        torch.set_num_threads(settings.threads)
    judges = Judges(settings.judges)
    exam = Exam(settings.exam)
    parts = find_parts(settings.model)
    if parts.codec is None or parts.voice is None:
        raise MossliveError(
            f"{settings.model}: no codec or no voice; the folder needs lm, codec and "
            "voices/default.voice"
        )
    examiner = Examiner(parts, exam, judges, stage)
    figures: list[Figure] = []
    kept: list[Answer] = []
    refused: list[str] = []
    for part in settings.parts:
        try:
            for figure in _measure(part, examiner, settings.questions, kept):
                named = replace(figure, part=part)
                figures.append(named)
                seen(named)
        except MossliveError as error:  # continue with the other parts
            refused.append(f"{part}: {error}")
    if settings.answers:
        lines = [json.dumps(answer.document(), ensure_ascii=False) + "\n" for answer in kept]
        settings.answers.write_text("".join(lines), encoding="utf-8")
    conditions = _conditions(settings, exam, examiner)
    return ExamResult(conditions, tuple(figures), tuple(refused))


def _measure(
    part: str, examiner: Examiner, most: int | None, kept: list[Answer]
) -> Iterator[Figure]:
    if part == "answers":
        return measure_answers(examiner, most, kept)
    if part == "human":
        return measure_human(examiner)
    measures: dict[str, Callable[[Examiner, int | None], Iterator[Figure]]] = {
        "text": measure_texts,
        "reference": measure_reference,
        "hearing": measure_hearing,
        "codec": measure_rendering,
        "sampling": measure_sampling,
        "fp8": measure_fp8,
        "live": measure_live,
        "conversations": measure_conversations,
    }
    return measures[part](examiner, most)


def _conditions(settings: ExamSettings, exam: Exam, examiner: Examiner) -> Conditions:
    made = {name: exam.meta.get(name) for name in ("hours_asked", "seed", "exam_each")}
    sampling = examiner.asker.sampling
    decoding = "greedy" if sampling.greedy else f"sampled: {sampling}"
    notes = NOTES | {
        "threads": f"{torch.get_num_threads()} of PyTorch on {os.cpu_count()} cores",
        "examination": f"{len(exam.dialogues)} dialogues, made with {made}",
        "replies": decoding,
        "fewer": f"a figure of fewer than {LEAST_COUNT} questions is marked",
    }
    where = "of the package" if settings.model == BUNDLED else str(settings.model)
    return conditions_of(settings.command, "cpu", "bundled voice", f"weights {where}", notes)
