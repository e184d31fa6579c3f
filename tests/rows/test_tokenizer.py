"""The tokenizer: bytes of every id, and errors for unsuitable files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mosslive import LanguageModel, load_lm
from mosslive.rows import TextTokenizer, TokenizerError


def test_every_id_has_the_bytes_the_library_decodes(qwen_tokenizer: TextTokenizer) -> None:
    """The bytes of each id equal what the library decodes; text streams rely on it."""
    for index in [*range(0, 151_680, 211), 151_643, 151_657, 151_667, 151_668, 151_679]:
        expected = qwen_tokenizer.decode([index])
        assert qwen_tokenizer.token_bytes(index).decode("utf-8", "replace") == expected


def test_special_tokens_and_unused_ids_have_no_text(qwen_tokenizer: TextTokenizer) -> None:
    """Special tokens and unused ids (vocabulary padding) decode to nothing."""
    assert qwen_tokenizer.decode([151_643, 151_645, 151_679]) == ""
    assert qwen_tokenizer.token_bytes(151_679) == b""


def test_missing_file(nano_copy: Path) -> None:
    """The error names the missing file."""
    (nano_copy / "tokenizer.json").unlink()
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: no such file"):
        load_lm(nano_copy)


def test_unreadable_file(nano_copy: Path) -> None:
    """A truncated tokenizer.json raises before any weight is read."""
    path = nano_copy / "tokenizer.json"
    path.write_text(path.read_text(encoding="utf-8")[:1000], encoding="utf-8")
    with pytest.raises(TokenizerError, match="not a readable tokenizer"):
        load_lm(nano_copy)


def test_a_tokenizer_of_another_model(nano_lm: LanguageModel) -> None:
    """`<|im_end|>` must be the config's stop id, and every id must be below vocab_size."""
    other = replace(nano_lm.config, eos_token_id=7)
    with pytest.raises(TokenizerError, match="eos_token_id 7"):
        nano_lm.tokenizer.check(other)
    small = replace(nano_lm.config, vocab_size=426)
    larger = _with_word(nano_lm, "zz", 430)
    with pytest.raises(TokenizerError, match="vocab_size 426"):
        larger.check(small)


def test_a_tokenizer_that_is_not_byte_level(nano_lm: LanguageModel) -> None:
    """A vocabulary with characters outside the byte alphabet is an error."""
    with pytest.raises(TokenizerError, match="not byte-level"):
        _with_word(nano_lm, "中", 430).check(nano_lm.config)


def _with_word(lm: LanguageModel, word: str, index: int) -> TextTokenizer:
    raw = json.loads(lm.tokenizer.json)
    raw["model"]["vocab"][word] = index
    return TextTokenizer(json.dumps(raw))
