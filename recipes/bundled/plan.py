"""What the corpus will hold: which texts, said by whom, for training and for the examination.

A plan is made from a seed and a number of hours before any sound is; lengths are guessed from the
number of letters. Training takes `hours`: open sentences, then by turns a dialogue for the sake of
its wording, so that every wording is said, and one drawn by weight. The examination comes on top
and is of fixed size: dialogues held out in each way, said by one voice of training and by one that
is not, and some of the training dialogues said once more by an unseen voice. A quick plan is more
to learn from and no examination: open sentences of the assistant, sums and open words above all,
each said once, the users' by voices that cost little. Nothing here makes sound.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from recipes.bundled import grammar
from recipes.bundled.corpus import Dialogue, Role, Split, Turn
from recipes.bundled.grammar import Talk
from recipes.bundled.grammar.rules import Pool, plain
from recipes.bundled.voices import ASSISTANT, HELDOUT_USERS, QUICK_USERS, USERS, Line

EXAM_EACH = 260  # dialogues per way of being held out; figures want at least 200
OPEN_ASSISTANT, OPEN_USER = 0.22, 0.16  # shares of the hours that are open sentences
# Of a quick plan. The assistant's voice is the dearest, and yet almost half: how to say words that
# were never said is learned last, and from nothing else.
QUICK_OPEN_ASSISTANT = 0.45
OPEN_HELDOUT = 120  # sentences, each by the assistant and by one user
FORMS, MOST_FORMS = 2, 5  # spoken forms of a user's turn: at first, and if it comes again
# With open words, many words said by one voice each teach more than few words said by many.
_OPEN_FORMS = 1
_LEAST_S = 4.0  # a dialogue takes more
_OPEN_CATEGORIES = frozenset(topic.category for topic in grammar.TOPICS if topic.draw)


@dataclass(frozen=True)
class Planned:
    line: Line
    role: Role
    split: Split


@dataclass
class Plan:
    """`utterances` by id, and the dialogues that refer to them."""

    seed: int
    utterances: list[Planned] = field(default_factory=list)
    dialogues: list[Dialogue] = field(default_factory=list)
    seconds: float = 0.0  # guessed, training only
    users: dict[str, float] = field(default_factory=lambda: USERS)  # of training, and how often

    def __post_init__(self) -> None:
        self._answers: dict[str, int] = {}
        self._forms: dict[str, list[int]] = defaultdict(list)
        self._rng = random.Random(f"plan {self.seed}")

    def add(self, text: str, voice: str, role: Role, split: Split) -> int:
        """One more utterance; a user's varies by its own seed, the assistant's never."""
        number = len(self.utterances)
        seed = "" if role == "assistant" else f"{self.seed} {number}"
        self.utterances.append(Planned(Line(text, voice, seed), role, split))
        self.seconds += guess_seconds(text) if split == "train" else 0
        return number

    def answer(self, text: str, split: Split) -> int:
        """The assistant says a text once, whatever asks for it; training comes first."""
        if text not in self._answers:
            self._answers[text] = self.add(text, ASSISTANT, "assistant", split)
        return self._answers[text]

    def said(self, text: str, at_first: int) -> list[int]:
        """Forms of a user's text by voices of training: some, and one more when it comes again."""
        forms = self._forms[text]
        wanted = at_first if not forms else min(len(forms) + 1, MOST_FORMS)
        for _ in range(wanted - len(forms)):
            forms.append(self.add(text, self.seen_voice(), "user", "train"))
        return list(forms)

    def exam_forms(self, text: str) -> list[int]:
        """A form by a voice of training and one by an unseen voice; both are held out."""
        return [self.add(text, self.seen_voice(), "user", "heldout"), self._unseen(text)]

    def say_unseen(self, dialogue: Dialogue) -> None:
        """Let an unseen voice say a training dialogue, too."""
        for turn in dialogue.turns:
            if turn.role == "user":
                turn.utterances.append(self._unseen(turn.text))

    def _unseen(self, text: str) -> int:
        return self.add(text, self._rng.choice(HELDOUT_USERS), "user", "heldout")

    def seen_voice(self) -> str:
        return self._rng.choices(list(self.users), list(self.users.values()))[0]

    def talk(self, talk: Talk, forms: int = FORMS) -> None:
        """`forms` of each question, at first; of open words always one."""
        turns = []
        at_first = _OPEN_FORMS if talk.category in _OPEN_CATEGORIES else forms
        for asked, reply in talk.turns:
            said = self.said(asked, at_first) if talk.split == "train" else self.exam_forms(asked)
            turns.append(Turn("user", asked, said))
            turns.append(Turn("assistant", reply, [self.answer(reply, talk.split)]))
        number = len(self.dialogues)
        self.dialogues.append(Dialogue(number, talk.category, talk.split, turns, talk.heldout_by))


def guess_seconds(text: str) -> float:
    """Measured over all voices: 0.3 s, and 17 or 18 characters a second."""
    return 0.3 + 0.057 * len(text)


def make_plan(hours: float, seed: int, exam_each: int = EXAM_EACH) -> Plan:
    plan = Plan(seed)
    budget = hours * 3600
    rng = random.Random(f"open {seed}")
    texts = _open(plan, rng, budget * OPEN_ASSISTANT, ASSISTANT)
    # Half of what users say openly is what the assistant says, too: it can learn to say it again.
    _open(plan, rng, budget * OPEN_USER / 2, None, rng.sample(texts, len(texts)))
    _open(plan, rng, budget * OPEN_USER / 2, None)
    rough = int(budget / _LEAST_S) + 100  # more dialogues than fit, to take from
    by_weight = grammar.training(rough, seed)
    known: set[tuple[tuple[str, str], ...]] = set()
    for talk in _by_turns(grammar.every_wording(seed), by_weight):
        if plan.seconds >= budget:
            break
        if talk.turns not in known:
            known.add(talk.turns)
            plan.talk(talk)
    for dialogue in rng.sample(plan.dialogues, min(exam_each, len(plan.dialogues))):
        plan.say_unseen(dialogue)
    for heldout_by in grammar.HELDOUT_BY:
        for talk in grammar.heldout(exam_each, heldout_by, seed):
            plan.talk(talk)
    for _ in range(min(OPEN_HELDOUT, exam_each)):
        text = grammar.sentence(rng, "heldout")
        plan.add(text, ASSISTANT, "assistant", "heldout")
        plan.add(text, plan.seen_voice(), "user", "heldout")
    return plan


def make_quick_plan(hours: float, seed: int) -> Plan:
    plan = Plan(seed, users=QUICK_USERS)
    budget = hours * 3600
    rng = random.Random(f"open quick {seed}")
    texts = _open(plan, rng, budget * QUICK_OPEN_ASSISTANT, ASSISTANT, pool="lexicon")
    _open(plan, rng, budget * OPEN_USER, None, texts)
    for talk in grammar.aloud(int(budget / _LEAST_S) + 100, seed):
        if plan.seconds >= budget:
            break
        plan.talk(talk, forms=1)
    return plan


def examination(plan: Plan) -> Plan:
    """The examination of a plan alone, every line as the whole plan has it: dialogues that are held
    out, training dialogues an unseen voice says, and the open sentences held out. Of what users say
    nothing that is trained on is kept; of the assistant, the answers."""
    chosen = Plan(plan.seed)
    number: dict[int, int] = {}

    def keep(old: int) -> int:
        if old not in number:
            number[old] = len(chosen.utterances)
            chosen.utterances.append(plan.utterances[old])
        return number[old]

    for row in plan.dialogues:
        turns = []
        for turn in row.turns:
            own = turn.role == "assistant"
            forms = [i for i in turn.utterances if own or plan.utterances[i].split == "heldout"]
            turns.append((turn, forms))
        if all(forms for _, forms in turns):
            kept = [Turn(t.role, t.text, [keep(i) for i in forms]) for t, forms in turns]
            number_of = len(chosen.dialogues)
            chosen.dialogues.append(
                Dialogue(number_of, row.category, row.split, kept, row.heldout_by)
            )
    for index, planned in enumerate(plan.utterances):
        if planned.split == "heldout":
            keep(index)
    return chosen


def _by_turns(*sources: Iterable[Talk]) -> Iterator[Talk]:
    """One of each source, then the next of each; those that end are left out."""
    for row in zip_longest(*sources):
        yield from (talk for talk in row if talk is not None)


def _open(
    plan: Plan,
    rng: random.Random,
    seconds: float,
    voice: str | None,
    texts: Sequence[str] = (),
    pool: Pool = "train",
) -> list[str]:
    """Open sentences, first of all `texts`, then with words of a pool, until they take so long.
    → what is said."""
    until, said = plan.seconds + seconds, dict[str, str]()
    given = iter(texts)
    while plan.seconds < until:
        text = next(given, None) or grammar.sentence(rng, pool)
        if plain(text) not in said:
            said[plain(text)] = text
            role: Role = "user" if voice is None else "assistant"
            plan.add(text, voice or plan.seen_voice(), role, "train")
    return list(said.values())
