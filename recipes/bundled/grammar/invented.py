"""Invented words for typed dialogues: repeating or spelling them requires copying letters.

A word is one to three syllables of English onsets, vowels and endings, so letters follow each other
as in real words. It is never an open word and contains no held-out word, not even inside. Does not
know the words of the topics: see `typed`.
"""

from __future__ import annotations

import random

from recipes.bundled.grammar import words
from recipes.bundled.grammar.rules import listed, plain

SHORTEST, LONGEST = 3, 9
_STARTS = listed(
    """
    b bl br c ch cl cr d dr f fl fr g gl gr h j k kn l m n p ph pl pr qu r s sc sh sk sl sm sn sp
    spr squ st str sw t th thr tr tw v w wh wr y z
    """
)
_VOWELS = listed("a a a e e e i i i o o o u u ai au ay ea ee ey ie oa oi oo ou ow oy y")
_ENDS = listed(
    """
    b ck ct d dge ff ft g ght k l ld lf lk ll lp lt m mb mp n nch nd ng nk nt p pt r rb rd rk rl rm
    rn rp rst rt s sh sk sp ss st t tch th v w x z ble dle gle ple tle
    """
)
_OPEN = frozenset(plain(" ".join(words.WORDS + words.NAMES + words.VERBS)).split())
_HELDOUT = frozenset(
    plain(word) for word in words.HELDOUT_WORDS + words.HELDOUT_NAMES + words.HELDOUT_VERBS
)


def word(rng: random.Random) -> str:
    while True:
        made = "".join(_syllable(rng) for _ in range(rng.choice((1, 2, 2, 2, 3))))
        if SHORTEST <= len(made) <= LONGEST and made not in _OPEN and not holds_heldout(made):
            return made


def holds_heldout(made: str) -> bool:
    return any(held in made for held in _HELDOUT)


def _syllable(rng: random.Random) -> str:
    start = rng.choice(_STARTS) if rng.random() < 0.85 else ""
    end = rng.choice(_ENDS) if rng.random() < 0.6 else ""
    return start + rng.choice(_VOWELS) + end
