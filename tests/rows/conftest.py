"""The true Qwen vocabulary, from the package that carries it (test-only dependency)."""

import importlib.util
from pathlib import Path

import pytest

from mosslive.checkpoint.synth import synth_config
from mosslive.checkpoint.vocabulary import Vocabulary, ranked_vocabulary
from mosslive.config import ModelConfig
from mosslive.rows import PromptFormat, RowIds, TextTokenizer


@pytest.fixture(scope="session")
def qwen_vocabulary() -> Vocabulary:
    # Located without importing dashscope, because its import reads network settings.
    spec = importlib.util.find_spec("dashscope")
    assert spec is not None
    assert spec.submodule_search_locations
    return ranked_vocabulary(Path(spec.submodule_search_locations[0], "resources", "qwen.tiktoken"))


@pytest.fixture(scope="session")
def qwen_config(qwen_vocabulary: Vocabulary) -> ModelConfig:
    return synth_config("full", qwen_vocabulary)


@pytest.fixture(scope="session")
def qwen_tokenizer(qwen_vocabulary: Vocabulary, qwen_config: ModelConfig) -> TextTokenizer:
    tokenizer = TextTokenizer(qwen_vocabulary.json)
    tokenizer.check(qwen_config)
    return tokenizer


@pytest.fixture(scope="session")
def qwen_format(qwen_tokenizer: TextTokenizer, qwen_config: ModelConfig) -> PromptFormat:
    return PromptFormat(qwen_tokenizer, RowIds.from_config(qwen_config))
