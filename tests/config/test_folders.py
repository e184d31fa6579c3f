"""Model folders: where each part comes from, and the name of the bundled model."""

from pathlib import Path

import pytest

from mosslive.config import folders
from mosslive.config.folders import Parts, find_parts, named_folder
from mosslive.errors import MossliveError


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    for part in ("lm", "codec", "voices"):
        (home / part).mkdir(parents=True)
    (home / "voices" / "default.voice").touch()
    return home


def test_a_model_folder_needs_no_other_option(whole: Path) -> None:
    """A model folder provides its own codec and default voice."""
    voices = whole / "voices"
    assert find_parts(whole) == Parts(whole, whole, voices / "default.voice", voices)


def test_given_parts_win(whole: Path, tmp_path: Path) -> None:
    """A given codec or voice wins; the default voice is not used with another codec."""
    other = tmp_path / "codec"
    other.mkdir()
    assert find_parts(whole, other) == Parts(whole, other)
    mine = Path("anna.voice")
    assert find_parts(whole, voice=mine).voice == mine
    assert find_parts(whole, other, mine) == Parts(whole, other, mine)


def test_absent_parts_are_none(tmp_path: Path) -> None:
    """A folder with only a language model has no codec and no voice."""
    assert find_parts(tmp_path) == Parts(tmp_path)
    assert find_parts("moss.engine", voice=Path("a.wav")) == Parts(
        Path("moss.engine"), None, Path("a.wav")
    )


def test_an_engine_folder_with_the_codec_of_a_model_folder(whole: Path) -> None:
    """The default voice comes from the folder of the codec."""
    found = find_parts("moss.engine", whole)
    assert found.voice == whole / "voices" / "default.voice"
    assert (found.model, found.codec) == (Path("moss.engine"), whole)


def test_bundled_names_the_shipped_model(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name "bundled" means the package's own model; every other name is a path."""
    monkeypatch.setattr(folders, "shipped_folder", lambda: whole)
    assert named_folder("bundled") == named_folder(Path("bundled")) == whole
    assert find_parts("bundled").codec == whole
    assert named_folder("x/bundled") == Path("x/bundled")


def test_missing_bundled_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what is missing, where it was expected, and what to do."""
    monkeypatch.setattr(folders, "shipped_folder", lambda: tmp_path)
    with pytest.raises(MossliveError, match=r"no bundled model.*contains no weights.*model folder"):
        named_folder("bundled")
