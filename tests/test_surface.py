"""The public Python API, used as in the README."""

from pathlib import Path

import pytest
import torch

import mosslive


def test_calls_and_shapes_of_the_language_model(nano_folder: Path) -> None:
    """Loading, prompts, `forward`, `generate` and `read` have the documented types and shapes."""
    lm = mosslive.load_lm(nano_folder, device="cpu", dtype="float32")
    assert lm.config.num_shared_layers == 3
    assert lm.tokenizer.decode(lm.tokenizer.encode("Hello")) == "Hello"
    turns = [mosslive.Turn("user", text="Hello"), mosslive.Turn("assistant", codes=[1, 2, 3])]
    rows = lm.prompt(turns, reply="speech")
    assert rows.dtype == torch.int64
    assert rows.shape[1] == 2
    text_logits, audio_logits = lm.forward(rows)
    assert text_logits.dtype == audio_logits.dtype == torch.float32
    assert text_logits.shape == (len(rows), lm.config.vocab_size)
    assert audio_logits.shape == (len(rows), lm.config.audio_vocab_size)
    new = list(lm.generate(rows, mosslive.Sampling(greedy=True, max_new=64)))
    assert len(new) == 64
    assert all(type(value) is int for row in new for value in row)
    assert lm.read(new).codes == [row[1] for row in new]


def test_logits_may_be_changed_by_their_owner(nano_lm: mosslive.LanguageModel) -> None:
    """`forward` returns ordinary tensors that the caller may change."""
    text, _ = nano_lm.forward([(1, 2), (3, 4)])
    text[0] = 0
    assert not text.requires_grad


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float16"}, "dtype is 'float16'; allowed: float32, bfloat16"),
        ({"page_size": 0}, "page_size is 0; allowed: an integer, 1 or more"),
        ({"kv_rows": -1}, "kv_rows is -1; allowed: an integer, 1 or more"),
        ({"chunk": 0}, "chunk is 0; allowed: an integer, 1 or more"),
        ({"kv_rows": True}, "kv_rows is True; allowed: an integer"),
        ({"page_size": 2.5}, "page_size is 2.5; allowed: an integer"),
        ({"kv_rows": 10**13}, "GB of pages do not fit into memory"),
        ({"device": "meta"}, "device is 'meta'; allowed: cpu, or cuda"),
        ({"device": None}, "device is None; allowed: cpu, or cuda"),
        ({"device": "nowhere"}, "device is 'nowhere'; allowed: cpu, or cuda"),
    ],
)
def test_bad_options(nano_folder: Path, options: dict[str, str], message: str) -> None:
    """Bad options raise before anything is read."""
    with pytest.raises(mosslive.MossliveError, match=message):
        mosslive.load_lm(nano_folder, **options)  # type: ignore[arg-type]


def test_bad_arguments_raise(nano_lm: mosslive.LanguageModel) -> None:
    """Bad arguments raise a `MossliveError`, not a library's error."""
    turn = mosslive.Turn("user", text="x")
    for wrong in (
        lambda: nano_lm.forward(None),
        lambda: nano_lm.forward(torch.tensor(5)),
        lambda: nano_lm.generate([(1, 2)], "greedy"),  # type: ignore[arg-type]
        lambda: nano_lm.prompt(turn),  # type: ignore[arg-type]
        lambda: nano_lm.prompt(["hi"]),  # type: ignore[list-item]
        lambda: mosslive.Turn("user", codes=5),  # type: ignore[arg-type]
        lambda: mosslive.Turn("user", text="\ud800"),
        lambda: nano_lm.prompt([mosslive.Turn("user", codes=torch.tensor([1.7]))]),  # type: ignore[arg-type]
        lambda: nano_lm.prompt([mosslive.Turn("user", codes=torch.tensor([True]))]),  # type: ignore[arg-type]
        lambda: nano_lm.prompt([mosslive.Turn("user", codes=torch.zeros(2, 2).long())]),  # type: ignore[arg-type]
        lambda: nano_lm.forward([(torch.tensor(1.7), 2)]),
    ):
        with pytest.raises(mosslive.MossliveError):
            wrong()


def test_rows_of_any_kind_read_alike(nano_lm: mosslive.LanguageModel) -> None:
    """A tensor of rows reads like a list of rows."""
    rows = nano_lm.prompt([mosslive.Turn("user", codes=[1, 2])], reply="text")
    assert nano_lm.read(rows) == nano_lm.read([tuple(row) for row in rows.tolist()])
    assert "<|im_start|>" not in nano_lm.read(rows).text


def test_bad_tails(nano_lm: mosslive.LanguageModel) -> None:
    """A bad `tails` raises at the call, not at the first row."""
    with pytest.raises(mosslive.MossliveError, match="tails is 'one'; allowed: lazy or both"):
        nano_lm.generate([(1, 2)], tails="one")  # type: ignore[arg-type]


def test_no_such_name() -> None:
    """An unknown name raises AttributeError, and `dir` lists the public names."""
    with pytest.raises(AttributeError, match="no attribute 'load_ml'"):
        mosslive.load_ml  # noqa: B018
    assert "load_lm" in dir(mosslive)
