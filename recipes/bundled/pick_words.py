"""Real words beyond the grammar's own lists, from two dictionaries of the packed voices.

    python -m recipes.bundled.pick_words VOICES recipes/bundled/grammar/lexicon.txt

A word is taken if the list of word classes (of a newspaper: `festlex-poslex`) and the pronouncing
dictionary (`festlex-cmu`) both have it: the one tells how it is used, and that it is used at all,
the other that the assistant does not have to guess how it is said. Invariant: no word of the
grammar's lists and questions, no word that holds a held-out one, and none that sounds like one.
"""

import argparse
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from recipes.bundled.grammar import fixed_words, invented, words
from recipes.bundled.grammar.rules import FRAMES, HELDOUT_FRAMES, plain

SHORTEST, LONGEST = 3, 9
# Classes of the list by what a word can be filled in for: names, singular and plural nouns,
# adjectives, verbs in the past.
_KINDS = {"nnp": "name", "nn": "noun", "nns": "noun", "jj": "adjective"}
_KINDS |= {"vbd": "verb", "vbn": "verb"}
# Newspapers write of things that nobody has to be asked to say again.
_UNKIND = re.compile(
    "abort|murder|rap(e|ist)|nazi|kill|sex|suicid|cocain|heroin|porn|holocaust|genocid|slaughter|"
    "assassin|molest|incest|slave|terror|bomb|aids|cancer|corpse|massacre|tortur|homicid|nude|whore"
)
_ENTRY = re.compile(r'\("([a-z]+)" (.*)\)$')
_CLASS = re.compile(r"\((\w+) (-[\d.]+)\)")


def known_words() -> frozenset[str]:
    """Every plain word of a list or question of the grammar, whatever its split."""
    courtesies = [text for many in (FRAMES, HELDOUT_FRAMES) for f in many.values() for text in f]
    lists = (words.WORDS, words.NAMES, words.VERBS, words.PLACES, words.TIMES)
    held = (words.HELDOUT_WORDS, words.HELDOUT_NAMES, words.HELDOUT_VERBS)
    texts = [" ".join(frame) for frame in courtesies]
    texts += [entry for entries in (*lists, *held) for entry in entries]
    return fixed_words() | frozenset(plain(" ".join(texts)).split())


def pick(voices: Path) -> dict[str, list[str]]:
    """→ words by kind, in the order of the alphabet."""
    dicts = voices / "festival" / "dicts"
    said = defaultdict(set)
    for word, rest in _entries(dicts / "cmu" / "cmudict-0.4.out"):
        said[word].add(re.sub(r"[^a-z ]", "", rest.split(" ", 1)[1]))
    known = known_words()
    held = {plain(word) for word in words.HELDOUT_WORDS + words.HELDOUT_NAMES + words.HELDOUT_VERBS}
    held_sounds = {sound for word in held for sound in said.get(word, ())}
    found = defaultdict(list)
    for word, rest in _entries(dicts / "wsj.wp39.poslexR"):
        classes = {name: float(chance) for name, chance in _CLASS.findall(rest)}
        kind = _KINDS.get(max(classes, key=lambda name: classes[name], default=""))
        if (
            kind is not None
            and SHORTEST <= len(word) <= LONGEST
            and len(said.get(word, ())) == 1  # "read" and "read": which one is meant is not known
            and word not in known
            and not _UNKIND.search(word)
            and not invented.holds_heldout(word)
            and not said[word] & held_sounds
        ):
            found[kind].append(word.capitalize() if kind == "name" else word)
    return {kind: sorted(set(found[kind])) for kind in ("name", "noun", "adjective", "verb")}


def _entries(path: Path) -> Iterator[tuple[str, str]]:
    for line in path.read_text(encoding="latin-1").splitlines():
        if match := _ENTRY.match(line.strip()):
            yield match[1], match[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("voices", type=Path, help="the unpacked voices")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    lines = [f"{kind}: {' '.join(found)}" for kind, found in pick(given.voices).items()]
    given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
