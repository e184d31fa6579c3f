"""Finds the fenced blocks of the documentation, and takes command lines apart. Runs nothing."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "examples" / "README.md",
    ROOT / "mosslive" / "bundled" / "README.md",
    ROOT / "recipes" / "bundled" / "README.md",
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SEPARATORS = {"&&", "||", "|", ";", "then", "do"}


@dataclass(frozen=True)
class Block:
    page: str  # relative to the repository
    line: int  # of the opening fence
    kind: str  # sh, python, toml, json; empty: output of a program, or another text
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(*kinds: str) -> list[Block]:
    """All blocks of these kinds, in the order of the pages."""
    return [block for page in PAGES for block in _of_page(page) if block.kind in kinds]


def _of_page(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield Block(str(page.relative_to(ROOT)), line, match[1], match[2])


def commands(block: Block) -> list[list[str]]:
    """The words of every command of a `sh` block, without comments, redirections and variables."""
    found: list[list[str]] = []
    for line in block.text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, "#"
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word in _SEPARATORS:
                if command := _command(words):
                    found.append(command)
                words = []
            else:
                words.append(word)
    return found


def _command(words: list[str]) -> list[str]:
    """Without `NAME=value` before the command, and without redirections after it."""
    while words and re.match(r"\w+=", words[0]):
        words = words[1:]
    redirected = next((i for i, word in enumerate(words) if word in ("<", ">", ">>")), len(words))
    return words[:redirected]
