"""What right answers get by the verdict the model gets, when the codec says them.

The synthesiser's own answers are encoded and rendered as a reply would be. They are begun half a
code later than the answers that the verdict compares with: words and voice are right, the codes are
others, as those of a model that does not know an answer by heart. What is missing to 100 % is lost
by the codec or by the recogniser. A model whose replies are the very codes can have more.
"""

from collections.abc import Iterator

from recipes.bundled.exam.answers import JUDGED
from recipes.bundled.exam.asker import Given
from recipes.bundled.exam.examiner import Examiner
from recipes.bundled.exam.figure import Figure, share
from recipes.bundled.layout import CODE_SAMPLES

_LATER_SAMPLES = CODE_SAMPLES // 2


def measure_reference(examiner: Examiner, most: int | None) -> Iterator[Figure]:
    for name, kind, who, _ in JUDGED:
        dialogues = examiner.exam.some(kind, who, most)
        if not dialogues:
            continue
        given = [
            Given(d.answer, examiner.own_codes(d.own, _LATER_SAMPLES), "stop") for d in dialogues
        ]
        answers = examiner.judge(dialogues, who, given)
        label = f"reference: right answers by the codec, begun half a code later, {name}"
        yield share(f"{label}: right", [a.right for a in answers])
        yield share(f"{label}: the very words heard", [a.strict for a in answers])
        yield share(f"{label}: the very codes", [a.exact for a in answers])
