"""`build_engine`: atomic, deterministic, and never over an existing folder."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
import torch
from safetensors.torch import load_file, save_file

from mosslive.build import Fp8Options, Keep, build_engine
from mosslive.build.verify import LIMITS, Limits
from mosslive.checkpoint import CheckpointError, faults
from mosslive.checkpoint.engine_folder import check_hashes, open_engine
from mosslive.checkpoint.engine_layout import BaseDtype
from mosslive.checkpoint.progress import Stage
from mosslive.checkpoint.writer import FolderExists
from mosslive.errors import MossliveError

CPU = torch.device("cpu")


def test_manifest_records_source_and_settings(nano_folder: Path, bf16_engine: Path) -> None:
    """The manifest records version, options and every source file with size and SHA-256."""
    engine = open_engine(bf16_engine)
    check_hashes(engine)
    manifest = engine.manifest
    assert {p.name for p in nano_folder.iterdir()} == manifest.source.keys()
    for name, record in manifest.source.items():
        content = (nano_folder / name).read_bytes()
        assert record.bytes == len(content)
        assert record.sha256 == hashlib.sha256(content).hexdigest()
    assert manifest.settings == {"dtype": "bfloat16", "fp8": None}
    assert set(manifest.precision.values()) == {"bfloat16"}
    for name in ("tokenizer.json", "generation_config.json"):
        assert (bf16_engine / name).read_bytes() == (nano_folder / name).read_bytes()
        assert name in manifest.files
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in bf16_engine.iterdir())


def test_the_same_build_twice(nano_folder: Path, bf16_engine: Path, tmp_path: Path) -> None:
    """Two builds from the same source give identical files."""
    again = build_engine(nano_folder, tmp_path / "again", CPU, shard_bytes=300_000).folder
    names = {path.name for path in again.iterdir()}
    assert names == {path.name for path in bf16_engine.iterdir()}
    for name in names:
        assert (again / name).read_bytes() == (bf16_engine / name).read_bytes()


def with_dtype(folder: Path, dtype: torch.dtype, name: str) -> Path:
    for path in folder.glob("*.safetensors"):
        save_file({n: t.to(dtype) for n, t in load_file(path).items()}, path, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"dtype": name}), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("stored", "wanted", "kept"),
    [
        ("float32", None, "float32"),
        ("float32", "bfloat16", "bfloat16"),
        ("float16", None, "float32"),
        ("bfloat16", None, "bfloat16"),
        ("bfloat16", "float32", "float32"),
    ],
)
def test_precision_of_the_source(
    nano_copy: Path, tmp_path: Path, stored: str, wanted: BaseDtype | None, kept: str
) -> None:
    """The engine has the source's dtype unless `dtype` is given; float16 becomes float32."""
    source = with_dtype(nano_copy, getattr(torch, stored), stored)
    built = build_engine(source, tmp_path / "out", CPU, dtype=wanted)
    assert open_engine(built.folder).manifest.dtype == kept
    assert built.verdict.precision == kept
    assert built.verdict.passed


def test_kept_matrices_are_not_fp8(nano_folder: Path, calibration: Path, tmp_path: Path) -> None:
    """Kept matrices stay unquantised, and the manifest contains the report."""
    keep = Keep(("trunk.1", "*.o"), below_db=200.0)
    options = Fp8Options(Keep(("trunk.1", "*.o")), calibration)
    built = build_engine(nano_folder, tmp_path / "some", CPU, fp8=options)
    manifest = open_engine(built.folder).manifest
    fp8 = {name for name, kind in manifest.precision.items() if kind == "fp8"}
    assert fp8 == {f"trunk.{n}.{m}" for n in (0, 2) for m in ("qkv", "gate_up", "down")}
    assert manifest.report["fp8"]["kept"] == [
        name for name in manifest.precision if name.startswith("trunk.") and name not in fp8
    ]
    assert manifest.settings["fp8"]["keep"]["names"] == ["trunk.1", "*.o"]
    none = build_engine(nano_folder, tmp_path / "none", CPU, fp8=Fp8Options(keep, calibration))
    assert "fp8" not in open_engine(none.folder).manifest.precision.values()
    assert none.verdict.precision == "bfloat16"


def interrupting(label: str, error: type[BaseException]) -> Stage:
    @contextmanager
    def stage(name: str, _: int) -> Iterator[Callable[[int], None]]:
        def progress(_: int) -> None:
            if name == label:
                raise error("no more")

        yield progress

    return stage


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize(
    "label", ["reading values", "fusing", "reference logits", "hashing the source", "verifying"]
)
def test_an_interrupted_build_leaves_nothing(
    nano_folder: Path, tmp_path: Path, label: str, error: type[BaseException]
) -> None:
    """A build that fails at any point leaves no files."""
    with pytest.raises(error, match="no more"):
        build_engine(nano_folder, tmp_path / "out", CPU, stage=interrupting(label, error))
    assert list(tmp_path.iterdir()) == []


def test_a_build_that_computes_wrong_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, nano_folder: Path, tmp_path: Path
) -> None:
    """A build whose engine fails its probes raises and leaves no folder."""
    monkeypatch.setitem(LIMITS, "bfloat16", Limits(error=1e-9, cosine=1))
    with pytest.raises(faults.FailedProbes, match="text head: error"):
        build_engine(nano_folder, tmp_path / "out", CPU)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_not_touched(nano_folder: Path, tmp_path: Path) -> None:
    """An existing output folder raises, even if it is empty."""
    (tmp_path / "out").mkdir()
    with pytest.raises(FolderExists):
        build_engine(nano_folder, tmp_path / "out", CPU)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_dangling_link_is_refused_at_once(nano_folder: Path, tmp_path: Path) -> None:
    """A dangling link as output raises before the slow part."""
    (tmp_path / "out").symlink_to(tmp_path / "nothing")
    with pytest.raises(FolderExists):
        build_engine(nano_folder, tmp_path / "out", CPU, stage=_no_stage)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def _no_stage(label: str, total: int) -> NoReturn:
    raise AssertionError(f"{label} had begun")


def test_bad_sources(nano_copy: Path, tmp_path: Path) -> None:
    """A bad checkpoint raises before anything is written."""
    shard = min(nano_copy.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-8])
    with pytest.raises(faults.TruncatedShard):
        build_engine(nano_copy, tmp_path / "out", CPU)
    (nano_copy / "config.json").unlink()
    with pytest.raises(MossliveError, match=r"config\.json"):
        build_engine(nano_copy, tmp_path / "out", CPU)
    shutil.rmtree(nano_copy)
    with pytest.raises(MossliveError, match="no such folder"):
        build_engine(nano_copy, tmp_path / "out", CPU)
    assert not (tmp_path / "out").exists()
    assert issubclass(faults.TruncatedShard, CheckpointError)


def test_options_are_checked_first(nano_folder: Path, tmp_path: Path) -> None:
    """A bad pattern or calibration file raises before the model is loaded."""
    for options, said in (
        (Fp8Options(keep=Keep(("nothing",))), "keep is 'nothing'"),
        (Fp8Options(calibration=tmp_path / "none.jsonl"), "none.jsonl: not readable"),
    ):
        with pytest.raises(MossliveError, match=said):
            build_engine(nano_folder, tmp_path / "out", CPU, fp8=options)
