"""The structure of the code: import order, light imports, small files, collected tests."""

import ast
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

import mosslive

PACKAGE = Path(mosslive.__file__).parent
# In order of dependency: a package imports only from packages before it in this list.
ORDER = (
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
# Imports that are forbidden in addition to the order.
FORBIDDEN = {
    "config": {"torch"},
    "rows": {"torch"},
    "kernels": {"mosslive.rows", "mosslive.config", "mosslive.checkpoint"},
    "engine": {"json", "socket", "asyncio.streams"},
    "server": {"mosslive.model", "mosslive.kernels"},
}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """Dotted names this file imports, wherever in the file, TYPE_CHECKING included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the package"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return found


def test_every_file_is_in_a_known_package() -> None:
    """Every package has a place in the import order."""
    packages = {package_of(path) for path in sources()} - {"__init__"}
    assert packages <= set(ORDER)


def test_imports_go_one_way() -> None:
    """A package imports only from packages before it in the order."""
    wrong = []
    for path in sources():
        package = package_of(path)
        if package == "__init__":
            continue
        for name in imports_of(path):
            first, *inner = name.split(".")
            if first != "mosslive":
                continue
            # `mosslive` itself re-exports from everywhere, so imports name the package they need.
            if not inner or inner[0] not in ORDER or ORDER.index(inner[0]) > ORDER.index(package):
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong


def test_forbidden_imports() -> None:
    """`config` and `rows` do not import torch, `kernels` no model, `engine` no sockets."""
    wrong = []
    for path in sources():
        for name in imports_of(path):
            for forbidden in FORBIDDEN.get(package_of(path), ()):
                if name == forbidden or name.startswith(f"{forbidden}."):
                    wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong


def test_light_imports() -> None:
    """`import mosslive` and `mosslive --help` load neither torch nor a tokenizer."""
    code = (
        "import sys, mosslive, mosslive.cli.app\n"
        "heavy = {'torch', 'transformers', 'tokenizers', 'triton'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_files_stay_small() -> None:
    """No source file has more than 400 lines."""
    long = {p.name: n for p in sources() if (n := len(p.read_text("utf-8").splitlines())) > 400}
    assert not long


def test_every_test_folder_is_collected(pytestconfig: pytest.Config) -> None:
    """Pytest collects every test folder; by default it silently skips names such as build."""
    here = Path(__file__).parent
    folders = {file.parent.relative_to(here) for file in here.rglob("test_*.py")}
    assert Path("build") in folders
    skipped = pytestconfig.getini("norecursedirs")
    names = {name for folder in folders for name in folder.parts}
    assert not [name for name in names if any(fnmatch(name, p) for p in skipped)]
