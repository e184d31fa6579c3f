"""Plans the corpus: which texts, spoken by which voices, for training and for the examination.

A plan is made from a seed and a number of hours, before any sound; lengths are estimated from the
number of letters. Training takes `hours`: open sentences, then in alternation a dialogue for each
wording, so that every wording is spoken, and one sampled by weight. The examination is additional
and of fixed size: dialogues held out in each way, spoken by one training voice and one unseen
voice, and some training dialogues spoken again by an unseen voice. A quick plan adds training data
and no examination: mostly open sentences of the assistant, sums and open words, each spoken once,
the users' by voices that are cheap to compute. Makes no sound.
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

EXAM_EACH = 260  # dialogues per held-out kind; figures need at least 200
OPEN_ASSISTANT, OPEN_USER = 0.22, 0.16  # shares of the hours that are open sentences
# Of a quick plan. The assistant's voice is the most expensive to compute and still almost half:
# only it teaches how to say new words, which is learned last.
QUICK_OPEN_ASSISTANT = 0.45
OPEN_HELDOUT = 120  # sentences, each by the assistant and by one user
FORMS, MOST_FORMS = 2, 5  # spoken forms of a user's turn: at first, and if it comes again
# Many open words by one voice each teach more than few words by many voices.
_OPEN_FORMS = 1
_LEAST_S = 4.0  # a dialogue takes more
_OPEN_CATEGORIES = frozenset(topic.category for topic in grammar.TOPICS if topic.sample_fact)


@dataclass(frozen=True)
class Planned:
    line: Line
    role: Role
    split: Split


@dataclass
class Plan:
    """The `utterances` by id, and the dialogues that refer to them."""

    seed: int
    utterances: list[Planned] = field(default_factory=list)
    dialogues: list[Dialogue] = field(default_factory=list)
    seconds: float = 0.0  # estimated, training only
    users: dict[str, float] = field(default_factory=lambda: USERS)  # of training, and how often

    def __post_init__(self) -> None:
        self._answers: dict[str, int] = {}
        self._forms: dict[str, list[int]] = defaultdict(list)
        self._rng = random.Random(f"plan {self.seed}")

    def add(self, text: str, voice: str, role: Role, split: Split) -> int:
        """Adds an utterance. A user's varies by its own seed, the assistant's never."""
        number = len(self.utterances)
        seed = "" if role == "assistant" else f"{self.seed} {number}"
        self.utterances.append(Planned(Line(text, voice, seed), role, split))
        self.seconds += guess_seconds(text) if split == "train" else 0
        return number

    def answer(self, text: str, split: Split) -> int:
        """Returns the one utterance in which the assistant says a text; training comes first."""
        if text not in self._answers:
            self._answers[text] = self.add(text, ASSISTANT, "assistant", split)
        return self._answers[text]

    def said(self, text: str, at_first: int) -> list[int]:
        """Returns utterances of a user's text by training voices: some, and one more each time it
        comes again."""
        forms = self._forms[text]
        wanted = at_first if not forms else min(len(forms) + 1, MOST_FORMS)
        for _ in range(wanted - len(forms)):
            forms.append(self.add(text, self.seen_voice(), "user", "train"))
        return list(forms)

    def exam_forms(self, text: str) -> list[int]:
        """Returns one utterance by a training voice and one by an unseen voice; both are held
        out."""
        return [self.add(text, self.seen_voice(), "user", "heldout"), self._unseen(text)]

    def say_unseen(self, dialogue: Dialogue) -> None:
        """Adds an unseen voice to a training dialogue."""
        for turn in dialogue.turns:
            if turn.role == "user":
                turn.utterances.append(self._unseen(turn.text))

    def _unseen(self, text: str) -> int:
        return self.add(text, self._rng.choice(HELDOUT_USERS), "user", "heldout")

    def seen_voice(self) -> str:
        return self._rng.choices(list(self.users), list(self.users.values()))[0]

    def talk(self, talk: Talk, forms: int = FORMS) -> None:
        """Plans a dialogue with `forms` utterances of each new question; questions with open words
        have one."""
        turns = []
        at_first = _OPEN_FORMS if talk.category in _OPEN_CATEGORIES else forms
        for asked, reply in talk.turns:
            said = self.said(asked, at_first) if talk.split == "train" else self.exam_forms(asked)
            turns.append(Turn("user", asked, said))
            turns.append(Turn("assistant", reply, [self.answer(reply, talk.split)]))
        number = len(self.dialogues)
        self.dialogues.append(Dialogue(number, talk.category, talk.split, turns, talk.heldout_by))


def guess_seconds(text: str) -> float:
    """Estimates the duration. Measured over all voices: 0.3 s, and 17 or 18 characters a second."""
    return 0.3 + 0.057 * len(text)


def make_plan(hours: float, seed: int, exam_each: int = EXAM_EACH) -> Plan:
    plan = Plan(seed)
    budget = hours * 3600
    rng = random.Random(f"open {seed}")
    texts = _open(plan, rng, budget * OPEN_ASSISTANT, ASSISTANT)
    # Half of the open sentences of users are also said by the assistant, who learns to repeat them.
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
    """Returns only the examination of a plan, every line as in the whole plan: held-out dialogues,
    training dialogues by an unseen voice, and held-out open sentences. Keeps no training line of
    users; keeps the answers of the assistant."""
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
    """Yields one item of each source in turn; skips sources that have ended."""
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
    """Adds open sentences, first `texts`, then with words of a pool, up to a duration. Returns the
    texts."""
    until, said = plan.seconds + seconds, dict[str, str]()
    given = iter(texts)
    while plan.seconds < until:
        text = next(given, None) or grammar.sentence(rng, pool)
        if plain(text) not in said:
            said[plain(text)] = text
            role: Role = "user" if voice is None else "assistant"
            plan.add(text, voice or plan.seen_voice(), role, "train")
    return list(said.values())
