"""Calibration sequences: legal rows, deterministic, and files that are read strictly."""

import json
from pathlib import Path
from typing import Any

import pytest

from mosslive import LanguageModel, Turn
from mosslive.build.calibration import CalibrationError, Samples


@pytest.fixture(scope="module")
def samples(nano_lm: LanguageModel) -> Samples:
    return Samples(nano_lm.config, nano_lm.tokenizer)


def write(path: Path, *lines: Any) -> Path:
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n", encoding="utf-8")
    return path


def test_synthetic_conversations(samples: Samples, nano_lm: LanguageModel) -> None:
    """Half of the replies are spoken, each has an end, and the seed determines all of them."""
    made = samples.synthetic(20)
    assert made == samples.synthetic(20)
    assert made[:3] == samples.synthetic(3)
    assert made != samples.synthetic(20, seed=1)
    ids = nano_lm.ids
    for number, sample in enumerate(made):
        opening = sample.rows[sample.prompt_rows - 1]
        assert (opening[0] == ids.sosp) == bool(number % 2)
        reply = sample.rows[sample.prompt_rows :]
        assert ((ids.modality_pad, ids.eosp) in reply) == bool(number % 2)
        assert any(text in ids.stops for text, _ in reply)


def test_turns_become_a_prompt_and_its_reply(
    samples: Samples, nano_lm: LanguageModel, tmp_path: Path
) -> None:
    """A conversation that ends with a reply gives the rows the model reads and generates."""
    user = {"role": "user", "text": "Hello"}
    spoken = {"role": "assistant", "codes": [1, 2, 3]}
    path = write(
        tmp_path / "turns",
        {"turns": [user, spoken]},
        {"turns": [user], "reply": "text"},
        {"turns": [user]},
    )
    with_reply, text, speech = samples.from_file(path, 10)
    turn = Turn("user", text="Hello")
    prompt = nano_lm.format.prompt([turn], "speech")
    assert with_reply.rows[: with_reply.prompt_rows] == prompt
    whole = nano_lm.format.turn(turn) + nano_lm.format.turn(Turn("assistant", codes=[1, 2, 3]))
    assert with_reply.rows == whole
    assert text.rows == nano_lm.format.prompt([turn], "text")
    assert speech.rows == prompt
    assert speech.prompt_rows == len(prompt)


def test_files_of_rows(samples: Samples, tmp_path: Path) -> None:
    """Lists of rows are read, blank lines are skipped, and the maximum applies."""
    path = tmp_path / "rows"
    path.write_text("[[1, 2], [3, 4]]\n\n[[5, 6]]\n[[7, 8]]\n", encoding="utf-8")
    first, second = samples.from_file(path, 2)
    assert (first.rows, first.prompt_rows) == ([(1, 2), (3, 4)], 2)
    assert second.rows == [(5, 6)]


USER = {"role": "user", "text": "Hi"}
BAD: dict[str, tuple[str, str]] = {
    "no json": ("{", "line 2"),
    "a number": ("5", "allowed: a list of rows, or an object"),
    "no row": ("[]", "rows is empty"),
    "a triple": ("[[1, 2, 3]]", "row 0 is [1, 2, 3]"),
    "an id too large": ("[[1, 99999]]", "audio id is 99999"),
    "unknown key": ('{"turns": [], "voice": 1}', "allowed: a list of rows, or an object"),
    "no turns": ('{"turns": []}', "turns is not a list of turns"),
    "turns of a kind": ('{"turns": {"role": "user"}}', "turns is not a list of turns"),
    "a turn of text": ('{"turns": ["hi"]}', "turn 0: allowed"),
    "unknown role": ('{"turns": [{"role": "cat", "text": "x"}]}', "role is 'cat'"),
    "no role": ('{"turns": [{"text": "x"}]}', "role is None"),
    "both": ('{"turns": [{"role": "user", "text": "x", "codes": [1]}]}', "both text and codes"),
    "a bad code": ('{"turns": [{"role": "user", "codes": [500]}]}', "code 0 is 500"),
    "a bad reply": ('{"turns": [{"role": "user", "text": "x"}], "reply": "song"}', "'song'"),
    "two replies": (
        '{"turns": [{"role": "assistant", "text": "x"}], "reply": "text"}',
        "the last turn is already a reply",
    ),
    "a key twice": ('{"turns": [], "turns": []}', "turns appears twice"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_lines(samples: Samples, tmp_path: Path, name: str) -> None:
    """The error names the file, the line, what is wrong and what is allowed."""
    line, said = BAD[name]
    path = tmp_path / "lines"
    path.write_text(f"[[1, 2]]\n{line}\n", encoding="utf-8")
    with pytest.raises(CalibrationError) as caught:
        samples.from_file(path, 9)
    assert f"{path}, line 2: " in str(caught.value)
    assert said in str(caught.value)


def test_no_file_and_empty_file(samples: Samples, tmp_path: Path) -> None:
    """A missing or empty file raises."""
    with pytest.raises(CalibrationError, match="not readable"):
        samples.from_file(tmp_path / "none", 9)
    (tmp_path / "empty").write_text("\n\n", encoding="utf-8")
    with pytest.raises(CalibrationError, match="contains no sequence"):
        samples.from_file(tmp_path / "empty", 9)
