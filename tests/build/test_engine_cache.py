"""Engine folders built at first use: what determines them, and what never is used."""

import errno
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from mosslive import MossliveError
from mosslive.build import engine_cache
from mosslive.build.engine_cache import EngineCache
from mosslive.checkpoint.engine_folder import open_engine
from mosslive.checkpoint.progress import silent
from mosslive.checkpoint.writer import NoSpace, new_folder

CPU = torch.device("cpu")


class Builds:
    """Takes the place of `build_engine`: copies a finished engine, counts, and fails on request."""

    def __init__(self, engine: Path) -> None:
        self.engine, self.count = engine, 0
        self.fault: BaseException | None = None
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.options: list[dict[str, Any]] = []

    def __call__(self, source: Path, out: Path, device: torch.device, **options: Any) -> None:
        self.count += 1
        self.options.append(options)
        with new_folder(out) as work:
            self.begun.set()
            assert self.go_on.wait(30)
            shutil.copytree(self.engine, work, dirs_exist_ok=True)
            if self.fault:
                raise self.fault


@pytest.fixture
def builds(bf16_engine: Path) -> Builds:
    return Builds(bf16_engine)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def cache(tmp_path: Path, builds: Builds, said: list[str]) -> EngineCache:
    return EngineCache(tmp_path / "cache", say=said.append, build=builds)  # type: ignore[arg-type]


def test_a_real_build(nano_folder: Path, tmp_path: Path) -> None:
    """The first use builds a verified engine folder and says where; the second only opens it."""
    said: list[str] = []
    stages: list[str] = []

    def stage(label: str, total: int):  # type: ignore[no-untyped-def]
        stages.append(label)
        return silent(label, total)

    cache = EngineCache(tmp_path, stage, said.append)
    folder = cache.engine(nano_folder, CPU, worth_bytes=0)
    assert open_engine(folder).manifest.dtype == "bfloat16"
    assert said == [f"Building an engine folder, once: {folder}"]
    assert "verifying" in stages
    assert cache.engine(nano_folder, CPU, worth_bytes=0) == folder
    assert len(said) == 1


def test_what_needs_no_building(
    cache: EngineCache, builds: Builds, nano_folder: Path, bf16_engine: Path
) -> None:
    """An engine folder and a small checkpoint are used as they are."""
    assert cache.engine(bf16_engine, CPU, worth_bytes=0) == bf16_engine
    assert cache.engine(nano_folder, CPU) == nano_folder
    assert builds.count == 0
    assert not cache.folder.exists()


def test_the_key(cache: EngineCache, builds: Builds, nano_copy: Path) -> None:
    """The content of the files, the precision and the version of the format determine the folder;
    the place of the checkpoint does not."""

    def built(source: Path, **options: Any) -> Path:
        return cache.engine(source, CPU, worth_bytes=0, **options)

    first = built(nano_copy)
    moved = shutil.copytree(nano_copy, nano_copy.parent / "another")
    assert built(moved) == first
    assert builds.count == 1
    others = {built(nano_copy, fp8=True), built(nano_copy, dtype="float32")}
    assert builds.options[1]["fp8"] is not None
    path = moved / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"temperature": 0.123}))
    others.add(built(moved))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_cache, "VERSION", 99)
        others.add(built(nano_copy))
    assert len(others | {first}) == builds.count == 5


def test_a_failed_build_leaves_nothing(
    cache: EngineCache, builds: Builds, nano_folder: Path
) -> None:
    """A build that fails leaves no folder; a full disk and a small GPU are one sentence with what
    to do, and the next use builds again."""
    cases: list[tuple[BaseException, type[BaseException], str]] = [
        (NoSpace("OUT needs 18.2 GB"), NoSpace, "needs 18.2 GB; free some, or set MOSSLIVE_CACHE"),
        (OSError(errno.ENOSPC, "x"), NoSpace, "the disk is full; free some, or set MOSSLIVE_CACHE"),
        (torch.OutOfMemoryError("x"), MossliveError, "the memory of cpu is too small to build"),
        (KeyboardInterrupt("by user"), KeyboardInterrupt, "by user"),
    ]
    for fault, kind, message in cases:
        builds.fault = fault
        with pytest.raises(kind, match=message):
            cache.engine(nano_folder, CPU, worth_bytes=0)
        folder = cache.folder / engine_cache.ENGINES_FOLDER
        assert [path.suffix for path in folder.iterdir()] == [".lock"]
    builds.fault = None
    open_engine(cache.engine(nano_folder, CPU, worth_bytes=0))


def test_remains_of_a_killed_process(
    cache: EngineCache, builds: Builds, nano_folder: Path, said: list[str]
) -> None:
    """An unfinished folder of a killed process is removed, and a damaged one is built again."""
    target = cache.engine(nano_folder, CPU, worth_bytes=0)
    unfinished = target.with_name(f".{target.name}-abc")
    shutil.move(target, unfinished)
    assert cache.engine(nano_folder, CPU, worth_bytes=0) == target
    assert not unfinished.exists()
    next(target.glob("weights-*")).write_bytes(b"")
    assert cache.engine(nano_folder, CPU, worth_bytes=0) == target
    open_engine(target)
    assert builds.count == 3
    assert "is damaged" in said[2]


def test_two_at_once(
    cache: EngineCache, builds: Builds, nano_folder: Path, said: list[str]
) -> None:
    """Of two that need the same folder one builds; the other waits, says so, and uses it."""
    builds.go_on.clear()
    found: list[Path] = []

    def use() -> None:
        found.append(cache.engine(nano_folder, CPU, worth_bytes=0))

    threads = [threading.Thread(target=use) for _ in range(2)]
    threads[0].start()
    assert builds.begun.wait(30)
    threads[1].start()
    while not any("Another process builds" in line for line in said):
        assert threads[1].is_alive()
        threads[1].join(0.01)
    builds.go_on.set()
    for thread in threads:
        thread.join(30)
    assert builds.count == 1
    assert found[0] == found[1]
