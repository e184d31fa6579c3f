"""Dialogues → rows to learn from, in all four modes, as the package's prompt format lays them out.

Which row teaches what follows from the mode machine: while speaking, the audio head's next code and
the end of speech count; the row of the end of speech, and every row of a written reply, count for
the text head. Knows the corpus and codes, not the model. Invariant: an example's rows are those the
live pipeline would have made of the same turns.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mosslive.rows import DRIVER_SYSTEM, PromptFormat, Reply, Row, RowIds, TextTokenizer
from mosslive.rows import Turn as PromptTurn
from mosslive.rows.prompt import PROCESSOR_SYSTEM
from recipes.bundled.corpus import Corpus, Dialogue, Role, Split, Turn
from recipes.bundled.encode_bank import Spoken
from recipes.bundled.grammar import Talk
from recipes.bundled.vocabulary import TASK_SYSTEM

# What a row is to the trainer.
PLAIN, HEARD, SPEAK, WRITE = 0, 1, 2, 3  # HEARD may be misheard; SPEAK, WRITE are to be predicted
_LONGEST_ROWS = 640


@dataclass(frozen=True)
class Tasks:
    """Shares of the examples. Answers are named by what is heard and what is given back."""

    speech_speech: float = 0.50
    speech_text: float = 0.09
    text_speech: float = 0.08
    text_text: float = 0.10
    transcribe: float = 0.08
    read: float = 0.07
    echo: float = 0.08
    driver_system: float = 0.85  # of the answers begin with the driver's system turn; others: none


@dataclass
class Examples:
    """Rows of all examples one after another."""

    text: NDArray[np.int16]
    audio: NDArray[np.int16]
    kind: NDArray[np.int8]
    first: NDArray[np.int64]
    count: NDArray[np.int64]
    names: list[str] = field(default_factory=list)  # the task of each

    def __len__(self) -> int:
        return len(self.first)


class RowBuilder:
    def __init__(
        self, corpus: Corpus, spoken: Spoken, tokenizer: TextTokenizer, ids: RowIds, seed: int
    ) -> None:
        self.corpus, self.spoken, self.ids = corpus, spoken, ids
        self.format = PromptFormat(tokenizer, ids)
        self._host = np.random.default_rng(seed)
        self._versions = len(spoken.codes)
        self._systems = {
            text: np.asarray(self.format.turn(PromptTurn("system", text=text)))
            for text in (*DRIVER_SYSTEM.values(), *PROCESSOR_SYSTEM.values(), *TASK_SYSTEM.values())
        }
        self._texts: dict[str, NDArray[np.int64]] = {}
        self._user, self._assistant = (
            np.asarray(self.format.header(role)) for role in ("user", "assistant")
        )
        self._footer = np.asarray(self.format.footer())
        self._opening = np.asarray(self.format.reply_prefix("speech"))[len(self._assistant) :]

    def answer(self, dialogue: Dialogue, heard: Reply, reply: Reply, split: Split) -> "_Growing":
        """All turns of a dialogue, the user's as `heard` and the assistant's as `reply`."""
        rows = _Growing()
        if self._host.random() < Tasks.driver_system:
            rows.add(self._systems[DRIVER_SYSTEM[reply]], PLAIN)
        for turn in dialogue.turns:
            if turn.role == "user":
                self._ask(rows, turn, heard, split)
            else:
                self._reply(rows, turn.text, self._form(turn, split), reply)
        return rows

    def task(self, name: str, text: str, user: int | None, assistant: int | None) -> "_Growing":
        """One exchange about an open sentence."""
        rows = _Growing()
        rows.add(self._systems[TASK_SYSTEM[name]], PLAIN)
        rows.add(self._user, PLAIN)
        if name == "read":
            rows.add(self._written(text), PLAIN)
        else:
            assert user is not None
            self._speech(rows, user, HEARD)
        rows.add(self._footer, PLAIN)
        self._reply(rows, text, assistant, "text" if name == "transcribe" else "speech")
        return rows

    def _ask(self, rows: "_Growing", turn: Turn, heard: Reply, split: Split) -> None:
        rows.add(self._user, PLAIN)
        if heard == "speech":
            form = self._form(turn, split)
            if form is None:
                raise LookupError("nobody says this turn")
            self._speech(rows, form, HEARD)
        else:
            rows.add(self._written(_as_typed(turn.text, self._host)), PLAIN)
        rows.add(self._footer, PLAIN)

    def _reply(self, rows: "_Growing", text: str, form: int | None, reply: Reply) -> None:
        rows.add(self._assistant, PLAIN)
        if reply == "speech":
            if form is None:
                raise LookupError("the assistant's turn was not recorded")
            self._speech(rows, form, SPEAK)
        else:
            rows.add(self._written(text), WRITE)
        rows.add(self._footer[:1], WRITE)  # the end of the turn is written in either mode
        rows.add(self._footer[1:], PLAIN)

    def _speech(self, rows: "_Growing", utterance: int, kind: int) -> None:
        version = int(self._host.integers(self._versions)) if kind == HEARD else 0
        codes = self.spoken.of(utterance, version).astype(np.int64)
        rows.add(self._opening, PLAIN)
        pad = np.full(len(codes) + 1, self.ids.modality_pad)
        end = np.append(codes, self.ids.eosp)
        rows.add(np.stack((pad, end), 1), kind)
        if kind == HEARD:  # a turn's end is known, not heard
            rows.kinds[-1][-1] = PLAIN

    def _form(self, turn: Turn, split: Split) -> int | None:
        # Held out for its words or for its voice: to be tested, either will do.
        forms = self.corpus.forms(turn, "train" if split == "train" else None)
        return forms[int(self._host.integers(len(forms)))].id if forms else None

    def _written(self, text: str) -> NDArray[np.int64]:
        known = self._texts.get(text)
        if known is None:
            rows: list[Row] = self.format.turn(PromptTurn("user", text=text))
            inner = rows[len(self._user) : -len(self._footer)]
            known = self._texts[text] = np.asarray(inner, dtype=np.int64).reshape(-1, 2)
        return known


class _Growing:
    def __init__(self) -> None:
        self.rows: list[NDArray[np.int64]] = []
        self.kinds: list[NDArray[np.int8]] = []

    def add(self, rows: NDArray[np.int64], kind: int) -> None:
        self.rows.append(rows)
        self.kinds.append(np.full(len(rows), kind, np.int8))

    def joined(self) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
        return np.concatenate(self.rows), np.concatenate(self.kinds)


def _as_typed(text: str, host: np.random.Generator) -> str:
    """People type as they like: sometimes without capitals, sometimes without the last mark."""
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
    """`count` examples by their shares, drawn with replacement; every user turn in any voice and
    version. Examples longer than the limit, or that nobody says, are drawn again. `written`: more
    dialogues that nobody says, for text to text."""
    host = np.random.default_rng(len(builder.corpus.utterances) + count)
    sources: dict[str, Sequence[Any]] = _sources(builder.corpus, split)
    sources["text_text"] = [*sources["text_text"], *written]
    shares = {name: getattr(tasks, name) for name, source in sources.items() if len(source)}
    names = list(shares)
    if not names:
        raise ValueError(f"the corpus has nothing to learn from in the split {split!r}")
    weights = np.asarray(list(shares.values())) / sum(shares.values())
    picked = host.choice(len(names), size=4 * count, p=weights)
    made: list[tuple[NDArray[np.int64], NDArray[np.int8]]] = []
    kept: list[str] = []
    for pick in picked:
        name = names[pick]
        chosen = sources[name][int(host.integers(len(sources[name])))]
        try:
            if isinstance(chosen, Dialogue):
                heard, reply = name.split("_")
                rows = builder.answer(chosen, _mode(heard), _mode(reply), split)
            else:
                text, users, own = chosen
                user = users[int(host.integers(len(users)))] if users else None
                rows = builder.task(name, text, user, own)
        except LookupError:
            continue
        joined = rows.joined()
        if len(joined[0]) <= _LONGEST_ROWS:
            made.append(joined)
            kept.append(name)
        if len(made) == count:
            break
    return _flat(made, kept)


def written_dialogues(talks: Sequence[Talk]) -> list[Dialogue]:
    """Dialogues of the grammar as they are typed; no speech has to be made for them."""
    roles: tuple[Role, Role] = ("user", "assistant")
    return [
        Dialogue(
            number,
            talk.category,
            talk.split,
            [
                Turn(role, text, [])
                for pair in talk.turns
                for role, text in zip(roles, pair, strict=True)
            ],
            talk.heldout_by,
        )
        for number, talk in enumerate(talks)
    ]


def _mode(name: str) -> Reply:
    return "speech" if name == "speech" else "text"


def _sources(corpus: Corpus, split: Split) -> dict[str, Sequence[Any]]:
    """What each task draws from: dialogues, or (text, user utterances, the assistant's)."""
    dialogues = [d for d in corpus.dialogues if d.split == split]
    users: dict[str, list[int]] = defaultdict(list)
    own: dict[str, int] = {}
    for each in corpus.utterances:
        if each.split == split and each.role == "user":
            users[each.text].append(each.id)
        elif each.split == split:
            own[each.text] = each.id
    answers = ("speech_speech", "speech_text", "text_speech", "text_text")
    return {
        **dict.fromkeys(answers, dialogues),
        "transcribe": [(text, said, None) for text, said in users.items()],
        "read": [(text, [], said) for text, said in own.items()],
        "echo": [(text, users[text], said) for text, said in own.items() if text in users],
    }


def _flat(made: Sequence[tuple[NDArray[np.int64], NDArray[np.int8]]], names: list[str]) -> Examples:
    count = np.asarray([len(rows) for rows, _ in made])
    joined = np.concatenate([rows for rows, _ in made]).astype(np.int16)
    return Examples(
        text=joined[:, 0].copy(),
        audio=joined[:, 1].copy(),
        kind=np.concatenate([kinds for _, kinds in made]),
        first=np.concatenate(([0], np.cumsum(count)[:-1])),
        count=count,
        names=names,
    )
