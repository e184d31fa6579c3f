"""The most a model can reach: right answers, said by the codec, under the verdict the model gets.

The synthesiser's own answers are encoded and rendered as a reply would be. They are begun half a
code later than they are taught: the words and the voice are right, but the codes are others than
those that the verdict takes for right anyway. What is missing to 100 % is the recogniser's and the
codec's, whatever the language model does.
"""

from collections.abc import Iterator

from mosslive.bench.bundled_answers import JUDGED
from mosslive.bench.bundled_asking import Given
from mosslive.bench.bundled_examiner import Examiner
from mosslive.bench.bundled_figure import Figure, share
from mosslive.bench.bundled_layout import CODE_SAMPLES

_LATER_SAMPLES = CODE_SAMPLES // 2


def measure_ceiling(examiner: Examiner, most: int | None) -> Iterator[Figure]:
    for name, kind, who, _ in JUDGED:
        dialogues = examiner.exam.some(kind, who, most)
        given = [
            Given(d.answer, examiner.own_codes(d.own, _LATER_SAMPLES), "stop") for d in dialogues
        ]
        answers = examiner.judge(dialogues, who, given)
        label = f"ceiling: right answers by the codec, begun half a code later, {name}"
        yield share(f"{label}: right", [a.right for a in answers])
        yield share(f"{label}: the very words heard", [a.strict for a in answers])
