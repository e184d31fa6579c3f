"""Contents of the wheel, by the rules of setuptools."""

import re
import tomllib
from pathlib import Path

import pytest

import mosslive
import mosslive.cli
from mosslive.config.folders import shipped_folder

ROOT = Path(mosslive.__file__).parents[1]
MAX_BYTES = 28_000_000  # of all files in mosslive/bundled


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Files, relative to the repository's root, as setuptools lists them from pyproject.toml."""
    from setuptools import Distribution

    if not (ROOT / "pyproject.toml").is_file():
        pytest.skip("the package is installed, so there is no source tree")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        made = Distribution({"script_name": "setup.py"})
        made.parse_config_files()
        command = made.get_command_obj("build_py")
        command.build_lib = str(tmp_path_factory.mktemp("build"))
        command.ensure_finalized()
        sources = {path for _, _, path in command.find_all_modules()}
        for _, folder, _, names in command.data_files:
            sources |= {str(Path(folder) / name) for name in names}
    return {Path(path).as_posix() for path in sources}


def test_everything_bundled_is_packaged(packaged: set[str]) -> None:
    """Every file of mosslive/bundled is in the wheel, at any depth."""
    home = shipped_folder()
    there = {p.relative_to(ROOT).as_posix() for p in home.rglob("*") if p.is_file()}
    assert {
        f"mosslive/bundled/{n}" for n in ("README.md", "question.flac", "question.txt")
    } <= there
    assert there <= packaged


def test_data_and_code_are_packaged(packaged: set[str]) -> None:
    """The wheel has all code, the web page and py.typed; no tests, recipes or partial files."""
    assert {
        "mosslive/py.typed",
        "mosslive/server/page/index.html",
        "mosslive/server/docs_page/index.html",
    } <= packaged
    code = {p.relative_to(ROOT).as_posix() for p in (ROOT / "mosslive").rglob("*.py")}
    assert code <= packaged
    assert all(path.startswith("mosslive/") for path in packaged)
    assert not [path for path in packaged if path.endswith((".part", ".pyc"))]


def test_the_command() -> None:
    """The wheel installs the command `mosslive`, which exists, and its version is that of the
    changelog's newest release."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["scripts"] == {"mosslive": "mosslive.cli:main"}
    assert callable(mosslive.cli.main)
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    released = re.findall(r"^## (\S+)", changelog, re.MULTILINE)
    assert released[0] == "Unreleased"
    assert released[1:][:1] in ([], [mosslive.__version__])


def test_the_bundled_folder_is_small() -> None:
    """The bundled folder has at most 28 MB."""
    sizes = [path.stat().st_size for path in shipped_folder().rglob("*") if path.is_file()]
    assert 0 < sum(sizes) <= MAX_BYTES
