"""Loading an engine folder: exact weights, and an error for any changed bit."""

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mosslive.build import load as load_module
from mosslive.build import load_engine_folder, quick_check
from mosslive.checkpoint import Checkpoint, CheckpointError, faults
from mosslive.checkpoint.engine_manifest import MANIFEST_FILE
from mosslive.errors import MossliveError
from mosslive.kernels import Matrix, quantise_rows
from mosslive.model import Decoder, DecoderWeights, LayerWeights, load_weights

CPU = torch.device("cpu")


def named(weights: DecoderWeights) -> Iterator[tuple[str, Tensor | Matrix]]:
    """Every weight by its path in the decoder."""
    blocks = {"trunk": weights.trunk}
    blocks |= {str(channel): tail.layers for channel, tail in weights.tails.items()}
    for block, layers in blocks.items():
        for index, layer in enumerate(layers):
            for field in fields(LayerWeights):
                yield f"{block}.{index}.{field.name}", getattr(layer, field.name)
    for channel, tail in weights.tails.items():
        yield from ((f"{channel}.{n}", getattr(tail, n)) for n in ("embed", "norm", "head"))


def tensor_of(weight: Tensor | Matrix) -> Tensor:
    return weight.weight if isinstance(weight, Matrix) else weight


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_round_trip_is_exact(
    nano_checkpoint: Checkpoint, bf16_engine: Path, fp32_engine: Path, dtype: torch.dtype
) -> None:
    """A loaded engine has the same bits as the loaded checkpoint."""
    folder = bf16_engine if dtype == torch.bfloat16 else fp32_engine
    config, tokenizer, weights = load_engine_folder(folder, CPU)
    assert config == nano_checkpoint.config
    assert tokenizer.decode(tokenizer.encode("Hello")) == "Hello"
    wanted = dict(named(load_weights(nano_checkpoint, CPU, dtype)))
    found = dict(named(weights))
    assert found.keys() == wanted.keys()
    for name, weight in found.items():
        assert type(weight) is type(wanted[name]), name
        assert tensor_of(weight).dtype == dtype
        assert torch.equal(tensor_of(weight), tensor_of(wanted[name])), name


def test_fp8_round_trip(nano_checkpoint: Checkpoint, fp8_engine: Path) -> None:
    """Trunk matrices are quantised with their scales; all other weights are unchanged."""
    _, _, weights = load_engine_folder(fp8_engine, CPU)
    wanted = dict(named(load_weights(nano_checkpoint, CPU, torch.bfloat16)))
    for name, weight in named(weights):
        before = tensor_of(wanted[name])
        if name.startswith("trunk.") and isinstance(weight, Matrix):
            values, scale = quantise_rows(before)
            assert weight.scale is not None
            assert torch.equal(weight.scale, scale), name
            assert torch.equal(weight.weight.view(torch.uint8), values.view(torch.uint8)), name
        else:
            assert torch.equal(tensor_of(weight), before), name


def test_pieces_and_threads_do_not_matter(
    monkeypatch: pytest.MonkeyPatch, bf16_engine: Path
) -> None:
    """Any block size gives the same weights, and progress reports every byte once."""
    _, _, whole = load_engine_folder(bf16_engine, CPU)
    monkeypatch.setattr(load_module, "_BLOCK_BYTES", 999)
    reported: list[int] = []
    _, _, pieces = load_engine_folder(bf16_engine, CPU, reported.append)
    for (name, a), (_, b) in zip(named(whole), named(pieces), strict=True):
        assert torch.equal(tensor_of(a), tensor_of(b)), name
    assert sum(reported) == sum(tensor_of(weight).nbytes for _, weight in named(whole))


@given(data=st.data())
@settings(derandomize=True, deadline=None, max_examples=60)
def test_any_flipped_bit_raises(bf16_engine: Path, data: st.DataObject) -> None:
    """Loading detects one changed bit anywhere in a weight file, without hashing files."""
    path = data.draw(st.sampled_from(sorted(bf16_engine.glob("weights-*"))))
    size = path.stat().st_size
    # Headers are small, so half of the samples hit them.
    byte = data.draw(st.one_of(st.integers(0, size - 1), st.integers(0, 2000)))
    bit = 1 << data.draw(st.integers(0, 7))
    flip(path, byte, bit)
    try:
        with pytest.raises(faults.DamagedEngine):
            load_engine_folder(bf16_engine, CPU)
    finally:
        flip(path, byte, bit)


def flip(path: Path, byte: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(byte)
        old = file.read(1)[0]
        file.seek(byte)
        file.write(bytes([old ^ bit]))


def test_a_flipped_bit_names_its_tensor(engine_copy: Path) -> None:
    """The error names the weight and the folder."""
    path = max(engine_copy.glob("weights-*"))
    flip(path, path.stat().st_size - 1, 1)
    with pytest.raises(faults.DamagedEngine) as caught:
        load_engine_folder(engine_copy, CPU)
    assert str(engine_copy) in str(caught.value)
    (name,) = caught.value.names
    assert name == "audio.head"


def test_wrong_version_and_half_folder(engine_copy: Path) -> None:
    """Another version and a missing manifest raise with an explanation."""
    content = json.loads((engine_copy / MANIFEST_FILE).read_text("utf-8"))
    content["version"] = 99
    (engine_copy / MANIFEST_FILE).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(faults.EngineVersion, match="version 99; this mosslive reads 1"):
        load_engine_folder(engine_copy, CPU)
    (engine_copy / MANIFEST_FILE).unlink()
    with pytest.raises(faults.NotAnEngine, match="was not finished"):
        load_engine_folder(engine_copy, CPU)


def test_a_file_cut_while_it_is_read(monkeypatch: pytest.MonkeyPatch, bf16_engine: Path) -> None:
    """An empty read raises instead of looping forever."""
    monkeypatch.setattr("os.preadv", lambda *_: 0)
    with pytest.raises(faults.TruncatedShard):
        load_engine_folder(bf16_engine, CPU)


def test_too_little_memory_is_reported(monkeypatch: pytest.MonkeyPatch, bf16_engine: Path) -> None:
    """Too little memory raises with the device and the needed size, not PyTorch's error."""

    def full(*_: object, **__: object) -> Tensor:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(torch, "empty", full)
    with pytest.raises(MossliveError, match=r"device is 'cpu'; allowed: one with 0\.0 GB free"):
        load_engine_folder(bf16_engine, CPU)


def test_quick_check(bf16_engine: Path, fp8_engine: Path) -> None:
    """`quick_check` accepts the right weights and raises for another model's folder."""
    for folder in (bf16_engine, fp8_engine):
        config, _, weights = load_engine_folder(folder, CPU)
        quick_check(Decoder(config, weights), folder)
    embed = weights.tails["text"].embed
    embed.copy_(embed.flip(0))
    with pytest.raises(CheckpointError, match="does not reproduce its reference"):
        quick_check(Decoder(config, weights), fp8_engine)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_the_same_bits_on_a_gpu(bf16_engine: Path, fp8_engine: Path) -> None:
    """Loading through pinned buffers gives the same bits as on a CPU, and the probes pass."""
    device = torch.device("cuda")
    for folder in (bf16_engine, fp8_engine):
        config, _, there = load_engine_folder(folder, device)
        _, _, here = load_engine_folder(folder, CPU)
        for (name, a), (_, b) in zip(named(there), named(here), strict=True):
            raw = tensor_of(a).cpu().view(torch.uint8)
            assert torch.equal(raw, tensor_of(b).view(torch.uint8)), name
        quick_check(Decoder(config, there), folder)
