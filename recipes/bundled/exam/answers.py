"""Asks the spoken questions of the examination, judges the spoken replies, and rates their sound.

Every set gets the same figures. Figures are yielded one by one.
"""

from collections.abc import Iterator, Sequence

from mosslive.rows import ReplyKind
from recipes.bundled.exam.examiner import Answer, Examiner
from recipes.bundled.exam.figure import Figure, count_of, mean, ratio, share
from recipes.bundled.exam.folder import RATE_HZ, Dialogue, Kind, Speaker
from recipes.bundled.exam.pitch import LENGTH_RANGE, PITCH_RANGE, pitch_hz, within
from recipes.bundled.exam.words import same_words, word_errors

Set = tuple[str, Kind, Speaker, str]  # name, kind, speaker, goal
HEADLINES: tuple[Set, ...] = (
    ("unseen wording", "wording", "known", ">= 90"),
    ("unseen voice", "voice", "unseen", ">= 85"),
    ("unseen wording and voice", "wording", "unseen", ">= 75"),
)
SPELLING: Set = ("spelling of words never heard", "spelling", "known", "")
COMPOSED: tuple[Set, ...] = (
    ("sums never trained", "pair", "known", ""),
    ("names and words never heard", "word", "known", ""),
)
FURTHER: tuple[Set, ...] = (
    ("unseen polite phrase", "frame", "known", ""),
    ("unseen polite phrase and voice", "frame", "unseen", ""),
    SPELLING,
    ("sums never trained, unseen voice", "pair", "unseen", ""),
    ("names and words never heard, unseen voice", "word", "unseen", ""),
)
# Sets for which the ceiling of the recogniser is reported.
JUDGED: tuple[Set, ...] = (HEADLINES[0], *COMPOSED)
RUNAWAYS_IN = 500


def measure_answers(examiner: Examiner, most: int | None, kept: list[Answer]) -> Iterator[Figure]:
    """Measures all sets and adds every answer to `kept`."""
    by_name: dict[str, list[Answer]] = {}
    for name, kind, speaker, goal in (*HEADLINES, *COMPOSED, *FURTHER):
        answers = by_name[name] = examiner.examine(kind, speaker, most)
        kept += answers
        if answers:
            yield from _of_set(f"speech to speech, {name}", answers, goal)
    composed = [answer for name, *_ in COMPOSED for answer in by_name[name]]
    yield from _of_set("speech to speech, composed replies", composed, ">= 80")
    if spelled := by_name[SPELLING[0]]:
        marks = [answer.right for answer in (*composed, *spelled)]
        yield share("speech to speech, composed replies and spelling: right", marks)
    for name, *_ in JUDGED:
        if by_name[name]:
            yield from _where_judged(examiner, name, by_name[name])
    asked = kept[:RUNAWAYS_IN]
    yield count_of("replies that do not end", [a.reply.runaway for a in asked], "<= 0")
    yield count_of("empty replies", [a.empty for a in asked], "<= 0")
    yield from measure_sound(examiner, by_name[HEADLINES[0][0]])


def _of_set(name: str, answers: list[Answer], goal: str) -> Iterator[Figure]:
    yield share(f"{name}: right", [a.right for a in answers], goal)
    yield share(f"{name}: exact words heard", [a.strict for a in answers])
    yield share(f"{name}: exact codes", [a.exact for a in answers])


def _where_judged(examiner: Examiner, name: str, answers: list[Answer]) -> Iterator[Figure]:
    """Yields the recogniser's result on the synthesiser, which is never wrong, and the model's
    result on the questions where the recogniser understands the synthesiser."""
    heard = examiner.transcribe_synthesised([a.dialogue.synthesised for a in answers])
    clear = [same_words(text, a.dialogue.answer) for a, text in zip(answers, heard, strict=True)]
    yield share(f"ceiling: the synthesiser's own answers, {name}, exact words heard", clear)
    judged = [a.right for a, understood in zip(answers, clear, strict=True) if understood]
    if judged:
        yield share(f"speech to speech, {name}: right, where the synthesiser is understood", judged)


def measure_sound(examiner: Examiner, answers: list[Answer]) -> Iterator[Figure]:
    """Measures the sound of the replies: words, rating, pitch and length."""
    pairs = [word_errors(a.heard, a.dialogue.answer) for a in answers]
    yield ratio("word error rate of spoken replies, wrong answers included", pairs, "<= 6")
    right = [pair for pair, a in zip(pairs, answers, strict=True) if a.right]
    if right:
        yield ratio("word error rate of spoken replies, right answers", right)
    dialogues = [a.dialogue for a in answers]
    written = examiner.ask(
        dialogues, (examiner.user_turns(a.dialogue, a.speaker) for a in answers), "text"
    )
    both = [word_errors(a.heard, one.text) for a, one in zip(answers, written, strict=True)]
    yield ratio("word error rate of spoken replies against the model's own written ones", both)
    synthesised = examiner.transcribe_synthesised([a.dialogue.synthesised for a in answers])
    texts = [a.dialogue.answer for a in answers]
    said = [word_errors(text, meant) for text, meant in zip(synthesised, texts, strict=True)]
    yield ratio("ceiling: word error rate of the synthesiser's own answers", said)
    waves = examiner.render([a.reply.codes for a in answers])
    rated, unpaused, taught, pitch_marks, length_marks = [], [], [], [], []
    with examiner.stage("rating", len(waves)) as done:
        for wave, answer in zip(waves, answers, strict=True):
            reference = examiner.exam.pcm(answer.dialogue.synthesised)
            rated.append(examiner.judges.rate(wave, examiner.renderer.rate_hz))
            unpaused.append(examiner.judges.rate(wave, examiner.renderer.rate_hz, pause_s=0))
            taught.append(examiner.judges.rate(reference, RATE_HZ))
            wanted = pitch_hz(reference, RATE_HZ)
            pitch_marks.append(
                within(pitch_hz(wave, examiner.renderer.rate_hz), wanted, PITCH_RANGE)
            )
            seconds = len(wave) / examiner.renderer.rate_hz, len(reference) / RATE_HZ
            length_marks.append(within(seconds[0], seconds[1] + 0.2, LENGTH_RANGE))
            done(1)
    yield mean("DNSMOS overall of spoken replies", rated, goal=">= 2.65")
    yield mean("DNSMOS overall of spoken replies, without the pause around them", unpaused)
    yield mean("ceiling: DNSMOS overall of the synthesiser's own answers", taught)
    yield share("pitch of a reply within 15 % of the synthesiser's", pitch_marks)
    yield share("length of a reply within 2/3 to 3/2 of the synthesiser's", length_marks)


def measure_texts(examiner: Examiner, most: int | None) -> Iterator[Figure]:
    """Measures written answers to written and spoken questions, and spoken composed replies to
    written questions. They show whether a wrong spoken answer was not understood or not said."""
    sets: tuple[tuple[str, Kind, Speaker, str], ...] = (
        ("text to text, unseen wording", "wording", "known", ">= 95"),
        ("text to text, questions of training", "voice", "unseen", ""),
        ("text to text, sums never trained", "pair", "known", ""),
        ("text to text, names and words never read", "word", "known", ""),
        ("text to text, spelling of words never read", "spelling", "known", ""),
        ("speech to text, unseen wording", "wording", "known", ""),
        ("speech to text, unseen wording and voice", "wording", "unseen", ""),
        ("speech to text, sums never trained", "pair", "known", ""),
        ("speech to text, names and words never heard", "word", "known", ""),
    )
    reply: ReplyKind = "text"
    for name, kind, speaker, goal in sets:
        dialogues = examiner.exam.select(kind, speaker, most)
        if not dialogues:  # a small examination can lack spelling
            continue
        spoken = (examiner.user_turns(d, speaker) for d in dialogues)
        talks = _written(dialogues) if name.startswith("text") else spoken
        given = examiner.ask(dialogues, talks, reply)
        marks = [same_words(one.text, d.answer) for d, one in zip(dialogues, given, strict=True)]
        yield share(f"{name}: right", marks, goal)
    for name, kind, speaker, _ in COMPOSED:
        if dialogues := examiner.exam.select(kind, speaker, most):
            said = examiner.ask(dialogues, _written(dialogues), "speech")
            yield from _of_set(
                f"text to speech, {name}", examiner.judge(dialogues, speaker, said), ""
            )


def _written(dialogues: Sequence[Dialogue]) -> Iterator[list[str]]:
    yield from ([pair.asked for pair in d.turn_pairs] for d in dialogues)
