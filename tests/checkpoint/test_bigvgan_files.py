"""BigVGAN folders: published files are read; bad ones raise before a network is built."""

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mosslive.checkpoint import CheckpointError, faults
from mosslive.checkpoint.bigvgan import GENERATOR_FILE, read_bigvgan, stored_shapes
from mosslive.config import ConfigError
from mosslive.config.bigvgan import BigVganConfig
from tests.codec.bigvgan.test_bigvgan import PUBLISHED_22K, PUBLISHED_24K, TINY, write_folder

# The published file of the 24 kHz model, discriminator and training fields included.
PUBLISHED_JSON = """{
    "resblock": "1", "num_gpus": 0, "batch_size": 32, "learning_rate": 0.0001,
    "adam_b1": 0.8, "adam_b2": 0.99, "lr_decay": 0.9999996, "seed": 1234,
    "upsample_rates": [4,4,2,2,2,2], "upsample_kernel_sizes": [8,8,4,4,4,4],
    "upsample_initial_channel": 1536, "resblock_kernel_sizes": [3,7,11],
    "resblock_dilation_sizes": [[1,3,5], [1,3,5], [1,3,5]],
    "use_tanh_at_final": false, "use_bias_at_final": false,
    "activation": "snakebeta", "snake_logscale": true,
    "use_cqtd_instead_of_mrd": true, "cqtd_filters": 128, "cqtd_max_filters": 1024,
    "cqtd_filters_scale": 1, "cqtd_dilations": [1, 2, 4], "cqtd_hop_lengths": [512, 256, 256],
    "cqtd_n_octaves": [9, 9, 9], "cqtd_bins_per_octaves": [24, 36, 48],
    "mpd_reshapes": [2, 3, 5, 7, 11], "use_spectral_norm": false,
    "discriminator_channel_mult": 1, "use_multiscale_melloss": true, "lambda_melloss": 15,
    "clip_grad_norm": 500, "segment_size": 65536, "num_mels": 100, "num_freq": 1025,
    "n_fft": 1024, "hop_size": 256, "win_size": 1024, "sampling_rate": 24000,
    "fmin": 0, "fmax": null, "fmax_for_loss": null, "normalize_volume": true, "num_workers": 4,
    "dist_config": {"dist_backend": "nccl", "dist_url": "tcp://localhost:54321", "world_size": 1}
}"""
PRE_V, PRE_G = "conv_pre.weight_v", "conv_pre.weight_g"
ALPHA = "activation_post.act.alpha"


def normed_tensors() -> dict[str, Tensor]:
    """A tiny generator in the published form, with weight norm."""
    shapes = stored_shapes(TINY, [PRE_V])
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path, TINY, normed_tensors())


def store(folder: Path, held: object) -> None:
    torch.save(held, folder / GENERATOR_FILE)


def test_published_configs() -> None:
    """The published fields are read; training fields are ignored."""
    raw = json.loads(PUBLISHED_JSON)
    assert BigVganConfig.from_dict(raw) == PUBLISHED_24K
    raw |= {"sampling_rate": 22050, "num_mels": 80}
    assert BigVganConfig.from_dict(raw) == PUBLISHED_22K


def test_older_configs_end_in_tanh() -> None:
    """Absent `use_tanh_at_final` and `use_bias_at_final` mean true, as in older files."""
    raw = json.loads(PUBLISHED_JSON)
    del raw["use_tanh_at_final"], raw["use_bias_at_final"]
    config = BigVganConfig.from_dict(raw)
    assert (config.use_tanh_at_final, config.use_bias_at_final) == (True, True)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("resblock", "2", '"1"'),
        ("resblock", 1, '"1"'),
        ("activation", "snake", '"snakebeta"'),
        ("snake_logscale", 1, "true or false"),
        ("use_tanh_at_final", None, "true or false"),
        ("num_mels", 0, "an integer of at least 1"),
        ("num_mels", True, "an integer of at least 1"),
        ("sampling_rate", 24000.0, "an integer of at least 1"),
        ("fmin", -1, "0..12000 Hz"),
        ("fmax", 12_001, "0..12000 Hz"),
        ("fmax", float("nan"), "0..12000 Hz"),
        ("fmin", None, "0..12000 Hz"),
        ("hop_size", 300, "product is hop_size, 300"),
        ("upsample_rates", [], "a list of at least one integer"),
        ("upsample_rates", 4, "a list of at least one integer"),
        ("upsample_rates", [4, 4, 2, 2, 2, -2], "an integer of at least 1"),
        ("upsample_kernel_sizes", [8, 8, 4, 4, 4], "6 sizes, one per rate"),
        ("upsample_kernel_sizes", [8, 8, 4, 4, 4, 5], "each its rate plus an even number"),
        ("upsample_kernel_sizes", [2, 8, 4, 4, 4, 4], "each its rate plus an even number"),
        ("upsample_initial_channel", 1500, "a multiple of 64"),
        ("resblock_kernel_sizes", [3, 7, 10], "odd sizes"),
        ("resblock_dilation_sizes", [[1, 3, 5]], "3 lists, one per resblock kernel"),
        ("resblock_dilation_sizes", [[1], [1], []], "a list of at least one integer"),
        ("resblock_dilation_sizes", [1, 3, 5], "a list of at least one integer"),
        ("resblock_dilation_sizes", None, "3 lists"),
    ],
)
def test_unsupported_values_raise(field: str, value: Any, allowed: str) -> None:
    """An unsupported value raises with the field, the value and what is allowed."""
    raw = json.loads(PUBLISHED_JSON) | {field: value}
    with pytest.raises(ConfigError) as caught:
        BigVganConfig.from_dict(raw)
    message = str(caught.value)
    assert allowed in message
    assert " is " in message
    assert field in message or field == "hop_size"


def test_unknown_and_missing_fields() -> None:
    """An unknown field raises, and a missing field raises."""
    raw = json.loads(PUBLISHED_JSON)
    with pytest.raises(ConfigError, match="speaker_embedding_dim is 512, but this version"):
        BigVganConfig.from_dict(raw | {"speaker_embedding_dim": 512})
    for field in ("resblock", "activation", "snake_logscale", "hop_size"):
        with pytest.raises(ConfigError, match=f"{field} is missing"):
            BigVganConfig.from_dict({name: raw[name] for name in raw if name != field})


@pytest.mark.parametrize("text", [None, "", "[1]", '{"resblock": "1"', '{"a": 1}', b"\xff\xfe"])
def test_unreadable_config(folder: Path, text: str | bytes | None) -> None:
    """A missing file, bad JSON or a non-object raises with the path."""
    path = folder / "config.json"
    path.unlink()
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=r"config\.json: "):
        read_bigvgan(folder)


def test_tensors_come_as_stored(folder: Path) -> None:
    """Names and values are those of the file; the network folds weight norm later."""
    config, tensors = read_bigvgan(folder)
    assert config == TINY
    wanted = normed_tensors()
    assert tensors.keys() == wanted.keys()
    assert all(torch.equal(tensors[name], wanted[name]) for name in wanted)


def test_parameters_legacy_files_and_neighbours(folder: Path) -> None:
    """`nn.Parameter` values, the format before zip, and keys besides `generator` are accepted."""
    held = {name: torch.nn.Parameter(tensor) for name, tensor in normed_tensors().items()}
    path = folder / GENERATOR_FILE
    torch.save({"generator": held, "steps": 5}, path, _use_new_zipfile_serialization=False)
    _, tensors = read_bigvgan(folder)
    assert tensors.keys() == held.keys()
    assert not any(tensor.requires_grad for tensor in tensors.values())


def missing(tensors: dict[str, Tensor]) -> list[str]:
    del tensors[ALPHA], tensors[PRE_G]
    return [ALPHA, PRE_G]


def unexpected(tensors: dict[str, Tensor]) -> list[str]:
    tensors["conv_post.bias"] = torch.zeros(1)  # this config has none
    return ["conv_post.bias"]


def folded_and_not(tensors: dict[str, Tensor]) -> list[str]:
    tensors["conv_pre.weight"] = tensors[PRE_V]
    return [PRE_G, PRE_V]


def misshaped(tensors: dict[str, Tensor]) -> list[str]:
    tensors["ups.1.0.weight_v"] = tensors["ups.1.0.weight_v"].transpose(0, 1)
    tensors[ALPHA] = torch.zeros(1).expand(1 << 40)  # four bytes that claim four terabytes
    return ["ups.1.0.weight_v", ALPHA]


def wrong_dtype(tensors: dict[str, Tensor]) -> list[str]:
    tensors[ALPHA] = tensors[ALPHA].to(torch.int32)
    return [ALPHA]


def not_finite(tensors: dict[str, Tensor]) -> list[str]:
    tensors[PRE_V][0, 0, 0] = torch.nan
    tensors[ALPHA][-1] = -torch.inf
    return [PRE_V, ALPHA]


def not_a_tensor(tensors: dict[str, Tensor]) -> list[str]:
    tensors[ALPHA] = [0.0, 0.0]  # type: ignore[assignment]
    tensors["activation_post.act.beta"] = torch.zeros(2).to_sparse()
    return [ALPHA, "activation_post.act.beta"]


Damage = Callable[[dict[str, Tensor]], list[str]]


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (missing, faults.MissingTensors),
        (unexpected, faults.UnexpectedTensors),
        (folded_and_not, faults.UnexpectedTensors),
        (misshaped, faults.MisshapedTensors),
        (wrong_dtype, faults.WrongDtype),
        (not_finite, faults.NonFiniteValues),
        (not_a_tensor, faults.MalformedShard),
    ],
)
def test_faults_of_tensors(folder: Path, damage: Damage, fault: type[CheckpointError]) -> None:
    """Each fault raises its own class with every affected name."""
    tensors = normed_tensors()
    names = damage(tensors)
    store(folder, {"generator": tensors})
    with pytest.raises(fault) as caught:
        read_bigvgan(folder)
    assert type(caught.value) is fault
    assert sorted(caught.value.names) == sorted(names)


def test_missing_names_follow_the_form_of_the_file(tmp_path: Path) -> None:
    """In a folded file the folded name is reported as missing, not two weight-norm halves."""
    shapes = stored_shapes(TINY, [])
    tensors = {name: torch.ones(shape) for name, shape in shapes.items()}
    del tensors["conv_pre.weight"]
    with pytest.raises(faults.MissingTensors) as caught:
        read_bigvgan(write_folder(tmp_path, TINY, tensors))
    assert caught.value.names == ["conv_pre.weight"]


@pytest.mark.parametrize("held", [{}, {"generator": 3}, [1, 2], {"discriminator": {}}])
def test_other_contents(folder: Path, held: object) -> None:
    """A file without a generator's state dict, such as the discriminator's, raises."""
    store(folder, held)
    with pytest.raises(faults.MalformedShard, match="no state dict under the key 'generator'"):
        read_bigvgan(folder)


def test_no_weights(folder: Path) -> None:
    """A folder without the weight file raises `NoWeights`."""
    (folder / GENERATOR_FILE).unlink()
    with pytest.raises(faults.NoWeights, match=GENERATOR_FILE):
        read_bigvgan(folder)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9, 0.999])
def test_truncated(folder: Path, share: float) -> None:
    """A truncated file raises `TruncatedShard`."""
    path = folder / GENERATOR_FILE
    raw = path.read_bytes()
    path.write_bytes(raw[: int(share * len(raw))])
    with pytest.raises(faults.TruncatedShard, match=GENERATOR_FILE):
        read_bigvgan(folder)


@pytest.mark.parametrize("raw", [b"<!DOCTYPE html><html></html>", b"\x80\x02}q\x00.", b"\0" * 999])
def test_not_a_weight_file(folder: Path, raw: bytes) -> None:
    """An HTML page, a bare pickle and zeros raise a `CheckpointError`."""
    (folder / GENERATOR_FILE).write_bytes(raw)
    with pytest.raises(CheckpointError) as caught:
        read_bigvgan(folder)
    assert type(caught.value) in (faults.MalformedShard, faults.TruncatedShard)


class Trap:
    """Pickles to a call that creates a folder when executed."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def zipped(data: bytes, mark: Path) -> bytes:
    """A torch archive whose pickle is `data`."""
    buffer = io.BytesIO()
    torch.save({"generator": {}}, buffer)
    forged = io.BytesIO()
    with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(forged, "w") as target:
        for name in source.namelist():
            target.writestr(name, data if name.endswith("data.pkl") else source.read(name))
    return forged.getvalue()


@pytest.mark.parametrize("archive", [True, False])
def test_nothing_is_executed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: bool
) -> None:
    """A pickle that calls a function raises with the function's name, whatever the environment
    variables say. The message does not contain the library's advice to trust the file."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    mark = tmp_path / "executed"
    data = pickle.dumps({"generator": Trap(mark)}, protocol=2)
    raw = zipped(data, mark) if archive else data
    (folder / GENERATOR_FILE).write_bytes(raw)
    with pytest.raises(faults.MalformedShard) as caught:
        read_bigvgan(folder)
    assert not mark.exists()
    message = str(caught.value)
    assert "nothing was executed" in message
    assert "weights_only" not in message
    if archive:
        assert "posix.mkdir" in message
    pickle.loads(data)  # the trap is a real one
    assert mark.exists()


def test_forged_storage_size(folder: Path) -> None:
    """A tensor that claims more data than the file has raises."""
    path = folder / GENERATOR_FILE
    store(folder, {"generator": {"a": torch.arange(4.0)}})
    old, new = b"K\x04tq", b"M" + struct.pack("<H", 60_000) + b"tq"
    forged = io.BytesIO()
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(forged, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("data.pkl"):
                assert old in content
                content = content.replace(old, new)
            target.writestr(name, content)
    path.write_bytes(forged.getvalue())
    with pytest.raises(faults.MalformedShard):
        read_bigvgan(folder)


def test_written_folder_is_the_published_layout(folder: Path) -> None:
    """The config fields of the test folder are those of the published file."""
    raw = json.loads((folder / "config.json").read_text())
    assert asdict(TINY).keys() <= raw.keys()
    assert BigVganConfig.from_dict(raw) == TINY
