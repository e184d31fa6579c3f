"""Writes the lock files: `make lock`, or `python -m supply.compile [options of uv pip compile]`.

uv resolves all extras at once, for every platform and for Python from 3.11 on, so that all lock
files agree. Versions stay as they are in the present locks where they still satisfy
pyproject.toml; `--upgrade` or `--upgrade-package NAME` changes them. Runs in .venv/tools, where
uv is, and needs a package index.
"""

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from supply.locks import APART, BASES, EXTRAS, FOLDER, ROOT, SEPARATE, Pin, parse

HEADER = "# Written by `make lock`. docs/supply-chain.md says how to change it.\n"
UV = (
    sys.executable,
    "-m",
    "uv",
    "pip",
    "compile",
    "--quiet",
    "--universal",
    "--python-version=3.11",
)
PLAIN = ("--no-annotate", "--no-header")


def resolve(sources: list[Path], output: Path, *options: str) -> list[Pin]:
    """Runs uv. It keeps the versions that `output` already has, then writes `output` anew."""
    command = [*UV, *PLAIN, *options, f"--output-file={output}", *map(str, sources)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return list(parse(output.read_text(encoding="utf-8")))


def write(lock: str, pins: list[Pin]) -> None:
    (FOLDER / f"{lock}.txt").write_text(HEADER + "".join(pin.text() for pin in pins), "utf-8")


def present(*locks: str) -> str:
    """The text of these locks, as far as they exist."""
    files = [FOLDER / f"{lock}.txt" for lock in locks]
    return "".join(file.read_text(encoding="utf-8") for file in files if file.is_file())


def layers(folder: Path, options: list[str]) -> None:
    """Writes the lock of each environment, less what the locks it builds on have."""
    sources = [ROOT / "pyproject.toml", FOLDER / "torch-needs.in"]
    apart = folder / "apart.txt"
    apart.write_text("\n".join(APART), "utf-8")
    union = folder / "all.txt"
    union.write_text(present(*EXTRAS), "utf-8")
    exclude = f"--excludes={apart}"
    found = resolve(sources, union, exclude, "--all-extras", "--generate-hashes", *options)
    hashes = {(pin.name, pin.version): pin.hashes for pin in found}
    lines: dict[str, list[str]] = {}
    for lock, extras in EXTRAS.items():
        wanted = [f"--extra={extra}" for extra in extras]
        output = folder / f"{lock}.txt"
        pins = resolve(sources, output, exclude, f"--constraints={union}", *wanted)
        lines[lock] = [pin.line for pin in pins]
        below = {line for base in BASES[lock] for line in lines[base]}
        own = [pin for pin in pins if pin.line not in below]
        write(lock, [Pin(p.name, p.version, p.line, hashes[p.name, p.version]) for p in own])


def separate(folder: Path, options: list[str]) -> None:
    """Writes the locks that stand for themselves: triton, as dev asks for it, and tools."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    dev = [Requirement(text) for text in project["optional-dependencies"]["dev"]]
    triton = folder / "triton.in"
    triton.write_text("\n".join(str(want) for want in dev if want.name == "triton"), "utf-8")
    sources = {"triton": triton, "tools": FOLDER / "tools.in"}
    for lock in SEPARATE:
        output = folder / f"{lock}.txt"
        output.write_text(present(lock), "utf-8")
        write(lock, resolve([sources[lock]], output, "--generate-hashes", *options))


def main(options: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        layers(Path(folder), options)
        separate(Path(folder), options)


if __name__ == "__main__":
    main(sys.argv[1:])
