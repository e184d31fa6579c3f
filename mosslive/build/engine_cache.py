"""Engine folders that are built at their first use and kept in the cache folder.

    CACHE/engines/moss_speech-bfloat16-0123456789abcdef/

The name contains a hash of everything that determines the content: the checkpoint's files, the
precision, and the version of the engine format. Invariant: a folder of that name is complete. It is
built beside and renamed, one process at a time builds it, and what a killed process left is removed
by the next. Blocks; used on the caller's thread before anything is loaded.
"""

import errno
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from mosslive.build.builder import Built, Fp8Options, MakeReplies, build_engine, source_files
from mosslive.checkpoint import Checkpoint, CheckpointError, take_inventory
from mosslive.checkpoint.digests import Digests
from mosslive.checkpoint.engine_folder import is_engine, open_engine
from mosslive.checkpoint.engine_layout import BaseDtype
from mosslive.checkpoint.engine_manifest import FORMAT, VERSION
from mosslive.checkpoint.progress import Stage, silent
from mosslive.checkpoint.writer import NoSpace
from mosslive.config.folders import CACHE_VARIABLE, cache_folder
from mosslive.errors import MossliveError

ENGINES_FOLDER = "engines"
# A smaller checkpoint loads in a second or two as it is.
WORTH_BYTES = 1 << 30
_KEY_DIGITS = 16


@dataclass(frozen=True)
class EngineCache:
    """`say`: gets one sentence about what happens. `build`: `build_engine`, or a test's."""

    folder: Path
    stage: Stage = silent
    say: Callable[[str], None] = lambda _: None
    build: Callable[..., Built] = build_engine

    @classmethod
    def default(cls, stage: Stage, say: Callable[[str], None]) -> "EngineCache":
        return cls(cache_folder(), stage, say)

    def engine(
        self,
        source: Path,
        device: torch.device,
        dtype: BaseDtype = "bfloat16",
        fp8: bool = False,
        make_replies: MakeReplies | None = None,
        worth_bytes: int = WORTH_BYTES,
    ) -> Path:
        """The engine folder of a published checkpoint, built if the cache has none. Returns
        `source` if that is an engine folder, or a checkpoint below `worth_bytes` that need not be
        fp8. `device` verifies the result; the whole model must fit. Raises `CheckpointError` if
        the checkpoint is unusable and `NoSpace` if the disk is full."""
        if is_engine(source):
            return source
        inventory = take_inventory(source)
        inventory.require_valid()
        size = sum(entry.data_bytes for entry in inventory.entries.values())
        if size < worth_bytes and not fp8:
            return source
        target = self._target(Checkpoint(inventory), dtype, fp8)
        lock = FileLock(target.with_name(f".{target.name}.lock"))
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            self.say(f"Another process builds {target}; waiting for it.")
            lock.acquire()
        try:
            if not self._is_whole(target):
                self._build(source, target, device, dtype, fp8, make_replies)
        finally:
            lock.release()
        return target

    def _target(self, checkpoint: Checkpoint, dtype: BaseDtype, fp8: bool) -> Path:
        files = source_files(checkpoint)
        digests = Digests(self.folder)
        with self.stage("hashing the checkpoint", digests.missing(files)) as progress:
            hashes = {path.name: value for path, value in digests.of(files, progress).items()}
        content = json.dumps([FORMAT, VERSION, dtype, fp8, hashes], sort_keys=True)
        key = hashlib.sha256(content.encode()).hexdigest()[:_KEY_DIGITS]
        precision = "fp8" if fp8 else dtype
        return self.folder / ENGINES_FOLDER / f"moss_speech-{precision}-{key}"

    def _is_whole(self, target: Path) -> bool:
        """Removes a damaged folder. Checks sizes and small files; loading checks the weights."""
        if not target.exists():
            return False
        try:
            open_engine(target)
        except CheckpointError as fault:
            self.say(f"{target} is damaged ({fault.line()}); building it again.")
            shutil.rmtree(target)
            return False
        return True

    def _build(
        self,
        source: Path,
        target: Path,
        device: torch.device,
        dtype: BaseDtype,
        fp8: bool,
        make_replies: MakeReplies | None,
    ) -> None:
        for left in target.parent.glob(f".{target.name}-*"):  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        self.say(f"Building an engine folder, once: {target}")
        options = Fp8Options(replies=16) if fp8 else None
        advice = f"free some, or set {CACHE_VARIABLE} to a folder on another disk"
        try:
            self.build(
                source,
                target,
                device,
                dtype=dtype,
                fp8=options,
                make_replies=make_replies,
                stage=self.stage,
            )
        except NoSpace as error:
            raise NoSpace(f"{error}; {advice}") from None
        except torch.OutOfMemoryError:
            raise MossliveError(
                f"the memory of {device} is too small to build and verify {target}; build it "
                f"elsewhere with `mosslive build {source} OUT` and serve OUT"
            ) from None
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise NoSpace(f"{target}: the disk is full; {advice}") from None
