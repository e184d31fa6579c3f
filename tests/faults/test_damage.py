"""Files of every format, damaged anywhere: refused with a message, or used with valid results.

`make test-faults` tries many more places than `make test`.
"""

import pickle
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mosslive import LanguageModel, Turn, load_lm
from mosslive.build import load_engine_folder
from mosslive.checkpoint import CheckpointError
from mosslive.checkpoint.capabilities import folder_capabilities
from mosslive.checkpoint.generation import folder_sampling
from mosslive.checkpoint.pickles import read_pickle
from mosslive.codec import Codec, Voice, load_codec
from mosslive.config import ConfigError
from mosslive.config.codec import DecoderConfig
from mosslive.talk.conversation_file import load_turns, save_turns
from mosslive.talk.dialogue import HistoryTurn
from tests.build.conftest import bf16_engine
from tests.codec.conftest import some_codes, speech
from tests.faults.damage import Subject

__all__ = ["bf16_engine"]
Copy = Callable[[Path], Path]


def files_of(folder: Path, *endings: str) -> list[Path]:
    """All files of a folder, or those with one of these endings."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if not endings or path.suffix in endings]


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return lambda folder: Path(shutil.copytree(folder, tmp_path / folder.name))


def test_a_model_folder(nano_folder: Path, copy: Copy) -> None:
    """Weights, index, config, tokenizer, sampling: refused, or a reply of valid rows."""
    folder = copy(nano_folder)

    def use(_: Path) -> None:
        folder_capabilities(folder)
        sampling = replace(folder_sampling(folder), max_new=1, min_new=0)
        lm = load_lm(folder, kv_rows=256)
        for text, audio in lm.generate(lm.prompt([Turn("user", text="Hi 7")], "speech"), sampling):
            assert 0 <= text < lm.config.vocab_size
            assert 0 <= audio < lm.config.audio_vocab_size

    Subject(files_of(folder), use).sweep(16)


def test_an_engine_folder(bf16_engine: Path, copy: Copy) -> None:
    """Every change is refused, except for white space in the manifest."""
    folder, cpu = copy(bf16_engine), torch.device("cpu")
    subject = Subject(files_of(folder), lambda _: load_engine_folder(folder, cpu))
    subject.sweep(12, lambda file: file.name == "engine.json")


def tensors_of(file: Path) -> dict[str, Tensor]:
    return read_pickle(file, ignored=("epoch", "step"))


def test_pytorch_files(codec_folder: Path, copy: Copy) -> None:
    """The checksums of an archive are compared: what is read is what was written."""
    written = {file: tensors_of(file) for file in files_of(copy(codec_folder), ".pt")}
    assert len(written) == 4

    def use(file: Path) -> None:
        found = tensors_of(file)
        assert found.keys() == written[file].keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in written[file].items())

    Subject(list(written), use).sweep(24)


def test_the_other_networks_of_a_codec(codec_folder: Path, copy: Copy) -> None:
    """Weights of the encoder and the speaker network are refused, or compute finite numbers."""
    folder, wave = copy(codec_folder), torch.from_numpy(speech(0.6, 16_000))

    def use(file: Path) -> None:
        codec = load_codec(folder, trace_cpu_steps=False)
        if file.suffix == ".onnx":
            assert codec._speaker.vector(wave).isfinite().all()
        else:
            assert min(codec.encode(wave, 16_000)) >= 0

    Subject(files_of(folder, ".safetensors", ".onnx"), use).sweep(6)


def test_settings_of_a_codec(codec_folder: Path, copy: Copy) -> None:
    """Settings are refused, alone or because the weights do not fit them, or networks can be
    made."""
    folder = copy(codec_folder)

    def use(_: Path) -> None:
        codec = load_codec(folder, trace_cpu_steps=False)
        assert codec._encoder is not None
        assert codec._flow("chunk-5") is not None
        assert codec._vocoder is not None

    Subject(files_of(folder, ".json", ".yaml"), use).sweep(12)


def test_a_voice(codec: Codec, voice: Voice, tmp_path: Path) -> None:
    """A voice has a checksum: only its name may change. One without, of an earlier version, is
    refused or gives finite sound."""
    file = tmp_path / "anna.voice"
    voice.save(file)

    def same(_: Path) -> None:
        found = codec.voice(file).prompt
        for name in ("prompt_codes", "prompt_feat", "embedding"):
            assert torch.equal(getattr(found, name), getattr(voice.prompt, name))

    Subject([file], same).sweep(30)
    file.write_bytes(file.read_bytes().replace(b"checksum", b"chucksum"))

    def sounds(_: Path) -> None:
        assert np.isfinite(codec.decode(some_codes(2, 1), codec.voice(file))).all()

    Subject([file], sounds).sweep(3)


def test_a_conversation(nano_lm: LanguageModel, tmp_path: Path) -> None:
    """A saved conversation is refused, or has turns that the model can read."""
    file, form = tmp_path / "talk.json", nano_lm.format
    turns = [Turn("user", text="Hello."), Turn("assistant", codes=[1, 2, 3])]
    said = [HistoryTurn(one.role, "text", tuple(form.turn(one))) for one in turns]
    save_turns(file, said, nano_lm.ids)

    def use(_: Path) -> None:
        for turn in load_turns(file, nano_lm.ids):
            nano_lm.forward(turn.rows)

    Subject([file], use).sweep(30)


class Malicious:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


@pytest.mark.parametrize("archive", [False, True])
def test_a_malicious_pickle_runs_nothing(tmp_path: Path, archive: bool) -> None:
    """Neither the old nor the new format of PyTorch executes what a file asks for."""
    file, trace = tmp_path / "hift.pt", tmp_path / "executed"
    attack = Malicious(trace)
    pickle.loads(pickle.dumps(attack))
    assert trace.exists()
    trace.unlink()
    held = {"weight": torch.zeros(2), "bias": attack}
    torch.save(held, file, _use_new_zipfile_serialization=archive)
    assert zipfile.is_zipfile(file) == archive
    with pytest.raises(CheckpointError, match="nothing was executed"):
        read_pickle(file)
    file.write_bytes(pickle.dumps(attack))
    with pytest.raises(CheckpointError, match="nothing was executed"):
        read_pickle(file)
    assert not trace.exists()


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)),
        "a: &a [*a]\n",
        "a: " + "[" * 500,
        "flow: !!python/object/apply:os.system ['touch executed']\n",
    ],
    ids=["aliases of aliases", "alias of itself", "too deep", "an object"],
)
def test_a_malicious_yaml_costs_and_runs_nothing(tmp_path: Path, text: str) -> None:
    """A few lines cannot fill the memory, and tags make no objects."""
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        DecoderConfig.from_file(file)
