"""Picks real words beyond the grammar's lists from two dictionaries of the packed voices.

    python -m recipes.bundled.pick_words VOICES recipes/bundled/grammar/lexicon.txt

A word is taken if both the list of word classes (of a newspaper: `festlex-poslex`) and the
pronouncing dictionary (`festlex-cmu`) have it: the first shows that and how it is used, the second
that the assistant need not guess its pronunciation. Invariants: no word of the grammar's lists and
questions; no word that contains a held-out one or, by the dictionary, sounds like one or its
plural; no two words that sound alike, because their spelling could not be heard.
"""

import argparse
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from recipes.bundled.grammar import echo, fixed_words, invented, memory, words
from recipes.bundled.grammar.rules import FRAMES, HELDOUT_FRAMES, plain
from recipes.bundled.grammar.sentences import article

SHORTEST, LONGEST = 3, 9
# Classes of the list by what a word can be filled in for: names, nouns in the singular, adjectives,
# verbs in the past.
_KINDS = {"nnp": "name", "nn": "noun", "jj": "adjective", "vbd": "verb", "vbn": "verb"}
# Prefixes of words that newspapers use and that this model should not say.
_UNKIND = re.compile(
    "abort|aids$|assassin|behead|bitch|bomb|butcher|cancer|castrat|cocain|condom|corpse|crap|execut|"
    "fetus|genit|genocid|heroin|holocaust|homicid|homo$|incest|kill|klux|lynch|massacr|maim|molest|"
    "murder|naked|nazi|nude|pimp|porn|racis|rape$|raped|rapist|retard|sadis|sex|slain|slaughter|"
    "slave|slut|sperm|stab|strangl|suicid|terror|tortur|vagin|whore"
)
_ENTRY = re.compile(r'\("([a-z]+)" (.*)\)$')
_CLASS = re.compile(r"\((\w+) (-[\d.]+)\)")
_VOWELS = "aeiou"
_PLURALS = ("", " s", " z", " ax z", " ih z")


def known_words() -> frozenset[str]:
    """Returns every plain word of a list or question of the grammar, of any split."""
    courtesies = [text for many in (FRAMES, HELDOUT_FRAMES) for f in many.values() for text in f]
    lists = (words.WORDS, words.NAMES, words.VERBS)
    held = (words.HELDOUT_WORDS, words.HELDOUT_NAMES, words.HELDOUT_VERBS)
    texts = [" ".join(frame) for frame in courtesies]
    texts += [entry for entries in (*lists, *held, memory.PET_KINDS) for entry in entries]
    return fixed_words() | echo.ECHOED | frozenset(plain(" ".join(texts)).split())


def pick(voices: Path) -> dict[str, list[str]]:
    """Returns words by kind, in alphabetical order."""
    dicts = voices / "festival" / "dicts"
    said = defaultdict(set)
    for word, rest in _entries(dicts / "cmu" / "cmudict-0.4.out"):
        said[word].add(_sound(rest.split(" ", 1)[1]))
    known = known_words()
    held = {plain(word) for word in words.HELDOUT_WORDS + words.HELDOUT_NAMES + words.HELDOUT_VERBS}
    taken = {sound for word in known for sound in said.get(word, ())}
    taken |= {sound + end for word in held for sound in said.get(word, ()) for end in _PLURALS}
    found = defaultdict(list)
    for word, rest in sorted(_entries(dicts / "wsj.wp39.poslexR")):
        classes = {name: float(chance) for name, chance in _CLASS.findall(rest)}
        kind = _KINDS.get(max(classes, key=lambda name: classes[name], default=""))
        if (
            kind is not None
            and SHORTEST <= len(word) <= LONGEST
            and len(said.get(word, ()))
            == 1  # two pronunciations, such as "read": which one is meant is unknown
            and word not in known
            and set(word) & set(_VOWELS)  # without one it is an abbreviation
            and not _UNKIND.match(word)
            and not invented.holds_heldout(word)
            and not said[word] & taken
            and _article_fits(word, next(iter(said[word])))
        ):
            taken |= said[word]
            found[kind].append(word.capitalize() if kind == "name" else word)
    return {kind: found[kind] for kind in ("name", "noun", "adjective", "verb")}


def _sound(entry: str) -> str:
    """Returns the phones of an entry. Most voices merge the vowels of "caught" and "cot"."""
    phones = re.sub(r"[^a-z ]", "", entry).split()
    return " ".join("aa" if phone == "ao" else phone for phone in phones)


def _article_fits(word: str, sound: str) -> bool:
    """Returns whether the article that the grammar chooses by letters fits the sound."""
    return article(word).startswith("an ") == (sound[0] in _VOWELS)


def _entries(path: Path) -> Iterator[tuple[str, str]]:
    for line in path.read_text(encoding="latin-1").splitlines():
        if match := _ENTRY.match(line.strip()):
            yield match[1], match[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("voices", type=Path, help="use the unpacked voices in this folder")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    lines = [f"{kind}: {' '.join(found)}" for kind, found in pick(given.voices).items()]
    given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
