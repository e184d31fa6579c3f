"""The examiner: asks questions of the examination, has the replies rendered and heard, and decides.

An answer is right if the recogniser's words are those of the accepted text. The recogniser itself
fails on some single words, letters and numbers, whoever says them; so an answer is also taken for
right if it is heard exactly as the right answer is heard when the teaching synthesiser says it or
when the codec says the synthesiser's codes, or if its codes are those codes. Both counts are told.
Keeps what it computed: nothing is heard twice. Knows nothing of goals or tables.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from mosslive.config.folders import Parts
from mosslive.rows import Reply
from recipes.bundled.exam.asker import Asker, Given, Said
from recipes.bundled.exam.folder import RATE_HZ, Dialogue, Exam, Form, Kind, Who
from recipes.bundled.exam.judges import Judges, OwnHearings, Wave
from recipes.bundled.exam.rendering import Codes, Mouth
from recipes.bundled.exam.words import same_words
from recipes.bundled.layout import laid

# A label and how much there is to do → something to be told how much was done.
Stage = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
_LEAST_CODES = 2  # fewer are no word


@dataclass(frozen=True)
class Answer:
    """One reply and what the judges make of it."""

    dialogue: Dialogue
    who: Who
    given: Given
    heard: str
    strict: bool  # the words heard are the answer's
    right: bool  # or the reply is heard as the right answer is heard
    exact: bool  # its codes are those of the synthesiser's answer

    @property
    def empty(self) -> bool:
        return len(self.given.codes) < _LEAST_CODES or not self.heard

    def document(self) -> dict[str, object]:
        return {
            "dialogue": self.dialogue.number,
            "kind": self.dialogue.kind,
            "category": self.dialogue.category,
            "voice": self.dialogue.exchanges[-1].forms[self.who].voice,
            "asked": [exchange.asked for exchange in self.dialogue.exchanges],
            "expected": self.dialogue.answer,
            "heard": self.heard,
            "strict": self.strict,
            "right": self.right,
            "exact_codes": self.exact,
            "codes": len(self.given.codes),
            "stop": self.given.stop,
        }


class Examiner:
    def __init__(self, parts: Parts, exam: Exam, judges: Judges, stage: Stage) -> None:
        assert parts.codec is not None
        assert parts.voice is not None
        self.parts, self.exam, self.judges, self.stage = parts, exam, judges, stage
        self.mouth = Mouth(parts.codec, parts.voice)
        self._codes: dict[int, Codes] = {}  # by utterance, as the whole turn is heard
        # By utterance of the synthesiser, and how many samples later it is begun.
        self._taught: dict[tuple[int, int], Codes] = {}
        self._own = OwnHearings(exam)
        self._heard: dict[tuple[Mouth, Codes], str] = {}

    @cached_property
    def asker(self) -> Asker:
        return Asker.load(self.parts.model)

    def asker_of(self, engine: Path) -> Asker:
        """Another build of the same model, with the sampling of the model's own folder."""
        return Asker.load(engine, self.asker.sampling)

    # What is said and heard

    def codes(self, form: Form) -> Codes:
        if form.utterance not in self._codes:
            found = self.mouth.codec.encode(self.exam.pcm(form), RATE_HZ)
            self._codes[form.utterance] = tuple(found)
        return self._codes[form.utterance]

    def own_codes(self, form: Form, later: int = 0) -> Codes:
        """Of an answer of the synthesiser, laid out as it is taught; begun so many samples `later`,
        the same answer is other codes."""
        if (form.utterance, later) not in self._taught:
            pcm = laid((self.exam.pcm(form) * 32768).astype(np.int16), "assistant", later)
            found = self.mouth.codec.encode(np.divide(pcm, 32768, dtype=np.float32), RATE_HZ)
            self._taught[form.utterance, later] = tuple(found)
        return self._taught[form.utterance, later]

    def hear_own(self, forms: Sequence[Form]) -> list[str]:
        """What the recogniser hears when the synthesiser itself says these."""
        fresh = {f.utterance: f for f in forms if f.utterance not in self._own.texts}
        with self.stage("the synthesiser's own answers", len(fresh)) as done:
            for form in fresh.values():
                heard = self.judges.hear(self.exam.pcm(form), RATE_HZ)
                self._own.texts[form.utterance] = heard
                done(1)
        if fresh:
            self._own.save()
        return [self._own.texts[form.utterance] for form in forms]

    def render(self, replies: Sequence[Codes], mouth: Mouth | None = None) -> list[Wave]:
        with self.stage("rendering", len(replies)) as done:
            return (mouth or self.mouth).render(replies, done)

    def hear(self, replies: Sequence[Codes], mouth: Mouth | None = None) -> list[str]:
        """What the recogniser hears when the codec renders these."""
        mouth = mouth or self.mouth
        waves = dict(zip(replies, self.render(replies, mouth), strict=True))
        fresh = [codes for codes in waves if (mouth, codes) not in self._heard]
        with self.stage("listening", len(fresh)) as done:
            for codes in fresh:
                self._heard[mouth, codes] = self.judges.hear(waves[codes], mouth.rate_hz)
                done(1)
        return [self._heard[mouth, codes] for codes in replies]

    # Questions and answers

    def talk(self, dialogue: Dialogue, who: Who) -> list[Said]:
        return [self.codes(exchange.forms[who]) for exchange in dialogue.exchanges]

    def ask(
        self,
        dialogues: Sequence[Dialogue],
        talks: Iterable[Sequence[Said]],
        reply: Reply,
        asker: Asker | None = None,
    ) -> list[Given]:
        with self.stage("encoding", len(dialogues)) as done:
            prepared = []
            for talk in talks:
                prepared.append(talk)
                done(1)
        with self.stage("asking", len(dialogues)) as done:
            return (asker or self.asker).ask(prepared, reply, done)

    def examine(
        self, kind: Kind, who: Who, most: int | None, asker: Asker | None = None
    ) -> list[Answer]:
        """Spoken questions, spoken answers."""
        dialogues = self.exam.some(kind, who, most)
        given = self.ask(dialogues, (self.talk(d, who) for d in dialogues), "speech", asker)
        return self.judge(dialogues, who, given)

    def judge(
        self, dialogues: Sequence[Dialogue], who: Who, given: Sequence[Given]
    ) -> list[Answer]:
        heard = self.hear([one.codes for one in given])
        wrong = [
            d.own
            for d, text in zip(dialogues, heard, strict=True)
            if not same_words(text, d.answer)
        ]
        self.hear_own(wrong)
        self.hear([self.own_codes(form) for form in wrong])
        return [
            self._answer(d, who, one, text)
            for d, one, text in zip(dialogues, given, heard, strict=True)
        ]

    def _answer(self, dialogue: Dialogue, who: Who, given: Given, heard: str) -> Answer:
        strict = same_words(heard, dialogue.answer)
        exact = given.codes == self.own_codes(dialogue.own)
        right = strict or exact
        if not right and heard:
            own, copied = self.hear_own([dialogue.own]), self.hear([self.own_codes(dialogue.own)])
            right = any(same_words(heard, other) for other in (*own, *copied))
        return Answer(dialogue, who, given, heard, strict, right, exact)
