"""Holds long conversations through the live pipeline and judges every turn of them.

A conversation has eight questions on mixed topics; in every second one, two of them are a dialogue
in which the user says a name and then asks for it. The context is trimmed to what the
model's folder states, as in `chat` and `serve`, so a copy of the folder with another statement
measures another limit. Also judges the model's own transcripts. The turns end by `commit`, without
turn detection and without waiting.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from mosslive.bench.verified import NotVerified
from mosslive.checkpoint.capabilities import folder_capabilities
from mosslive.codec import load_codec
from mosslive.config.capabilities import Medium
from mosslive.engine import Engine
from mosslive.engine.load import load_stepper
from mosslive.rows import WRITE_DOWN_SYSTEM, ReplyKind, RowIds
from mosslive.talk import CodecService, Talk, TalkSettings
from mosslive.talk.cpu_threads import shared_cpu_threads
from mosslive.talk.events import ReplyDone, TalkFault
from recipes.bundled.exam.asker import ModelReply
from recipes.bundled.exam.examiner import Examiner
from recipes.bundled.exam.figure import Figure, ratio, share
from recipes.bundled.exam.folder import RATE_HZ, Dialogue, Speaker, TurnPair
from recipes.bundled.exam.words import same_words, word_errors

TURNS = 8
NAMED = "talk: my name"  # the topic in which a name is told and asked for
_MODES: tuple[tuple[Medium, ReplyKind], ...] = (
    ("text", "text"),
    ("speech", "text"),
    ("speech", "speech"),
)
_SPEAKER: Speaker = "known"
_MOST, _AT_ONCE, _SEED = 200, 8, 1


@dataclass(frozen=True)
class Asked:
    """One turn of a conversation."""

    place: int  # from 0
    pair: TurnPair
    dialogue: Dialogue
    remembered: bool  # whether the answer was said earlier in the conversation


def conversations(dialogues: Sequence[Dialogue], count: int) -> list[list[Asked]]:
    """The same ones for the same examination: questions in random order, and in every second
    conversation a name after the third question."""
    rng = random.Random(_SEED)
    single = [d for d in dialogues if len(d.turn_pairs) == 1]
    names = [d for d in dialogues if d.category == NAMED and len(d.turn_pairs) == 2]
    rng.shuffle(single)
    held: list[list[Asked]] = []
    for number in range(count):
        chosen = [single[(number * TURNS + i) % len(single)] for i in range(TURNS)]
        if names and number % 2:
            chosen[3:5] = [rng.choice(names)]
        turns = [(pair, d) for d in chosen for pair in d.turn_pairs]
        held.append(
            [
                Asked(place, pair, d, pair is not d.turn_pairs[0])
                for place, (pair, d) in enumerate(turns)
            ]
        )
    return held


def measure_conversations(examiner: Examiner, most: int | None) -> Iterator[Figure]:
    """`most`: questions of each kind of conversation."""
    count = max(1, (most or _MOST) // TURNS)
    held = conversations(examiner.exam.select("wording", _SPEAKER), count)
    rows = folder_capabilities(examiner.parts.model).context_rows
    limit = f"{rows} rows" if rows else "no limit is stated"
    for heard, reply in _MODES:
        name = f"conversations, {heard} to {reply}"
        with shared_cpu_threads("cpu"), examiner.stage(name, count * TURNS) as done:
            given = asyncio.run(_hold(examiner, held, heard, reply, done))
        turns = [asked for talk in held for asked in talk]
        marks = _judged(examiner, turns, given, reply)
        both = list(zip(turns, marks, strict=True))
        yield share(f"{name}, first turn: right", [m for t, m in both if not t.place], note=limit)
        later = [m for t, m in both if t.place and not t.remembered]
        yield share(f"{name}, turns 2 to {TURNS}: right", later, note=limit)
        if remembered := [m for t, m in both if t.remembered]:
            yield share(f"{name}, the name of the turn before: right", remembered, note=limit)
    yield from _transcripts(examiner, most or _MOST)


def _judged(
    examiner: Examiner, turns: list[Asked], given: list[ModelReply], reply: ReplyKind
) -> list[bool]:
    if reply == "text":
        pairs = zip(turns, given, strict=True)
        return [same_words(one.text, asked.pair.answer) for asked, one in pairs]
    # Judged as the only question of a dialogue: what is examined is the answer to this turn.
    dialogues = [replace(asked.dialogue, turn_pairs=(asked.pair,)) for asked in turns]
    return [answer.right for answer in examiner.judge(dialogues, _SPEAKER, given)]


def _transcripts(examiner: Examiner, most: int) -> Iterator[Figure]:
    """Yields the word error rates of the model's transcripts: of questions, and of right answers
    as the codec encodes the synthesiser's."""
    pairs = [d.turn_pairs[-1] for d in examiner.exam.select("wording", _SPEAKER, most)]
    sets = {
        "questions": [
            (p.utterances[_SPEAKER].text, examiner.codes(p.utterances[_SPEAKER])) for p in pairs
        ],
        "answers": [(p.answer, examiner.synthesised_codes(p.synthesised)) for p in pairs],
    }
    for name, said in sets.items():
        with examiner.stage(f"transcripts of {name}", len(said)) as done:
            written = examiner.asker.ask(
                [[codes] for _, codes in said], "text", done, WRITE_DOWN_SYSTEM
            )
        errors = [word_errors(one.text, text) for one, (text, _) in zip(written, said, strict=True)]
        yield ratio(f"the model's transcripts of {name}: word error rate", errors)
        yield share(
            f"the model's transcripts of {name}: all words right", [not e for e, _ in errors]
        )


async def _hold(
    examiner: Examiner,
    held: Sequence[Sequence[Asked]],
    heard: Medium,
    reply: ReplyKind,
    done: Callable[[int], None],
) -> list[ModelReply]:
    """Returns the replies to all turns, in order."""
    parts = examiner.parts
    assert parts.codec is not None
    assert parts.voice is not None
    codec = load_codec(parts.codec)
    voice, thread = codec.voice(parts.voice), CodecService(codec)
    rows = folder_capabilities(parts.model).context_rows
    sampling = replace(examiner.asker.sampling, ignored_audio="pad")
    settings = TalkSettings(turns=None, sampling=sampling, lead_s=None, reply=reply)
    if rows:
        settings = replace(settings, context_rows=rows)
    given: dict[int, list[ModelReply]] = {}
    # Its clock stands still: it never refuses speech because the machine is slow.
    async with Engine(*load_stepper(parts.model), clock=lambda: 0.0) as engine:
        places = asyncio.Semaphore(_AT_ONCE)

        async def hold(number: int) -> None:
            async with places:
                talk = Talk(engine, thread, voice, settings)
                try:
                    given[number] = [
                        await _reply(examiner, talk, engine.ids, asked, heard)
                        for asked in held[number]
                    ]
                finally:
                    await talk.close()
                done(len(held[number]))

        try:
            await asyncio.gather(*map(hold, range(len(held))))
        finally:
            await thread.close()
    return [one for number in range(len(held)) for one in given[number]]


async def _reply(
    examiner: Examiner, talk: Talk, ids: RowIds, asked: Asked, heard: Medium
) -> ModelReply:
    if heard == "text":
        talk.push_text(asked.pair.asked)
    else:
        talk.push_audio(examiner.exam.pcm(asked.pair.utterances[_SPEAKER]), RATE_HZ)
        talk.commit()
    async for event in talk.events():
        if isinstance(event, TalkFault):
            raise NotVerified(f"a reply failed: {event.message}")
        if isinstance(event, ReplyDone):
            last = (await talk.settled())[-1]
            said = last.rows if last.role == "assistant" else ()  # an empty reply leaves no turn
            codes = tuple(row[1] for row in said if ids.is_speech(row) and row[1] < ids.eosp)
            return ModelReply(event.text, codes, event.stop)
    raise NotVerified("the event stream ended before the reply")
