"""Judges right answers spoken by the codec, with the verdict that the model gets.

The synthesiser's own answers are encoded and rendered like a reply. They start half a code later
than the answers that the verdict compares with: words and voice are right, but the codes differ, as
those of a model that has not memorised the answer. What is missing to 100 % is lost by the codec or
the recogniser. A model whose replies have the exact codes can score higher.
"""

from collections.abc import Iterator

from recipes.bundled.exam.answers import JUDGED
from recipes.bundled.exam.asker import ModelReply
from recipes.bundled.exam.examiner import Examiner
from recipes.bundled.exam.figure import Figure, share
from recipes.bundled.layout import CODE_SAMPLES

_DELAY_SAMPLES = CODE_SAMPLES // 2


def measure_reference(examiner: Examiner, most: int | None) -> Iterator[Figure]:
    for name, kind, speaker, _ in JUDGED:
        dialogues = examiner.exam.select(kind, speaker, most)
        if not dialogues:
            continue
        given = [
            ModelReply(d.answer, examiner.synthesised_codes(d.synthesised, _DELAY_SAMPLES), "stop")
            for d in dialogues
        ]
        answers = examiner.judge(dialogues, speaker, given)
        label = f"reference: right answers by the codec, starting half a code later, {name}"
        yield share(f"{label}: right", [a.right for a in answers])
        yield share(f"{label}: exact words heard", [a.strict for a in answers])
        yield share(f"{label}: exact codes", [a.exact for a in answers])
