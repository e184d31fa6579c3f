"""Turns dialogues into training rows in all four modes, with the package's prompt format.

The mode machine decides what a row teaches. While speaking, the audio head learns the next code and
the end of speech; the text head learns the row of the end of speech and every row of a written
reply. Most rows of a spoken reply also have letters of its text as targets (`lm_meant`). Knows the
corpus and codes, not the model. Invariant: the rows of an example equal those that the live
pipeline makes of the same turns.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mosslive.rows import DRIVER_SYSTEM, PromptFormat, ReplyKind, Row, RowIds, TextTokenizer
from mosslive.rows import Turn as PromptTurn
from mosslive.rows.prompt import PROCESSOR_SYSTEM
from recipes.bundled.corpus import ROLES, Corpus, Dialogue, Split, Turn
from recipes.bundled.encode_bank import Spoken
from recipes.bundled.grammar import Talk
from recipes.bundled.lm_meant import AHEAD, NOTHING, letters_meant
from recipes.bundled.vocabulary import TASK_SYSTEM

# The role of a row in training.
PLAIN, HEARD, SPEAK, WRITE = 0, 1, 2, 3  # HEARD may be misheard; SPEAK, WRITE are to be predicted
_LONGEST_ROWS = 640
# Categories that need more training than others: letters that sound alike, sums that must be
# computed, and the many fixed sentences of small talk.
_CATEGORY_WEIGHTS = {"spelling": 1.3, "long sums": 1.5, "chat": 1.5}
# Share of the spoken replies in dialogues that begin where the corpus begins them. The others begin
# at any available start within a code (`encode_corpus --starts`), that one included. So a fixed
# reply mostly has one form; other starts and sentences teach how words sound at other positions.
_FIRST_START_SHARE = 0.7
_MOST_TEXTS = 200_000  # remembered as rows


@dataclass(frozen=True)
class Tasks:
    """Weights of the tasks. Answers are named by input and output."""

    speech_speech: float = 0.48
    speech_text: float = 0.07
    text_speech: float = 0.12
    text_text: float = 0.10
    transcribe: float = 0.06
    read: float = 0.16
    echo: float = 0.10
    driver_system: float = 0.85  # of the answers begin with the driver's system turn; others: none


@dataclass
class Examples:
    """Rows of all examples one after another."""

    text: NDArray[np.int16]
    audio: NDArray[np.int16]
    kind: NDArray[np.int8]
    code: NDArray[np.int32]  # of what was heard: its place among the codes of a version; else -1
    meant: NDArray[np.int16]  # [rows, A]: of what is said, letters of its text; else NOTHING
    first: NDArray[np.int64]
    count: NDArray[np.int64]
    names: list[str] = field(default_factory=list)  # the task of each
    groups: list[str] = field(default_factory=list)  # in which way each is held out; or empty

    def __len__(self) -> int:
        return len(self.first)


class Segment(NamedTuple):
    """Some rows of an example. Shared by many examples, so never changed."""

    rows: NDArray[np.int16]  # [n, 2]
    kind: NDArray[np.int8]  # [n]
    code: NDArray[np.int32]  # [n]
    meant: NDArray[np.int16]  # [n, A]


def _segment(rows: Sequence[Row] | NDArray[np.int64], kind: int) -> Segment:
    held = np.asarray(rows, dtype=np.int16).reshape(-1, 2)
    count = len(held)
    return Segment(
        held,
        np.full(count, kind, np.int8),
        np.full(count, -1, np.int32),
        np.full((count, len(AHEAD)), NOTHING, np.int16),
    )


class RowBuilder:
    def __init__(
        self, corpus: Corpus, spoken: Spoken, tokenizer: TextTokenizer, ids: RowIds, seed: int
    ) -> None:
        self.corpus, self.spoken, self.ids = corpus, spoken, ids
        self.format = PromptFormat(tokenizer, ids)
        self.host = np.random.default_rng(seed)
        self._systems = {
            text: _segment(self.format.turn(PromptTurn("system", text=text)), PLAIN)
            for text in (*DRIVER_SYSTEM.values(), *PROCESSOR_SYSTEM.values(), *TASK_SYSTEM.values())
        }
        self._texts: dict[tuple[str, int], Segment] = {}
        self._said: dict[tuple[int, int], Segment] = {}
        headers = (self.format.header(role) for role in ("user", "assistant"))
        self._user, self._assistant = (_segment(rows, PLAIN) for rows in headers)
        end, *rest = self.format.footer()
        self._footer = _segment([end, *rest], PLAIN)
        # The end of the assistant's turn is written in either mode.
        self._ending = _segment([end], WRITE), _segment(rest, PLAIN)
        prefix = self.format.reply_prefix("speech")
        self._opening = _segment(prefix[len(self._assistant.rows) :], PLAIN)

    def answer(
        self, dialogue: Dialogue, heard: ReplyKind, reply: ReplyKind, split: Split
    ) -> "Growing":
        """Returns all turns of a dialogue, the user's as `heard` and the assistant's as `reply`."""
        rows = Growing()
        if self.host.random() < Tasks.driver_system:
            rows.append(self._systems[DRIVER_SYSTEM[reply]])
        for turn in dialogue.turns:
            if turn.role == "user":
                self._ask(rows, turn, heard, split)
            else:
                form = self._form(turn, split) if reply == "speech" else None
                self._reply(rows, turn.text, form)
        return rows

    def task(self, name: str, text: str, user: int | None, assistant: int | None) -> "Growing":
        """Returns one question and answer about an open sentence."""
        rows = Growing((self._systems[TASK_SYSTEM[name]], self._user))
        if name == "read":
            rows.append(self._written(text, PLAIN))
        else:
            assert user is not None
            rows += (self._opening, self._speech(user, HEARD))
        rows.append(self._footer)
        self._reply(rows, text, assistant)
        return rows

    def _ask(self, rows: "Growing", turn: Turn, heard: ReplyKind, split: Split) -> None:
        rows.append(self._user)
        if heard == "speech":
            rows += (self._opening, self._speech(self._form(turn, split), HEARD))
        else:
            rows.append(self._written(_as_typed(turn.text, self.host), PLAIN))
        rows.append(self._footer)

    def _reply(self, rows: "Growing", text: str, form: int | None) -> None:
        """Returns the reply: spoken as `form`, or written if that is None."""
        rows.append(self._assistant)
        if form is None:
            rows.append(self._written(text, WRITE))
        else:
            rows += (self._opening, self._speech(form, SPEAK))
        rows += self._ending

    def _speech(self, utterance: int, kind: int) -> Segment:
        known = self._said.get((utterance, kind))
        if known is None:
            codes = np.append(self.spoken.of(utterance), np.int16(self.ids.eosp))
            pad = np.full(len(codes), self.ids.modality_pad, np.int16)
            known = _segment(np.stack((pad, codes), 1), kind)
            if kind == HEARD:
                known.code[:] = np.arange(len(codes)) + self.spoken.first[utterance]
                known.kind[-1], known.code[-1] = PLAIN, -1  # a turn's end is known, not heard
            else:
                text = self._written(self.corpus.utterances[utterance].text, PLAIN)
                known.meant[:-1] = letters_meant(text.rows[:, 0], len(codes) - 1)
            self._said[utterance, kind] = known
        return known

    def _form(self, turn: Turn, split: Split) -> int:
        forms = spoken_forms(self.corpus, turn, split)
        if not forms:
            raise LookupError(f"no utterance speaks {turn.text!r}")
        if turn.role == "assistant" and self.host.random() < _FIRST_START_SHARE:
            return forms[0]  # later starts come behind
        return forms[int(self.host.integers(len(forms)))]

    def _written(self, text: str, kind: int) -> Segment:
        known = self._texts.get((text, kind))
        if known is None:
            if len(self._texts) > _MOST_TEXTS:
                self._texts.clear()
            rows = self.format.turn(PromptTurn("user", text=text))
            inner = rows[len(self._user.rows) : -len(self._footer.rows)]
            known = self._texts[text, kind] = _segment(inner, kind)
        return known


class Growing(list[Segment]):
    """An example that is built piece by piece."""

    @property
    def length(self) -> int:
        """The number of rows."""
        return sum(len(each.kind) for each in self)

    def joined(self) -> tuple[NDArray[np.int16], NDArray[np.int8]]:
        return np.concatenate([s.rows for s in self]), np.concatenate([s.kind for s in self])


def spoken_forms(corpus: Corpus, turn: Turn, split: Split) -> list[int]:
    """Returns the utterances that can speak this turn. A test of held-out speech uses only held-out
    ones of users; the assistant says most answers in training, too."""
    wanted: Split | None = None if split == "heldout" and turn.role == "assistant" else split
    return [form.id for form in corpus.forms(turn, wanted)]


def _as_typed(text: str, host: np.random.Generator) -> str:
    """Varies typed text: sometimes without capitals, sometimes without the last mark."""
    if host.random() < 0.3:
        text = text.lower()
    return text.rstrip(".?!") if host.random() < 0.3 else text


def build_examples(
    builder: RowBuilder,
    tasks: Tasks,
    count: int,
    split: Split,
    written: Sequence[Dialogue] = (),
) -> Examples:
    """Samples `count` examples by their shares, with replacement; every user turn in any voice.
    Examples longer than the limit are sampled again. `written`: more dialogues without spoken
    questions; some of their answers are spoken."""
    host = builder.host
    sources = _sources(builder.corpus, split, written)
    until = {name: cumulative_shares(source, split) for name, source in sources.items() if source}
    shares = {name: getattr(tasks, name) for name in until}
    names = list(shares)
    if not sum(shares.values()):
        raise ValueError(f"the corpus has no examples in the split {split!r}")
    weights = np.asarray(list(shares.values())) / sum(shares.values())
    made: list[Growing] = []
    kept: list[str] = []
    groups: list[str] = []
    for pick, number in zip(
        host.choice(len(names), size=4 * count, p=weights), host.random(4 * count), strict=True
    ):
        name = names[pick]
        chosen = sources[name][int(np.searchsorted(until[name], number, side="right"))]
        if isinstance(chosen, Dialogue):
            heard, reply = name.split("_")
            rows = builder.answer(chosen, _mode(heard), _mode(reply), split)
            # A test contains a training dialogue only because of its unseen voice.
            group = chosen.heldout_by or ("voice" if split == "heldout" else "")
        else:
            user, own = (
                forms[int(host.integers(len(forms)))] if forms else None
                for forms in (chosen.users, chosen.own)
            )
            rows, group = builder.task(name, chosen.text, user, own), ""
        if rows.length <= _LONGEST_ROWS:
            made.append(rows)
            kept.append(name)
            groups.append(group)
        if len(made) == count:
            break
    return _flat(made, kept, groups)


def cumulative_shares(
    source: Sequence["Dialogue | _Sentence"], split: Split
) -> NDArray[np.float64]:
    """Returns cumulative probabilities from 0 to 1. In training a category with twice as many
    dialogues is sampled only 1.6 times as often, so that large categories do not crowd out the
    rest; some come more often (`_CATEGORY_WEIGHTS`)."""
    names = [each.category if isinstance(each, Dialogue) else "" for each in source]
    many = Counter(names)
    weight = [
        _CATEGORY_WEIGHTS.get(name, 1.0) * many[name] ** -0.3 if split == "train" else 1.0
        for name in names
    ]
    until = np.cumsum(weight)
    found: NDArray[np.float64] = until / until[-1]
    return found


def written_dialogues(talks: Sequence[Talk], corpus: Corpus) -> list[Dialogue]:
    """Returns dialogues of the grammar as typed, which need no speech. In training, a turn has the
    spoken answer if the assistant says it anywhere."""
    own: dict[str, list[int]] = defaultdict(list)
    for each in corpus.utterances:
        if (each.role, each.split) == ("assistant", "train"):
            own[each.text].append(each.id)
    found = []
    for number, talk in enumerate(talks):
        turns = []
        for asked, reply in talk.turns:
            turns += [Turn("user", asked, []), Turn("assistant", reply, own.get(reply, []))]
        found.append(Dialogue(number, talk.category, talk.split, turns, talk.heldout_by))
    return found


def _mode(name: str) -> ReplyKind:
    return "speech" if name == "speech" else "text"


@dataclass(frozen=True)
class _Sentence:
    """An open sentence of the sentence tasks."""

    text: str
    users: list[int]
    own: list[int]


def _sources(
    corpus: Corpus, split: Split, written: Sequence[Dialogue]
) -> dict[str, list[Dialogue | _Sentence]]:
    """Returns the source of each task."""
    users: dict[str, list[int]] = defaultdict(list)
    own: dict[str, list[int]] = defaultdict(list)
    # In a joined corpus the assistant can say a held-out text in training too.
    known = {u.text for u in corpus.utterances if (u.role, u.split) == ("assistant", "train")}
    for each in corpus.utterances:
        if each.split == split and each.role == "user":
            users[each.text].append(each.id)
        elif each.split == split and (split == "train" or each.text not in known):
            own[each.text].append(each.id)
    found: dict[str, list[Dialogue | _Sentence]] = {}
    for name in ("speech_speech", "speech_text", "text_speech", "text_text"):
        said = {
            role
            for role, part in zip(ROLES[::-1], name.split("_"), strict=True)
            if part == "speech"
        }
        # An unseen voice may ask a training question; the typed question would not be held out.
        voices = split == "heldout" and "user" in said
        asked = [d for d in corpus.dialogues if d.split == split or voices]
        found[name] = [
            each
            for each in (*asked, *(written if "user" not in said else ()))
            if all(spoken_forms(corpus, t, split) for t in each.turns if t.role in said)
        ]
    return found | {
        "transcribe": [_Sentence(text, said, []) for text, said in users.items()],
        "read": [_Sentence(text, [], said) for text, said in own.items()],
        "echo": [_Sentence(text, users[text], said) for text, said in own.items() if text in users],
    }


def _flat(made: Sequence[Growing], names: list[str], groups: list[str]) -> Examples:
    count = np.asarray([each.length for each in made])
    joined = np.concatenate([segment.rows for each in made for segment in each])
    return Examples(
        text=joined[:, 0].copy(),
        audio=joined[:, 1].copy(),
        kind=np.concatenate([segment.kind for each in made for segment in each]),
        code=np.concatenate([segment.code for each in made for segment in each]),
        meant=np.concatenate([segment.meant for each in made for segment in each]),
        first=np.concatenate(([0], np.cumsum(count)[:-1])),
        count=count,
        names=names,
        groups=groups,
    )
