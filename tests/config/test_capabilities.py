"""`capabilities.json` is read strictly: errors name the field, its value and what is allowed."""

import json
from pathlib import Path
from typing import Any

import pytest

from mosslive.checkpoint.capabilities import codec_capabilities, folder_capabilities
from mosslive.checkpoint.layout import CAPABILITIES_FILE
from mosslive.config import ConfigError
from mosslive.config.capabilities import Capabilities, capabilities_from
from mosslive.config.folders import shipped_folder


def test_a_folder_without_the_file_states_nothing(tmp_path: Path) -> None:
    """Published checkpoints have no such file: all modes, any voice, no limit."""
    (tmp_path / "config.json").write_text("{}")
    stated = folder_capabilities(tmp_path)
    assert stated == Capabilities()
    assert stated.context_rows is None
    assert stated.replies() == ("speech", "text")
    assert stated.limit(None) is None
    assert stated.limit(100_000) == 100_000


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"context_row": 100}, "context_row is 100, an unknown key; allowed: context_rows, modes"),
        ({"context_rows": 63}, "context_rows is 63; allowed: 64 rows or more, or null"),
        ({"context_rows": True}, "context_rows is True; allowed: 64"),
        ({"context_rows": 100.0}, "context_rows is 100.0; allowed: 64"),
        ({"modes": "text-to-text"}, "modes is 'text-to-text'; allowed: a list of speech-to-speech"),
        ({"modes": ["text"]}, "modes is 'text'; allowed: speech-to-speech, speech-to-text"),
        ({"modes": []}, r"modes is \[\]; allowed: one or more of"),
        ({"modes": ["text-to-text"] * 2}, "allowed: each value once"),
        ({"languages": ["English"]}, "languages is 'English'; allowed: BCP 47 tags"),
        ({"languages": [1]}, "languages is 1; allowed: BCP 47 tags"),
        ({"voices": 0}, "voices is 0; allowed: true or false"),
        ({"transcripts": "no"}, "transcripts is 'no'; allowed: true or false"),
    ],
)
def test_what_is_wrong_is_named(raw: dict[str, Any], message: str) -> None:
    """Each malformed statement is refused."""
    with pytest.raises(ConfigError, match=message):
        capabilities_from(raw)


def test_an_error_names_the_file(tmp_path: Path) -> None:
    """The error names the file that must be corrected."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "capabilities.json").write_text(json.dumps({"voice": False}))
    with pytest.raises(ConfigError, match=r"capabilities\.json: voice is False, an unknown key"):
        folder_capabilities(tmp_path)


def test_the_user_decides_and_is_warned() -> None:
    """The model's limit holds where the user names none; a larger one and a voice that would have
    no effect are warnings."""
    stated = Capabilities(context_rows=240, voices=False)
    assert (stated.limit(None), stated.limit(100), stated.limit(400)) == (240, 100, 400)
    assert stated.warnings(240, None) == []
    assert stated.warnings(241, Path("a.voice")) == [
        "--context-rows is 241; this model was trained for 240, and its replies become worse in "
        "longer conversations",
        "--voice has no effect: this model speaks with one voice",
    ]
    assert Capabilities().warnings(9000, Path("a.voice")) == []


def test_a_codec_shares_the_statement_of_its_model(nano_copy: Path, tmp_path: Path) -> None:
    """The statement of MODEL/lm counts for MODEL/codec; a codec by itself has no limits."""
    home = tmp_path / "model"
    (home / "codec").mkdir(parents=True)
    assert codec_capabilities(home / "codec") == Capabilities()
    nano_copy.rename(home / "lm")
    (home / "lm" / CAPABILITIES_FILE).write_text('{"voices": false}')
    assert not codec_capabilities(home / "codec").voices
    assert not codec_capabilities(home).voices


def test_modes_are_pairs_of_input_and_output() -> None:
    """Each pair of media counts by itself."""
    stated = Capabilities(modes=("speech-to-speech", "text-to-speech"))
    assert stated.replies() == ("speech",)
    assert stated.supports("text", "speech")
    assert not stated.supports("speech", "text")


def test_the_bundled_model_states_what_it_can() -> None:
    """It has one voice, English, and a short memory, and its transcripts are shown."""
    stated = folder_capabilities(shipped_folder())
    assert (stated.context_rows, stated.languages, stated.voices) == (240, ("en",), False)
    assert stated.transcripts
