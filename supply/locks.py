"""Reads the lock files in locks/.

A lock file lists exact versions with the SHA-256 of every file the index has for them. An
environment installs its own lock and those it builds on, so each package is written once. This
module reads files only; `supply.compile` writes them. No network, no threads.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "locks"

# Lock file: the extras of pyproject.toml that it installs.
EXTRAS: dict[str, tuple[str, ...]] = {
    "core": (),
    "talk": ("talk", "voice"),
    "server": ("server",),
    "dev": ("dev",),
    "eval": ("eval",),
}
# Extras that neither `make` nor the image installs. pipecat-ai, of which only one file is used,
# requires dozens of packages in narrow ranges.
UNLOCKED = ("smart-turn",)
# Lock file: the lock files to install before it.
BASES: dict[str, tuple[str, ...]] = {
    "core": (),
    "talk": ("core",),
    "server": ("core", "talk"),
    "dev": ("core", "talk", "server"),
    "eval": ("core", "talk"),
}
# Installed by themselves: triton where torch brought none, tools in an environment of their own.
SEPARATE = ("triton", "tools")
# Not in these locks. Builds of torch for CPU and GPU have one version but not one hash, and a GPU
# build requires one version of triton.
APART = ("torch", "triton")


@dataclass(frozen=True)
class Pin:
    """One locked package. `line` is the requirement without hashes, marker included."""

    name: str  # normalised as by PEP 503
    version: str
    line: str
    hashes: tuple[str, ...]

    def text(self) -> str:
        """The entry as a requirements file has it."""
        return " \\\n".join([self.line, *(f"    --hash={value}" for value in self.hashes)]) + "\n"


def parse(text: str) -> Iterator[Pin]:
    """Yields the entries of a requirements file. Raises ValueError if one has no exact version."""
    for entry in re.sub(r"\\\n", " ", text).splitlines():
        entry = entry.strip()
        if not entry or entry.startswith("#"):
            continue
        words = entry.split()
        line = " ".join(word for word in words if not word.startswith("--hash="))
        hashes = tuple(word.removeprefix("--hash=") for word in words if word.startswith("--hash="))
        wanted = Requirement(line)
        exact = [part.version for part in wanted.specifier if part.operator == "=="]
        if len(exact) != 1 or len(wanted.specifier) != 1:
            raise ValueError(f"{line!r} has no exact version; write name==version")
        yield Pin(canonicalize_name(wanted.name), exact[0], line, hashes)


def read(lock: str) -> list[Pin]:
    """The entries of locks/<lock>.txt."""
    return list(parse((FOLDER / f"{lock}.txt").read_text(encoding="utf-8")))


def installed_by(lock: str) -> list[Pin]:
    """All that an environment gets that installs `lock` and the locks it builds on."""
    return [pin for name in (*BASES[lock], lock) for pin in read(name)]


def everything() -> list[Pin]:
    """Every package of every lock, and torch."""
    return [pin for name in (*EXTRAS, *SEPARATE, "torch") for pin in read(name)]
