"""The house: imports go one way, heavy packages stay out of light places, files stay small."""

import ast
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

import mosslive

PACKAGE = Path(mosslive.__file__).parent
# In order of dependency: a room imports only from rooms before it. `errors` and `version` are the
# ground all stand on.
ROOMS = (
    "errors",
    "version",
    "config",
    "rows",
    "checkpoint",
    "kernels",
    "model",
    "cache",
    "build",
    "engine",
    "codec",
    "talk",
    "server",
    "bench",
    "cli",
    "__main__",
)
# Design: what a room must not know, beyond the order.
FORBIDDEN = {
    "config": {"torch"},
    "rows": {"torch"},
    "kernels": {"mosslive.rows", "mosslive.config", "mosslive.checkpoint"},
    "engine": {"json", "socket", "asyncio.streams"},
    "server": {"mosslive.model", "mosslive.kernels"},
}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """Dotted names this file imports, wherever in the file, TYPE_CHECKING included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the room"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return found


def test_every_file_is_in_a_known_room() -> None:
    """A new room must take its place in the order."""
    rooms = {room_of(path) for path in sources()} - {"__init__"}
    assert rooms <= set(ROOMS)


def test_imports_go_one_way() -> None:
    """Law 6: a room imports only from rooms above it in the design's table."""
    wrong = []
    for path in sources():
        room = room_of(path)
        if room == "__init__":
            continue
        for name in imports_of(path):
            first, *inner = name.split(".")
            if first != "mosslive":
                continue
            # The package itself gathers names from everywhere: rooms name the room they need.
            if not inner or inner[0] not in ROOMS or ROOMS.index(inner[0]) > ROOMS.index(room):
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong


def test_rooms_do_not_know_what_they_must_not() -> None:
    """Design: `config` and `rows` know no torch, `kernels` no model, `engine` no sockets."""
    wrong = []
    for path in sources():
        for name in imports_of(path):
            for forbidden in FORBIDDEN.get(room_of(path), ()):
                if name == forbidden or name.startswith(f"{forbidden}."):
                    wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong


def test_light_things_stay_light() -> None:
    """Importing the package and asking for help must not load torch or a tokenizer."""
    code = (
        "import sys, mosslive, mosslive.cli.app\n"
        "heavy = {'torch', 'transformers', 'tokenizers', 'triton'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_files_stay_small() -> None:
    """House rule: think at 300 lines, split before 400."""
    long = {p.name: n for p in sources() if (n := len(p.read_text("utf-8").splitlines())) > 400}
    assert not long


def test_no_test_is_out_of_sight(pytestconfig: pytest.Config) -> None:
    """Guards: pytest enters every folder of tests. By itself it passes by some names (build, dist)
    and says nothing, and a room is called so."""
    here = Path(__file__).parent
    folders = {file.parent.relative_to(here) for file in here.rglob("test_*.py")}
    assert Path("build") in folders
    passed_by = pytestconfig.getini("norecursedirs")
    names = {name for folder in folders for name in folder.parts}
    assert not [name for name in names if any(fnmatch(name, p) for p in passed_by)]
