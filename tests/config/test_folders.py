"""Whole model folders: which part is taken from where, and the name of the shipped one."""

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


def test_a_whole_model_needs_nothing_else(whole: Path) -> None:
    """Its own codec, and the voice that lies beside it."""
    voices = whole / "voices"
    assert find_parts(whole) == Parts(whole, whole, voices / "default.voice", voices)


def test_what_is_named_wins(whole: Path, tmp_path: Path) -> None:
    """A voice belongs to its codec: with another codec the model's default voice is not taken."""
    other = tmp_path / "codec"
    other.mkdir()
    assert find_parts(whole, other) == Parts(whole, other)
    mine = Path("anna.voice")
    assert find_parts(whole, voice=mine).voice == mine
    assert find_parts(whole, other, mine) == Parts(whole, other, mine)


def test_parts_that_are_not_there(tmp_path: Path) -> None:
    """A bare language model is in writing; an engine folder may borrow codec and voice."""
    assert find_parts(tmp_path) == Parts(tmp_path)
    assert find_parts("moss.engine", voice=Path("a.wav")) == Parts(
        Path("moss.engine"), None, Path("a.wav")
    )


def test_an_engine_with_the_codec_of_a_whole_model(whole: Path) -> None:
    """The default voice comes with the codec."""
    found = find_parts("moss.engine", whole)
    assert found.voice == whole / "voices" / "default.voice"
    assert (found.model, found.codec) == (Path("moss.engine"), whole)


def test_the_shipped_model_has_a_name(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ "bundled" is the package's own, wherever one is; anything else is a path."""
    monkeypatch.setattr(folders, "shipped_folder", lambda: whole)
    assert named_folder("bundled") == named_folder(Path("bundled")) == whole
    assert find_parts("bundled").codec == whole
    assert named_folder("x/bundled") == Path("x/bundled")


def test_a_copy_without_weights_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing, where it was looked for, and what to do instead."""
    monkeypatch.setattr(folders, "shipped_folder", lambda: tmp_path)
    with pytest.raises(MossliveError, match=r"not in this copy.*holds no weights.*model folder"):
        named_folder("bundled")
