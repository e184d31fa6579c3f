"""Asks the questions, renders and transcribes the replies, and decides whether they are right.

An answer is right if the transcript has the words of the accepted text. The recogniser itself fails
on some single words, letters and numbers, whatever says them. So an answer is also right if its
transcript equals that of the right answer spoken by the synthesiser, or by the codec from the
synthesiser's codes, or if its codes are those codes. Both counts are reported. Caches everything it
computes. Knows no goals and no tables.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from mosslive.config.folders import Parts
from mosslive.rows import ReplyKind
from recipes.bundled.exam.asker import Asker, ModelReply, UserTurn
from recipes.bundled.exam.folder import RATE_HZ, Dialogue, Exam, Kind, Speaker, Utterance
from recipes.bundled.exam.judges import Judges, TranscriptCache, Wave
from recipes.bundled.exam.rendering import Codes, Renderer
from recipes.bundled.exam.words import same_words
from recipes.bundled.layout import lay_out

# (label, total) → context manager that gives a function to call with the progress.
Stage = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
_LEAST_CODES = 2  # fewer cannot be a word


@dataclass(frozen=True)
class Answer:
    """One reply and its verdict."""

    dialogue: Dialogue
    speaker: Speaker
    reply: ModelReply
    heard: str
    strict: bool  # the transcript has the words of the answer
    right: bool  # or the transcript equals that of the right answer
    exact: bool  # the codes equal those of the synthesiser's answer

    @property
    def empty(self) -> bool:
        return len(self.reply.codes) < _LEAST_CODES or not self.heard

    def document(self) -> dict[str, object]:
        return {
            "dialogue": self.dialogue.number,
            "kind": self.dialogue.kind,
            "category": self.dialogue.category,
            "voice": self.dialogue.turn_pairs[-1].utterances[self.speaker].voice,
            "asked": [pair.asked for pair in self.dialogue.turn_pairs],
            "expected": self.dialogue.answer,
            "heard": self.heard,
            "strict": self.strict,
            "right": self.right,
            "exact_codes": self.exact,
            "codes": len(self.reply.codes),
            "stop": self.reply.stop,
        }


class Examiner:
    def __init__(self, parts: Parts, exam: Exam, judges: Judges, stage: Stage) -> None:
        assert parts.codec is not None
        assert parts.voice is not None
        self.parts, self.exam, self.judges, self.stage = parts, exam, judges, stage
        self.renderer = Renderer(parts.codec, parts.voice)
        self._codes: dict[int, Codes] = {}  # by utterance number, from the whole turn
        # By number of the synthesiser's utterance and delay in samples.
        self._taught: dict[tuple[int, int], Codes] = {}
        self._transcripts = TranscriptCache(exam)
        self._heard: dict[tuple[Renderer, Codes], str] = {}

    @cached_property
    def asker(self) -> Asker:
        return Asker.load(self.parts.model)

    def asker_of(self, engine: Path) -> Asker:
        """Loads another build of the same model, with the sampling of the model's folder."""
        return Asker.load(engine, self.asker.sampling)

    def codes(self, utterance: Utterance) -> Codes:
        if utterance.number not in self._codes:
            found = self.renderer.codec.encode(self.exam.pcm(utterance), RATE_HZ)
            self._codes[utterance.number] = tuple(found)
        return self._codes[utterance.number]

    def synthesised_codes(self, utterance: Utterance, delay: int = 0) -> Codes:
        """Returns the codes of a synthesised answer in the layout of training. With a `delay` in
        samples the same answer has other codes."""
        if (utterance.number, delay) not in self._taught:
            pcm = lay_out((self.exam.pcm(utterance) * 32768).astype(np.int16), "assistant", delay)
            found = self.renderer.codec.encode(np.divide(pcm, 32768, dtype=np.float32), RATE_HZ)
            self._taught[utterance.number, delay] = tuple(found)
        return self._taught[utterance.number, delay]

    def transcribe_synthesised(self, utterances: Sequence[Utterance]) -> list[str]:
        """Returns the transcripts of the synthesiser's utterances."""
        fresh = {f.number: f for f in utterances if f.number not in self._transcripts.texts}
        with self.stage("the synthesiser's own answers", len(fresh)) as done:
            for utterance in fresh.values():
                heard = self.judges.transcribe(self.exam.pcm(utterance), RATE_HZ)
                self._transcripts.texts[utterance.number] = heard
                done(1)
        if fresh:
            self._transcripts.save()
        return [self._transcripts.texts[utterance.number] for utterance in utterances]

    def render(self, replies: Sequence[Codes], renderer: Renderer | None = None) -> list[Wave]:
        with self.stage("rendering", len(replies)) as done:
            return (renderer or self.renderer).render(replies, done)

    def transcribe(self, replies: Sequence[Codes], renderer: Renderer | None = None) -> list[str]:
        """Returns the transcripts of replies that the codec renders."""
        renderer = renderer or self.renderer
        waves = dict(zip(replies, self.render(replies, renderer), strict=True))
        fresh = [codes for codes in waves if (renderer, codes) not in self._heard]
        with self.stage("listening", len(fresh)) as done:
            for codes in fresh:
                self._heard[renderer, codes] = self.judges.transcribe(
                    waves[codes], renderer.rate_hz
                )
                done(1)
        return [self._heard[renderer, codes] for codes in replies]

    def user_turns(self, dialogue: Dialogue, speaker: Speaker) -> list[UserTurn]:
        return [self.codes(pair.utterances[speaker]) for pair in dialogue.turn_pairs]

    def ask(
        self,
        dialogues: Sequence[Dialogue],
        talks: Iterable[Sequence[UserTurn]],
        reply: ReplyKind,
        asker: Asker | None = None,
    ) -> list[ModelReply]:
        with self.stage("encoding", len(dialogues)) as done:
            prepared = []
            for talk in talks:
                prepared.append(talk)
                done(1)
        with self.stage("asking", len(dialogues)) as done:
            return (asker or self.asker).ask(prepared, reply, done)

    def examine(
        self, kind: Kind, speaker: Speaker, most: int | None, asker: Asker | None = None
    ) -> list[Answer]:
        """Asks spoken questions and judges the spoken answers."""
        dialogues = self.exam.select(kind, speaker, most)
        given = self.ask(
            dialogues, (self.user_turns(d, speaker) for d in dialogues), "speech", asker
        )
        return self.judge(dialogues, speaker, given)

    def judge(
        self, dialogues: Sequence[Dialogue], speaker: Speaker, given: Sequence[ModelReply]
    ) -> list[Answer]:
        heard = self.transcribe([one.codes for one in given])
        wrong = [
            d.synthesised
            for d, text in zip(dialogues, heard, strict=True)
            if not same_words(text, d.answer)
        ]
        self.transcribe_synthesised(wrong)
        self.transcribe([self.synthesised_codes(utterance) for utterance in wrong])
        return [
            self._answer(d, speaker, one, text)
            for d, one, text in zip(dialogues, given, heard, strict=True)
        ]

    def _answer(
        self, dialogue: Dialogue, speaker: Speaker, given: ModelReply, heard: str
    ) -> Answer:
        strict = same_words(heard, dialogue.answer)
        exact = given.codes == self.synthesised_codes(dialogue.synthesised)
        right = strict or exact
        if not right and heard:
            synthesised, copied = (
                self.transcribe_synthesised([dialogue.synthesised]),
                self.transcribe([self.synthesised_codes(dialogue.synthesised)]),
            )
            right = any(same_words(heard, other) for other in (*synthesised, *copied))
        return Answer(dialogue, speaker, given, heard, strict, right, exact)
