"""Normalises transcript and expected text so that only audible differences count.

A recogniser chooses between "4" and "four", "OK" and "okay", "C-A-T" and "C A T", "four" and "for".
These sound the same, so none of them is an error of the speaker. Every other difference counts: a
word that sounds nearly right is wrong. Knows no models and no sound.
"""

import re
from collections.abc import Sequence

_NAMES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"
)
_SMALL, _TENS = _NAMES.split()[:20], _NAMES.split()[20:]
_ODD_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_SIGNS = {"+": "plus", "=": "is", "&": "and", "%": "percent", "−": "minus", "–": "minus"}
# Whole words, after lower-casing. Possessives stay: "frog's" is not "frog is".
_SAME = {
    "ok": "okay",
    "can't": "can not",
    "cannot": "can not",
    "don't": "do not",
    "doesn't": "does not",
    "isn't": "is not",
    "aren't": "are not",
    "i'm": "i am",
    "it's": "it is",
    "that's": "that is",
    "there's": "there is",
    "what's": "what is",
    "you're": "you are",
    "i've": "i have",
    "colour": "color",
    "favourite": "favorite",
    "grey": "gray",
    "mr": "mister",
    "equals": "is",
}
# Homophones in American English.
_ALIKE = {
    "four": "for fore",
    "two": "to too",
    "one": "won",
    "eight": "ate",
    "sent": "scent cent",
    "sean": "shawn shaun",
    "alan": "allen allan",
    "kathy": "cathy",
    "carl": "karl",
    "eric": "erik",
    "sarah": "sara",
    "steven": "stephen",
    "ann": "anne",
    "jeff": "geoff",
    "catherine": "katherine kathryn",
    "philip": "phillip",
    "sophia": "sofia",
    "meow": "miaow",
    "no": "know",
    "son": "sun",
    "tail": "tale",
    "knight": "night",
    "sea": "see",
    "flower": "flour",
    "pair": "pear",
    "weak": "week",
    "read": "red",
    "blue": "blew",
    "hour": "our",
    "buy": "by bye",
    "hole": "whole",
    "wood": "would",
    "meat": "meet",
    "male": "mail",
    "plane": "plain",
    "rode": "road",
    "write": "right",
    "their": "there",
    "new": "knew",
    "hear": "here",
}
_SPOKEN = {other: one for one, others in _ALIKE.items() for other in others.split()}
_LONGEST_NUMERAL = 2  # digits; longer ones are numbers run together: "1234" while counting


def words(text: str) -> list[str]:
    """Returns normalised words: '4+3 = 7, OK?' → four plus three is seven okay."""
    text = re.sub(r"(?<=\d)\s*-\s*(?=\d+\s*(?:=|is\b|equals\b))", " minus ", text.replace("’", "'"))
    for sign, name in _SIGNS.items():
        text = text.replace(sign, f" {name} ")
    found: list[str] = []
    for token in re.findall(r"\d+(?:st|nd|rd|th)?(?![a-z])|[^\W\d_]+(?:'[^\W\d_]+)*", text):
        found += _token(token)
    return found


def _token(token: str) -> list[str]:
    if token[0].isdigit():
        return _numeral(token)
    plain = _SAME.get(token.lower(), token.lower())
    if token.isupper() and plain == token.lower():
        return list(plain)  # recognisers write spelled letters as "CAT"
    return [_SPOKEN.get(word, word) for word in plain.replace("'", "").split()]


def _numeral(token: str) -> list[str]:
    digits = token.rstrip("stndrh")
    if len(digits) > _LONGEST_NUMERAL:
        return [_SMALL[int(digit)] for digit in digits]
    named = number_words(int(digits))
    if digits != token:
        named[-1] = _ordinal(named[-1])
    return named


def number_words(number: int) -> list[str]:
    """Returns the words of a number in 0..99."""
    if number < len(_SMALL):
        return [_SMALL[number]]
    tens, ones = divmod(number, 10)
    return [_TENS[tens - 2], *([_SMALL[ones]] if ones else [])]


_DIGITS = {name: str(number) for number, name in enumerate(_SMALL)} | {"twenty": "20"}


def _ordinal(name: str) -> str:
    if name in _ODD_ORDINALS:
        return _ODD_ORDINALS[name]
    return f"{name[:-1]}ieth" if name.endswith("y") else f"{name}th"


def same_words(one: str, other: str) -> bool:
    """Returns whether two texts sound the same. Joined or split words ("bath tub") and numbers
    ("9 10 11", "910-11") are equal."""
    return _run_together(one) == _run_together(other)


def _run_together(text: str) -> str:
    """Returns all words joined, numbers as digits, spelled letters marked: C, A, T is not a cat."""
    return "".join(_joined(word) for word in words(text))


def _joined(word: str) -> str:
    if len(word) == 1 and word not in "ai":
        return f"{word}."
    return _DIGITS.get(word, word)


def word_errors(said: str, meant: str) -> tuple[int, int]:
    """Returns (replaced, missing and added words, words of the expected text)."""
    wanted = words(meant)
    return (0 if same_words(said, meant) else edits(words(said), wanted)), len(wanted)


def edits(said: Sequence[object], meant: Sequence[object]) -> int:
    """Returns the fewest replacements, insertions and deletions between two sequences."""
    row = list(range(len(meant) + 1))
    for place, one in enumerate(said, 1):
        before, row[0] = row[0], place
        for column, other in enumerate(meant, 1):
            cheapest = min(row[column] + 1, row[column - 1] + 1, before + (one != other))
            before, row[column] = row[column], cheapest
    return row[-1]
