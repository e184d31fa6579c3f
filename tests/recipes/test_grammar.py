"""The grammar of the bundled model: training cannot produce a held-out text."""

import itertools
import random
import re
from collections import Counter, defaultdict
from functools import cache

import pytest

from recipes.bundled.grammar import (
    HELDOUT_BY,
    TOPICS,
    Talk,
    aloud,
    every_wording,
    fixed_words,
    heldout,
    invented,
    sentence,
    training,
    typed,
)
from recipes.bundled.grammar import words as open_words
from recipes.bundled.grammar.language import Language, polite_words, skeleton
from recipes.bundled.grammar.lexicon import LEXICON
from recipes.bundled.grammar.number_line import NUMBER, is_heldout
from recipes.bundled.grammar.numbers import pairs, result
from recipes.bundled.grammar.rules import (
    FRAMES,
    HELDOUT_FRAMES,
    Fact,
    Split,
    Step,
    Topic,
    frames_for,
    plain,
)
from recipes.bundled.grammar.sentences import VOCABULARY
from recipes.bundled.pick_words import known_words

SPLITS: tuple[Split, Split] = ("train", "heldout")
SLOT = re.compile(r"\{\w+\}")
_NUMBERS = "|".join(NUMBER)
SUMS = re.compile(rf"(?=\b({_NUMBERS}) (plus|minus) ({_NUMBERS})\b)")  # those that overlap, too
LEAST_WORDINGS = 14  # of a step that is examined in new wordings
LEAST_OPENINGS = 8  # of a step that only begins a talk
OPEN_SAMPLES = 12  # of an open slot, which takes any words of its vocabulary: a few stand for all
HELDOUT_WORDS = {
    plain(word)
    for word in open_words.HELDOUT_WORDS + open_words.HELDOUT_NAMES + open_words.HELDOUT_VERBS
}


@cache
def trained() -> list[Talk]:
    return training(6000, 0)


@cache
def language(keep_polite: bool) -> Language:
    return Language(TOPICS, frozenset() if keep_polite else polite_words())


def fills(topic: Topic) -> list[Fact]:
    """Returns facts that show every value of every slot of a topic; of open slots, some of either
    split."""
    if topic.sample_fact:
        rng = random.Random(7)
        return [topic.sample_fact(rng, SPLITS[i % 2]) for i in range(OPEN_SAMPLES)]
    chosen, seen = [topic.facts[0]], set(topic.facts[0].slots.items())
    for fact in topic.facts:
        if not seen.issuperset(fact.slots.items()):
            seen |= set(fact.slots.items())
            chosen.append(fact)
    return chosen


@cache
def only_typed() -> list[Talk]:
    return typed(6000, 0)


def said_in(talks: list[Talk]) -> set[str]:
    return {plain(text) for talk in talks for turn in talk.turns for text in turn}


def test_no_frame_turns_a_training_wording_into_a_held_out_one() -> None:
    """Without all polite words, no held-out wording equals a training wording."""
    for topic in TOPICS:
        for wording in {w for step in topic.steps for w in step.heldout}:
            for fact in fills(topic):
                said = wording.format_map(fact.slots)
                clash = language(keep_polite=False).says(said)
                assert not clash, f"{topic.category}: {said!r} can be said by {clash!r}"


@pytest.mark.training
def test_no_held_out_frame_is_in_the_training_language() -> None:
    """A question with a held-out opening or ending is not in the training language."""
    for topic in TOPICS:
        fact = fills(topic)[0]
        for step, wording in ((s, w) for s in topic.steps for w in s.train):
            for opening, ending in frames_for(step, wording, HELDOUT_FRAMES):
                said = f"{opening} {wording.format_map(fact.slots)} {ending}"
                clash = language(keep_polite=True).says(said)
                assert not clash, f"{said!r} can be said by {clash!r}"


@pytest.mark.training
def test_no_held_out_question_is_in_the_training_language() -> None:
    """No examined question with a new wording is in the training language, even without polite
    words; none with a new frame is as it stands."""
    for by, keep_polite in (("wording", False), ("frame", True)):
        talks = heldout(260, by, 1)
        assert len(talks) == 260
        for talk in talks:
            clash = language(keep_polite).says(talk.turns[-1][0])
            assert not clash, f"{talk.turns[-1][0]!r} can be said by {clash!r}"


def test_the_proof_finds_what_it_looks_for() -> None:
    """The proof has enough held-out texts, and finds a training wording in a polite or held-out
    frame as a leak."""
    wordings = [w for topic in TOPICS for step in topic.steps for w in step.heldout]
    assert len(wordings) > 300
    assert len({step.kind for topic in TOPICS for step in topic.steps}) == len(HELDOUT_FRAMES)
    leaks = 0
    for topic in TOPICS:
        fact = fills(topic)[0]
        for step in topic.steps:
            said = step.train[0].format_map(fact.slots)
            assert language(keep_polite=False).says(f"would you kindly {said} now, please"), said
            assert language(keep_polite=True).says(said), said
            leaks += 1
    assert leaks > 60


def every_step() -> list[tuple[Topic, Step]]:
    return [(topic, step) for topic in TOPICS for step in topic.steps]


def literals(wording: str) -> set[str]:
    return set(plain(SLOT.sub(" ", wording)).split())


def test_every_word_of_a_held_out_wording_is_known_from_training() -> None:
    """Each word of a held-out wording is in at least two training wordings of its step, or in a
    training frame."""
    framed = {
        word
        for frames in FRAMES.values()
        for frame in frames
        for word in plain(" ".join(frame)).split()
    }
    for topic, step in every_step():
        known = Counter(word for wording in step.train for word in literals(wording))
        for wording in step.heldout:
            new = {word for word in literals(wording) - framed if known[word] < 2}
            assert not new, f"{topic.category}: {wording!r} has {new}"
    for frame in itertools.chain.from_iterable(HELDOUT_FRAMES.values()):
        assert set(plain(" ".join(frame)).split()) <= framed, frame


def test_every_step_has_many_wordings() -> None:
    """Every step has many wordings and none twice."""
    for topic, step in every_step():
        least = LEAST_WORDINGS if step.heldout else LEAST_OPENINGS
        assert len(step.train) >= least, (topic.category, step.train)
        assert not step.heldout or len(step.heldout) >= 3, (topic.category, step.heldout)
        assert len(set(step.train)) == len(step.train), topic.category


def test_every_wording_is_in_a_dialogue_made_for_it() -> None:
    """`every_wording` leaves no training wording out."""
    said = [plain(text) for talk in every_wording(2) for text, _ in talk.turns]
    for wording in {w for topic in TOPICS for step in topic.steps for w in step.train}:
        body = re.compile(rf"\b{plain(SLOT.sub(' xslot ', wording)).replace('xslot', '.+')}\b")
        assert any(body.search(text) for text in said), wording


def test_held_out_facts_are_asked_by_no_training_question() -> None:
    """No dialogue of a held-out fact equals one of a training fact, over every listed fact and
    training wording."""
    found: set[str] = set()
    for topic in (topic for topic in TOPICS if not topic.sample_fact):
        asked: dict[bool, set[tuple[str, ...]]] = {True: set(), False: set()}
        for fact in topic.facts:
            for chosen in _spread(topic):
                said = tuple(plain(wording.format_map(fact.slots)) for wording in chosen)
                asked[bool(fact.heldout_by)].add(said)
        assert not asked[True] & asked[False], topic.category
        found |= {topic.category} if asked[True] else set()
    assert found == {"plus", "minus", "follow-up sums", "counting", "more or less"}


def _spread(topic: Topic) -> list[tuple[str, ...]]:
    """Returns every training wording of every step, in combinations that show each of them."""
    most = max(len(step.train) for step in topic.steps)
    return [tuple(s.train[n % len(s.train)] for s in topic.steps) for n in range(most)]


def test_long_sums_meet_no_held_out_pair() -> None:
    """Chains of numbers contain and pass through no held-out pair."""
    (topic,) = (topic for topic in TOPICS if topic.category == "long sums")
    assert len(topic.facts) > 3000
    for fact in topic.facts:
        first, then = fact.slots["first"], fact.slots["then"]
        x, y, z = (NUMBER.index(fact.slots[slot]) for slot in "abd")
        between = result(first, x, y)
        met = ((first, x, y), (then, y, z), (then, between, z))
        assert not [sum_ for sum_ in met if is_heldout(*sum_)], fact
        assert NUMBER[result(then, between, z)] == fact.slots["e"]


def test_sampled_sums_use_no_held_out_pair() -> None:
    """Sums between a name and its recall use no held-out pair in training."""
    rng = random.Random(11)
    sampled = [
        topic.sample_fact(rng, split).slots
        for topic in TOPICS
        if topic.sample_fact
        for split in SPLITS
        for _ in range(300)
    ]
    sums = [(slots["a"], slots["b"]) for slots in sampled if "a" in slots and "b" in slots]
    assert len(sums) >= 600
    assert not [pair for pair in sums if is_heldout("plus", *map(NUMBER.index, pair))]


def test_the_language_says_all_that_training_says() -> None:
    """Sampled training questions are in both languages, so the proof covers the real grammar."""
    for talk in trained()[:800]:
        for said, _ in talk.turns:
            assert language(keep_polite=True).says(said), said
            assert language(keep_polite=False).says(said), said


def test_polite_words_cover_every_training_frame() -> None:
    """The skeleton removes every word of a frame, so 'please' does not make a question new."""
    drop = polite_words()
    for opening, ending in itertools.chain.from_iterable(FRAMES.values()):
        assert skeleton(f"{opening} {ending}", drop) == ""
    framed = "Could you please tell me, what is two plus three, please?"
    assert language(keep_polite=False).says(framed) == language(keep_polite=False).says(
        "what is two plus three"
    )


def test_training_and_held_out_frames_share_no_phrase() -> None:
    """No training question starts with a held-out opening."""
    known, new = (
        {plain(part) for pairs in frames.values() for pair in pairs for part in pair}
        for frames in (FRAMES, HELDOUT_FRAMES)
    )
    assert known & new == {""}
    openings = tuple(
        plain(opening) + " "
        for frames in HELDOUT_FRAMES.values()
        for opening, _ in frames
        if opening
    )
    for step in (step for topic in TOPICS for step in topic.steps):
        for wording in step.train:
            assert not plain(wording).startswith(openings), wording


def test_held_out_pairs_are_in_no_training_sum() -> None:
    """No training sum, first or follow-up, uses a held-out pair."""
    every = [talk for topic in TOPICS for talk in all_answers(topic)]
    seen = {found for text in said_in(trained()) | set(every) for found in SUMS.findall(text)}
    for a, sign, b in seen:
        assert not is_heldout(sign, NUMBER.index(a), NUMBER.index(b)), (a, sign, b)
    possible = {(sign, *pair) for sign in ("plus", "minus") for pair in pairs(sign)}
    kept = {key for key in possible if not is_heldout(*key)}
    assert {(sign, NUMBER.index(a), NUMBER.index(b)) for a, sign, b in seen if a != "zero"} >= kept
    assert 0.08 < 1 - len(kept) / len(possible) <= 0.12


def test_held_out_pairs_are_holes_in_a_known_table() -> None:
    """At most a third of the sums of a number or a result are held out, and no two adjacent
    ones."""
    for sign in ("plus", "minus"):
        table = {pair: is_heldout(sign, *pair) for pair in pairs(sign)}
        rows: dict[tuple[str, int], list[bool]] = defaultdict(list)
        for (a, b), held in table.items():
            for row in (("first", a), ("second", b), ("result", result(sign, a, b))):
                rows[row].append(held)
        for row, held_out in rows.items():
            assert sum(held_out) <= len(held_out) / 3, (sign, row)
        for (a, b), held in table.items():
            assert not (held and (table.get((a + 1, b)) or table.get((a, b + 1)))), (sign, a, b)


def test_a_held_out_run_is_counted_in_no_training_answer() -> None:
    """No training answer counts a held-out run: "count to six" equals "count from one to six"."""
    runs: dict[bool, set[str]] = {True: set(), False: set()}
    for topic in (topic for topic in TOPICS if topic.category == "counting"):
        for fact in topic.facts:
            runs[bool(fact.heldout_by)].add(fact.slots["run"])
    assert len(runs[True]) > 10
    assert not runs[True] & runs[False]


def all_answers(topic: Topic) -> list[str]:
    """Returns every answer of a topic with listed facts that training can use."""
    facts = [fact for fact in topic.facts if not fact.heldout_by and not topic.sample_fact]
    return [plain(step.answer.format_map(fact.slots)) for fact in facts for step in topic.steps]


def test_a_held_out_sum_is_held_out_in_both_orders() -> None:
    """A held-out sum is held out in both orders."""
    assert all(is_heldout("plus", a, b) == is_heldout("plus", b, a) for a, b in pairs("plus"))


def test_held_out_words_are_in_no_training_text() -> None:
    """Held-out names and words occur in no training question, answer or open sentence, nor as a
    plural."""
    rng = random.Random(3)
    known = {word for text in said_in(trained() + only_typed()) for word in text.split()}
    known |= {word for _ in range(3000) for word in plain(sentence(rng, "train")).split()}
    for topic in TOPICS:
        lines = [text for step in topic.steps for text in (*step.train, *step.heldout, step.answer)]
        lines += [value for fact in topic.facts for value in fact.slots.values()]
        known |= set(plain(" ".join(lines)).split())
    known |= set(plain(" ".join(open_words.WORDS + open_words.NAMES + open_words.VERBS)).split())
    spread = {form for word in HELDOUT_WORDS for form in (word, word + "s", word + "es")}
    assert not spread & known


@pytest.mark.parametrize("heldout_by", HELDOUT_BY)
def test_held_out_dialogues_say_how_and_are_enough(heldout_by: str) -> None:
    """Each kind has at least 250 different held-out dialogues, and none is a training dialogue."""
    talks = heldout(250, heldout_by, 0)
    assert len({talk.turns for talk in talks}) == 250
    assert {talk.heldout_by for talk in talks} == {heldout_by}
    assert {talk.split for talk in talks} == {"heldout"}
    asked = {tuple(plain(said) for said, _ in talk.turns) for talk in trained()}
    assert not asked & {tuple(plain(said) for said, _ in talk.turns) for talk in talks}
    if heldout_by == "word":
        for talk in talks:
            assert HELDOUT_WORDS & {word for text in said_in([talk]) for word in text.split()}, talk


def test_typed_dialogues_say_nothing_held_out() -> None:
    """Invented words are the only new words of typed dialogues; none contains a held-out word or is
    a word of a topic."""
    real = fixed_words() | {
        plain(word) for word in open_words.WORDS + open_words.NAMES + open_words.VERBS
    }
    courtesies = {word for frames in FRAMES.values() for frame in frames for word in frame}
    real |= set(plain(" ".join(courtesies)).split()) | VOCABULARY - HELDOUT_WORDS
    answers = {w for topic in TOPICS for s in topic.steps for w in literals(s.answer)}
    letters = set("abcdefghijklmnopqrstuvwxyz")
    made = {word for text in said_in(only_typed()) for word in text.split()}
    made -= real | answers | letters
    assert len(made) > 600
    assert not [word for word in made if any(held in word for held in HELDOUT_WORDS)]
    asked = {tuple(plain(said) for said, _ in talk.turns) for talk in only_typed()}
    for by in HELDOUT_BY:
        assert not asked & {tuple(plain(s) for s, _ in t.turns) for t in heldout(250, by, 0)}
    found = {sum_ for text in said_in(only_typed()) for sum_ in SUMS.findall(text)}
    assert len(found) > 300
    assert not [f for f in found if is_heldout(f[1], NUMBER.index(f[0]), NUMBER.index(f[2]))]


def test_half_of_the_typed_open_words_are_invented() -> None:
    """About half of the typed words to spell are invented."""
    spelled = [talk.turns[0][1] for talk in only_typed() if talk.category == "spelling"]
    known = {plain(word) for word in open_words.WORDS + open_words.NAMES}
    new = [text for text in spelled if plain(text).replace(" ", "") not in known]
    assert 0.4 < len(new) / len(spelled) < 0.6
    rng = random.Random(1)
    words = {invented.word(rng) for _ in range(2000)}
    assert len(words) > 1900
    assert all(re.fullmatch("[a-z]{3,9}", word) for word in words)


def test_the_lexicon_is_new_to_the_grammar() -> None:
    """No lexicon word is in a wording, frame or list of the grammar, and none contains a held-out
    word."""
    found = [word for entries in LEXICON.values() for word in entries]
    assert all(len(LEXICON[kind]) > 1200 for kind in ("name", "noun", "adjective", "verb"))
    assert all(re.fullmatch("[A-Za-z][a-z]{2,8}", word) for word in found)
    bare = {plain(word) for word in found}
    assert len(bare) == len(found)
    assert not bare & known_words()
    rng = random.Random(2)
    talks = [talk for by in HELDOUT_BY for talk in heldout(800, by, 0)]
    examined = {plain(asked) for talk in talks for asked, _ in talk.turns}
    examined |= {plain(sentence(rng, "heldout")) for _ in range(2000)}
    assert not bare & {word for text in examined for word in text.split()}
    assert not [word for word in bare if any(held in word for held in HELDOUT_WORDS)]


def test_more_hours_say_nothing_held_out() -> None:
    """New words of additional hours are lexicon words, more than half of the open ones; no examined
    dialogue, word or pair is among them."""
    talks, rng = aloud(6000, 0), random.Random(5)
    lexicon = {plain(word) for entries in LEXICON.values() for word in entries}
    said = said_in(talks)
    words = {word for text in said for word in text.split()}
    words |= {w for _ in range(3000) for w in plain(sentence(rng, "lexicon")).split()}
    known = known_words() | {w for t in TOPICS for s in t.steps for w in literals(s.answer)}
    assert words <= known | lexicon | VOCABULARY | set("abcdefghijklmnopqrstuvwxyz")
    spread = {form for word in HELDOUT_WORDS for form in (word, word + "s", word + "es")}
    assert not words & spread
    names = [talk for talk in talks if talk.category == "names"]
    new = [talk for talk in names if set(plain(talk.turns[0][1]).split()) & lexicon]
    assert 0.5 < len(new) / len(names) < 0.75
    asked = {tuple(plain(said) for said, _ in talk.turns) for talk in talks}
    for by in HELDOUT_BY:
        assert not asked & {tuple(plain(s) for s, _ in t.turns) for t in heldout(250, by, 0)}
    sums = {sum_ for text in said for sum_ in SUMS.findall(text)}
    assert len(sums) > 300
    assert not [s for s in sums if is_heldout(s[1], NUMBER.index(s[0]), NUMBER.index(s[2]))]


def test_a_question_has_one_answer() -> None:
    """The user turns so far determine the reply, in every topic and both splits."""
    answers: dict[tuple[str, ...], str] = {}
    every = [
        *trained(),
        *only_typed(),
        *(talk for by in HELDOUT_BY for talk in heldout(250, by, 0)),
    ]
    for talk in every:
        for end in range(1, len(talk.turns) + 1):
            asked = tuple(plain(said) for said, _ in talk.turns[:end])
            reply = talk.turns[end - 1][1]
            assert answers.setdefault(asked, reply).lower() == reply.lower(), asked


def test_the_same_seed_gives_the_same_texts() -> None:
    """The same seed gives the same texts, another seed others."""
    assert training(300, 5) == training(300, 5) != training(300, 6)
    assert typed(300, 5) == typed(300, 5) != typed(300, 6)
    assert heldout(50, "word", 5) == heldout(50, "word", 5)
    assert [sentence(random.Random(5), "train")] == [sentence(random.Random(5), "train")]


def test_there_are_thousands_of_questions_and_short_answers() -> None:
    """Training has several thousand different questions; no answer has more than 16 words."""
    assert len({talk.turns[-1][0] for talk in trained()}) > 4000
    for talk in trained():
        assert all(len(reply.split()) <= 16 for _, reply in talk.turns), talk
