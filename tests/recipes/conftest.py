"""A corpus of hums for the training tests: four words, asked by two voices each."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mosslive.rows import RowIds, TextTokenizer
from recipes.bundled.bank import Bank, load_bank
from recipes.bundled.corpus import Corpus, Split, Turn, Writer
from recipes.bundled.encode_bank import Spoken
from recipes.bundled.lm_rows import RowBuilder
from recipes.bundled.sizes import TOY
from recipes.bundled.vocabulary import ids, load_tokenizer

_WORDS = ("one", "two", "three", "four")


def _hum(word: int, pitch: float, samples: int) -> NDArray[np.int16]:
    """Returns a word: a hum whose timbre depends on the word."""
    time = np.arange(samples) / 24_000
    swell = np.sin(np.pi * np.arange(samples) / samples)
    parts = sum(
        np.sin(2 * np.pi * pitch * h * time) / (1 + abs(h - 2 - 3 * word)) for h in range(1, 16)
    )
    return (6000 * swell * parts).astype(np.int16)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corpus")
    with Writer(out) as writer:
        for number, word in enumerate(_WORDS):
            split: Split = "train" if number < 3 else "heldout"
            own = writer.utterance(
                _hum(number, 180, 22_000 + 900 * number),
                word,
                [word, "t"],
                "hts",
                "assistant",
                split,
            )
            users = [
                writer.utterance(
                    _hum(number, f0, 17_000), f"{word}?", [word], f"v{f0}", "user", split
                )
                for f0 in (110, 140)
            ]
            turns = [Turn("user", f"{word}?", users), Turn("assistant", word, [own])]
            writer.dialogue("words", split, turns)
    return out


@pytest.fixture(scope="session")
def corpus(folder: Path) -> Corpus:
    return Corpus(folder)


@pytest.fixture(scope="session")
def bank(corpus: Corpus) -> Bank:
    return load_bank(corpus, torch.device("cpu"))


@pytest.fixture(scope="session")
def tokenizer() -> TextTokenizer:
    return load_tokenizer()


@pytest.fixture
def builder(corpus: Corpus, bank: Bank, tokenizer: TextTokenizer) -> RowBuilder:
    """Makes rows of the hums, whose codes are just numbers; random state restarts with every
    test."""
    config = TOY.lm_config(**ids(tokenizer))
    codes = np.arange(int(bank.count.sum())).astype(np.int16) % TOY.codes
    first = np.concatenate(([0], np.cumsum(bank.count)[:-1]))
    spoken = Spoken([codes, codes], first, bank.count)
    return RowBuilder(corpus, spoken, tokenizer, RowIds.from_config(config), seed=0)
