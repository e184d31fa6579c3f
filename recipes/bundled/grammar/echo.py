"""Composed replies: names, spelling and repeat-after-me, over open words.

The answer is made of what was heard, so it works for words that were never an answer. Held-out
facts use at least one held-out word; training facts use none. The pool "invented" has made-up words
(`invented`) for typed dialogues only, because they have no known pronunciation. The pool "lexicon"
has real words, for more hours of speech.
"""

from __future__ import annotations

import random

from recipes.bundled.grammar import invented, words
from recipes.bundled.grammar.lexicon import LEXICON
from recipes.bundled.grammar.rules import Fact, Pool, Topic, one, step, vocabulary
from recipes.bundled.grammar.sentences import VOCABULARY, article, sentence

NAMES = vocabulary(words.NAMES, words.HELDOUT_NAMES)
ECHOED = VOCABULARY | {"have"}
LONGEST_SPELLING = 6
LONGEST_ECHO_WORDS = 7
_LISTS = {
    ("name", "train"): words.NAMES,
    ("name", "heldout"): words.HELDOUT_NAMES,
    ("noun", "train"): words.NOUNS,
    ("noun", "heldout"): words.HELDOUT_NOUNS,
    ("adjective", "train"): words.ADJECTIVES,
    ("adjective", "heldout"): words.HELDOUT_ADJECTIVES,
    ("spelled", "train"): tuple(
        word for word in words.WORDS + words.NAMES if len(word) <= LONGEST_SPELLING
    ),
    ("spelled", "heldout"): tuple(
        word for word in words.HELDOUT_WORDS + words.HELDOUT_NAMES if len(word) <= LONGEST_SPELLING
    ),
    ("name", "lexicon"): LEXICON["name"],
    ("noun", "lexicon"): LEXICON["noun"],
    ("adjective", "lexicon"): LEXICON["adjective"],
    ("spelled", "lexicon"): tuple(
        word
        for kind in ("name", "noun", "adjective")
        for word in LEXICON[kind]
        if len(word) <= LONGEST_SPELLING
    ),
}


def open_word(kind: str, rng: random.Random, pool: Pool) -> str:
    """Returns a name, noun, adjective or word to spell from a pool."""
    if pool != "invented":
        return rng.choice(_LISTS[kind, pool])
    word = invented.word(rng)
    return word.capitalize() if kind == "name" else word


def fact(slots: dict[str, str], pool: Pool) -> Fact:
    return Fact(slots, "word" if pool == "heldout" else "")


def sample_name(rng: random.Random, pool: Pool) -> Fact:
    return fact({"name": open_word("name", rng, pool)}, pool)


def sample_spelling(rng: random.Random, pool: Pool) -> Fact:
    word = open_word("spelled", rng, pool)
    return fact({"word": word, "letters": ", ".join(word.upper())}, pool)


def sample_echo(rng: random.Random, pool: Pool) -> Fact:
    """Returns one to four words or a short sentence; the first open word of a held-out one is held
    out."""
    adjective, noun = (open_word(kind, rng, pool) for kind in ("adjective", "noun"))
    others: Pool = pool if pool in ("invented", "lexicon") and rng.random() < 0.5 else "train"
    second, third = (open_word("noun", rng, others) for _ in range(2))
    known = open_word("adjective", rng, "train")
    shapes = (
        noun,
        noun,
        f"the {noun}",
        f"{adjective} {noun}",
        f"the {adjective} {noun}",
        f"{noun} and {second}",
        f"{noun} {second} {third}",
        f"{known} {noun} {rng.choice(words.VERBS)} {second}",
        f"I have {article(noun)}",
        f"my {second} is {adjective}",
        _short(rng, pool),
    )
    return fact({"words": rng.choice(shapes)}, pool)


def _short(rng: random.Random, pool: Pool) -> str:
    while True:
        text = sentence(rng, pool)
        if len(text.split()) <= LONGEST_ECHO_WORDS and text.count(".") == 1 and "?" not in text:
            return text.rstrip(".").replace(",", "")


INTRODUCTIONS = (
    """my name is {name}
    I am {name}
    I am called {name}
    call me {name}
    you can call me {name}
    this is {name}
    hello, I am {name}
    hi, my name is {name}
    it is {name} here
    it is {name} talking
    {name} here
    people call me {name}
    they call me {name}
    my friends call me {name}
    {name} is what they call me
    {name} is my name
    everybody calls me {name}
    everybody knows me as {name}
    my mother calls me {name}
    my parents named me {name}
    I was named {name}
    to my parents I am {name}
    I go by the name {name}
    I like to go by the name {name}
    you are speaking with {name}
    you are now talking with {name}
    my first name is {name}
    I also go by the name {name}""",
    """they named me {name}
    I go by {name}
    you are talking to {name}
    my parents call me {name}
    everybody here calls me {name}""",
)
ASK_MY_NAME = (
    """what is my name
    what am I called
    do you know my name
    do you remember my name
    do you remember who I am
    do you know who I am
    who am I
    say my name
    tell me my name
    give me my name
    I did give you my name, what was it
    what did I say my name was
    what was my name
    what name did I say
    which name did I tell you
    which name did I say
    can you say my name
    how am I called
    what do people call me
    by which name do you know me
    by which name am I called
    how did I introduce myself
    with which name did I introduce myself
    have you forgotten my name
    have you forgotten who I am
    remind me of my name
    remind me how I am called""",
    """by which name did I introduce myself
    what name did I give you
    have you forgotten what I am called
    do you remember what I am called
    remind me who I am""",
)
INTRODUCE = step("say", "Nice to meet you, {name}.", *INTRODUCTIONS)
REPEAT = """repeat after me, {words}
        say {words}
        repeat {words}
        say after me, {words}
        repeat the words {words}
        say the words {words}
        repeat this, {words}
        say this, {words}
        repeat what I say, {words}
        say what I say, {words}
        repeat these words, {words}
        say these words, {words}
        echo after me, {words}
        be my echo, {words}
        echo the words {words}
        copy me, {words}
        copy the words {words}
        copy after me, {words}
        speak after me, {words}
        speak the words {words}
        say exactly this, {words}
        repeat exactly this, {words}
        say the following, {words}
        repeat the following, {words}
        repeat my words, {words}
        echo this, {words}
        echo the following, {words}
        echo my words, {words}
        be an echo of me, {words}
        copy this, {words}
        speak this, {words}"""

TOPICS: tuple[Topic, ...] = (
    Topic("names", (INTRODUCE,), sample_fact=sample_name, vocabulary=NAMES, weight=5),
    one(
        "names", "do", "Hello, {name}!",
        """say hello to {name}
        say hi to {name}
        greet {name}
        greet my friend {name}
        greet my colleague {name}
        say hello to my friend {name}
        say hi to my friend {name}
        this is my friend {name}, say hello
        my colleague {name} is here, say hello
        {name} is here, say hi
        give {name} a hello
        give a greeting to {name}
        send {name} a greeting
        send my friend {name} a hello
        welcome {name}
        welcome my friend {name}
        give {name} a warm welcome
        greet {name} in a warm way
        meet {name}
        meet my friend {name}""",
        """give {name} a greeting
        meet my colleague {name}
        give a warm welcome to {name}
        welcome my colleague {name}""",
        sample_fact=sample_name,
        vocabulary=NAMES,
        weight=3,
    ),
    one(
        "spelling", "do", "{letters}.",
        """spell {word}
        spell the word {word}
        spell out {word}
        how do you spell {word}
        how is {word} spelled
        how do I spell {word}
        how is the word {word} spelled
        what are the letters of {word}
        what is the spelling of {word}
        give me the spelling of {word}
        give me the correct spelling of {word}
        tell me the correct letters of {word}
        tell me how to spell {word}
        spell {word} letter by letter
        go through {word} letter by letter
        which letters are in {word}
        which letters does {word} have
        what letters make {word}
        name the letters of {word}
        say the letters of {word}
        list the letters in {word}
        list all letters of {word}
        which letters is {word} written with
        how is the word {word} written
        how do I write {word}
        how do you write the word {word}
        what letters do I need to write {word}
        which letters do I need to spell {word}
        say {word} letter by letter
        write out {word}, one letter after another
        tell me which letters {word} is made of""",
        """what is the correct spelling of {word}
        which letters do I need for {word}
        {word}, letter by letter
        how is {word} written
        list the letters of {word}""",
        sample_fact=sample_spelling,
        vocabulary=VOCABULARY,
        weight=9,
    ),
    one(
        "repeat", "do", "{words}.",
        REPEAT,
        """echo {words}
        copy what I say, {words}
        speak these words, {words}
        speak exactly this, {words}
        echo these words, {words}""",
        sample_fact=sample_echo,
        vocabulary=ECHOED,
        weight=14,
    ),
)  # fmt: skip
