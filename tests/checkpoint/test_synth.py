"""Random checkpoints: deterministic, of the documented sizes, with varied outputs."""

import base64
import json
import math
import shutil
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from mosslive import LanguageModel, MossliveError, Sampling, Turn
from mosslive.checkpoint import SIZES, SizeName, synth, synthesise, take_inventory, writer
from mosslive.checkpoint.layout import expected_tensors
from mosslive.checkpoint.synth import synth_config
from mosslive.checkpoint.vocabulary import (
    Vocabulary,
    VocabularyError,
    learned_vocabulary,
    ranked_vocabulary,
)
from mosslive.checkpoint.writer import FolderExists, NoSpace, write_shards
from mosslive.config import ModelConfig
from mosslive.rows import ReplyKind, TextTokenizer
from tests.config.test_model_config import PUBLISHED

# Ids of the published vocabulary, as the specification lists them.
PUBLISHED_VOCABULARY = Vocabulary("", 151669, 151643, 151645, 151646, 151667)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def ranks_file(path: Path, *tokens: bytes) -> Path:
    every = [bytes([byte]) for byte in range(256)] + list(tokens)
    lines = (f"{base64.b64encode(token).decode()} {n}\n" for n, token in enumerate(every))
    path.write_text("".join(lines))
    return path


@pytest.fixture(scope="module")
def tokenizer(nano_folder: Path) -> TextTokenizer:
    return TextTokenizer.from_file(nano_folder / "tokenizer.json")


def test_same_seed_same_bytes(tmp_path: Path, nano_folder: Path) -> None:
    """The same seed gives the same files, byte for byte."""
    assert contents(synthesise(tmp_path, "nano", seed=1)) == contents(nano_folder)


def test_other_seed_other_values(tmp_path: Path, nano_folder: Path) -> None:
    """Another seed changes every tensor and nothing else."""
    other = synthesise(tmp_path, "nano", seed=2)
    before, after = contents(nano_folder), contents(other)
    shards = {name for name in before if name.endswith(".safetensors")}
    assert {name for name in before if before[name] != after[name]} == shards
    for name in shards:
        first, second = load_file(nano_folder / name), load_file(other / name)
        assert first.keys() == second.keys()
        assert [key for key in first if torch.equal(first[key], second[key])] == []


def test_no_two_tensors_are_alike(nano_folder: Path) -> None:
    """Tensors of one shape differ, norms too, so that tests notice a swapped or missing one."""
    inventory = take_inventory(nano_folder)
    values = Counter(
        tensor.view(torch.uint8).numpy().tobytes()
        for shard in set(inventory.shard_of.values())
        for tensor in load_file(shard).values()
    )
    assert max(values.values()) == 1
    assert len(values) == len(inventory.entries)


@pytest.mark.parametrize(
    ("size", "least", "most"),
    [
        ("nano", 100_000, 1_000_000),
        ("small", 100_000_000, 140_000_000),
        ("full", 9_095_694_336, 9_095_694_336),
    ],
)
def test_parameters_of_each_size(size: SizeName, least: int, most: int) -> None:
    """The parameter counts are those of the command line's help."""
    shapes = expected_tensors(synth_config(size, learned_vocabulary()))
    assert least <= sum(math.prod(shape) for shape in shapes.values()) <= most


def test_full_size_is_the_published_model() -> None:
    """With the Qwen vocabulary, the full-size config equals the published one, ids included."""
    published = ModelConfig.from_dict(PUBLISHED | {"pad_token_id": 151643})
    assert synth_config("full", PUBLISHED_VOCABULARY) == published


def test_full_size_has_four_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The full model is split and indexed as published: 446 tensors, 18.19 GB, four files."""
    monkeypatch.setattr(writer, "write_shard", lambda *_: None)  # the index without the 18 GB
    shapes = expected_tensors(ModelConfig.from_dict(PUBLISHED))
    write_shards(tmp_path, shapes, "BF16", pytest.fail, SIZES["full"].shard_bytes)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 18_191_388_672
    assert len(index["weight_map"]) == 446
    names = {f"model-0000{n}-of-00004.safetensors" for n in (1, 2, 3, 4)}
    assert set(index["weight_map"].values()) == names


@pytest.mark.parametrize("reply", ["speech", "text"])
def test_activations_are_sane(nano_lm: LanguageModel, reply: ReplyKind) -> None:
    """Logits are finite and spread by a few units."""
    turns = [Turn("user", text="Tell me about the river."), Turn("user", codes=range(0, 400, 9))]
    for logits in nano_lm.forward(nano_lm.prompt(turns, reply)):
        assert logits.isfinite().all()
        assert 0.5 < logits.std().item() < 10
        assert logits.std(dim=0).median().item() > 0.5  # and rows differ from each other


@pytest.mark.parametrize("reply", ["speech", "text"])
def test_greedy_output_is_not_constant(nano_lm: LanguageModel, reply: ReplyKind) -> None:
    """The most likely id changes from row to row, so that row comparisons are meaningful."""
    prompt = nano_lm.prompt([Turn("user", text="Hello! How are you today?")], reply)
    rows = list(nano_lm.generate(prompt, Sampling(greedy=True, max_new=24)))
    channel = 1 if reply == "speech" else 0
    assert len({row[channel] for row in rows}) > len(rows) // 4
    assert nano_lm.pool.free == nano_lm.pool.total


def test_existing_output_raises(tmp_path: Path) -> None:
    """An existing folder raises and stays unchanged."""
    (tmp_path / "lm").mkdir()
    (tmp_path / "lm" / "mine").write_text("mine")
    with pytest.raises(FolderExists, match="lm exists already"):
        synthesise(tmp_path, "nano")
    assert contents(tmp_path / "lm") == {"mine": b"mine"}
    assert [path.name for path in tmp_path.iterdir()] == ["lm"]


@pytest.mark.parametrize("size", ["nano", "full"])
def test_full_disk_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: SizeName) -> None:
    """Too little disk space raises before anything is written, with both numbers."""
    asked: list[Path] = []

    def usage(path: Path) -> SimpleNamespace:
        asked.append(path)
        return SimpleNamespace(free=800_000)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(NoSpace, match=r"needs .* GB and its disk has 0\.0 GB free"):
        synthesise(tmp_path / "new" / "deeper", size)
    assert asked == [tmp_path]  # the nearest existing folder determines the disk
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("calls", [0, 1, 50])
def test_interruption_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """An interrupted write leaves neither the model folder nor a temporary one."""
    original = synth.random_tensor
    left = iter(range(calls))

    def until_interrupted(*arguments: object) -> torch.Tensor:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(synth, "random_tensor", until_interrupted)
    with pytest.raises(KeyboardInterrupt):
        synthesise(tmp_path / "out", "nano")
    assert list((tmp_path / "out").iterdir()) == []


def test_progress_reaches_the_total(tmp_path: Path) -> None:
    """Progress only grows and ends at the bytes of all tensors."""
    reported: list[tuple[int, int]] = []
    target = synthesise(
        tmp_path, "nano", progress=lambda done, total: reported.append((done, total))
    )
    size = sum(entry.data_bytes for entry in take_inventory(target).entries.values())
    done = [count for count, _ in reported]
    assert {total for _, total in reported} == {size}
    assert done == sorted(set(done))
    assert done[-1] == size


def test_json_files(nano_folder: Path) -> None:
    """config.json describes the weights; generation_config.json has the driver's settings."""
    config = ModelConfig.from_file(nano_folder / "config.json")
    assert take_inventory(nano_folder).valid
    generation = json.loads((nano_folder / "generation_config.json").read_text())
    assert generation == {
        "do_sample": True,
        "eos_token_id": [config.eos_token_id, config.pad_token_id],
        "pad_token_id": config.pad_token_id,
        "repetition_penalty": 1.1,
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
    }


def test_special_tokens_have_the_configs_ids(nano_folder: Path, tokenizer: TextTokenizer) -> None:
    """Tokenizer and config agree on every special id."""
    config = json.loads((nano_folder / "config.json").read_text())
    assert tokenizer.id_of("<|im_end|>") == config["eos_token_id"]
    assert tokenizer.id_of("<|endoftext|>") == config["pad_token_id"]
    assert tokenizer.id_of("<|object_ref_start|>") == config["sosp_token_id"]
    assert tokenizer.id_of("<think>") == config["modality_pad_token_id"]
    # The published ids stand in the same order: 151643, 151645, 151646 and 151667.
    names = ("pad_token_id", "eos_token_id", "sosp_token_id", "modality_pad_token_id")
    assert [config[name] - config["pad_token_id"] for name in names] == [0, 2, 3, 24]


def test_control_tokens_are_silent_and_words_are_not(tokenizer: TextTokenizer) -> None:
    """As in Qwen3, turn marks are special and absent from text; tags like <think> are text."""
    for token, shown in (("<|im_end|>", ""), ("<|video_pad|>", ""), ("<think>", "<think>")):
        assert tokenizer.decode(tokenizer.encode(token, control=True)) == shown
        assert len(tokenizer.encode(token, control=True)) == 1


# Unassigned characters may be normalised differently by later versions of Unicode.
TEXT = st.text(st.characters(exclude_categories=("Cs", "Cn")))
SPELLED = st.sampled_from(["<|im_end|>", "<think>", "<|endoftext|>", "</tool_call>", "\n\n", "  "])


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.lists(TEXT | SPELLED, max_size=4).map("".join))
def test_any_text_round_trips(tokenizer: TextTokenizer, text: str) -> None:
    """Text round-trips in Unicode's composed form, control tokens included."""
    assert tokenizer.decode(tokenizer.encode(text)) == unicodedata.normalize("NFC", text)


def test_ranks_file_gives_its_own_ids(tmp_path: Path) -> None:
    """A tiktoken file keeps its ranks as ids; its merges follow from the ranks."""
    path = ranks_file(tmp_path / "ranks", b"ab", b"abc", "é".encode())
    folder = synthesise(tmp_path, "nano", ranks=path)
    tokenizer = TextTokenizer.from_file(folder / "tokenizer.json")
    assert tokenizer.encode("abcab") == [257, 256]
    assert tokenizer.encode("éx") == [258, ord("x")]
    assert tokenizer.id_of("<|endoftext|>") == 259
    assert ModelConfig.from_file(folder / "config.json").pad_token_id == 259


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: "", "all 256 bytes"),
        (lambda text: text.replace(" 255\n", " 999\n"), "ranks must be 0, 1, 2"),
        (lambda text: text + "not base64! 257\n", "not a tiktoken ranks file"),
        (lambda text: text + "YWI=\n", "not a tiktoken ranks file"),
        (
            lambda text: text + f"{base64.b64encode(b'xyz').decode()} 256\n",
            "no sequence of merges gives",
        ),
    ],
)
def test_bad_ranks_file_raises(tmp_path: Path, spoil: Callable[[str], str], said: str) -> None:
    """A bad ranks file raises, and no folder is written."""
    path = ranks_file(tmp_path / "ranks")
    path.write_text(spoil(path.read_text()))
    with pytest.raises(VocabularyError, match=said):
        ranked_vocabulary(path)
    with pytest.raises(VocabularyError, match=said):
        synthesise(tmp_path / "out", "nano", ranks=path)
    assert not (tmp_path / "out").exists()


def test_too_large_vocabulary_raises(tmp_path: Path) -> None:
    """A vocabulary larger than the model's raises with both numbers."""
    pairs = [bytes([first, second]) for first in range(20) for second in range(20)]
    path = ranks_file(tmp_path / "ranks", *pairs)
    with pytest.raises(MossliveError, match="682 ids; allowed for size nano: at most 640"):
        synthesise(tmp_path / "out", "nano", ranks=path)
    assert not (tmp_path / "out").exists()
