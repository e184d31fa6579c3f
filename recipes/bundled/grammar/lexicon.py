"""Real words beyond the lists of `words`, for additional hours of speech.

There are three times as many, found by `pick_words` in dictionaries of the voices. Many words teach
the pronunciation of unseen ones; few words are memorised. None is in any other question of the
grammar, so a question with one of them is never examined. None contains a held-out word or sounds
like one.
"""

from __future__ import annotations

from pathlib import Path

from recipes.bundled.grammar.rules import listed

_KINDS = ("name", "noun", "adjective", "verb")


def _read() -> dict[str, tuple[str, ...]]:
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    lines = (line.split(": ") for line in text.splitlines())
    return {kind: listed(found) for kind, found in lines}


LEXICON = _read()
assert tuple(LEXICON) == _KINDS
