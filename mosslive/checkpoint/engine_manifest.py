"""`engine.json`, the manifest: contents, sources and hashes of an engine folder.

Knows no tensor values and opens no other file. Invariant: a manifest that was read has this format
version and a correct digest, and lists a file and a checksum for exactly the tensors that follow
from its config and precisions.
"""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

from mosslive.checkpoint.engine_layout import (
    BaseDtype,
    Precision,
    matrix_names,
    stored_tensors,
    trunk_matrices,
)
from mosslive.checkpoint.faults import BadManifest, EngineVersion, NotAnEngine
from mosslive.checkpoint.header import is_plain_name
from mosslive.config import ConfigError, ModelConfig
from mosslive.config.files import each_once
from mosslive.version import __version__

MANIFEST_FILE = "engine.json"
WEIGHTS_PATTERN = "weights-*.safetensors"
FORMAT, VERSION = "mosslive-engine", 1


@dataclass(frozen=True)
class FileRecord:
    bytes: int
    sha256: str
    # Weight files only: hash of the bytes before the first tensor. With the tensors' checksums it
    # detects any change at load without hashing the whole file.
    header_sha256: str | None = None


@dataclass(frozen=True)
class TensorRecord:
    file: str
    checksum: int  # `checkpoint.checksum` of the stored bytes


@dataclass(frozen=True)
class Manifest:
    config: ModelConfig
    dtype: BaseDtype
    precision: dict[str, Precision]  # of every matrix
    source: dict[str, FileRecord]  # files of the checkpoint it was built from
    files: dict[str, FileRecord]  # every file of the folder but the manifest
    tensors: dict[str, TensorRecord]
    settings: dict[str, Any] = field(default_factory=dict)  # options of the build
    report: dict[str, Any] = field(default_factory=dict)  # results of the build's measurements
    mosslive: str = __version__

    def write(self, folder: Path) -> None:
        content = {"format": FORMAT, "version": VERSION, **asdict(self)}
        content["config"] = self.config.to_dict()
        content["digest"] = _digest(content)
        text = json.dumps(content, indent=1, ensure_ascii=False)
        (folder / MANIFEST_FILE).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        content = _parsed(folder)
        if content.get("format") != FORMAT:
            detail = f"format is {content.get('format')!r}; allowed: {FORMAT!r}"
            raise NotAnEngine([MANIFEST_FILE], detail)
        if content.get("version") != VERSION:
            detail = f"version {content.get('version')!r}; this mosslive reads {VERSION}. Build "
            raise EngineVersion([MANIFEST_FILE], f"{detail}the engine again from its checkpoint")
        stated = content.pop("digest", None)
        if stated != _digest(content):
            raise BadManifest(
                [MANIFEST_FILE], "its digest does not match its content: the file was changed"
            )
        try:
            manifest = cls(
                config=ModelConfig.from_dict(content["config"]),
                dtype=content["dtype"],
                precision=content["precision"],
                source={n: FileRecord(**r) for n, r in content["source"].items()},
                files={n: FileRecord(**r) for n, r in content["files"].items()},
                tensors={n: TensorRecord(**r) for n, r in content["tensors"].items()},
                settings=content["settings"],
                report=content["report"],
                mosslive=content["mosslive"],
            )
            manifest._check()
        except (ConfigError, KeyError, TypeError, AttributeError, ValueError) as error:
            wrong_type = "a value has the wrong type: "
            kinds: dict[type[Exception], str] = {
                KeyError: "a field is missing: ",
                TypeError: wrong_type,
                AttributeError: wrong_type,
            }
            raise BadManifest([MANIFEST_FILE], f"{kinds.get(type(error), '')}{error}") from None
        return manifest

    def _check(self) -> None:
        """Raises ValueError. The digest detects accidents; this detects mistakes of programs."""
        if self.dtype not in get_args(BaseDtype):
            raise ValueError(f"dtype is {self.dtype!r}; allowed: {', '.join(get_args(BaseDtype))}")
        matrices, trunk = matrix_names(self.config), set(trunk_matrices(self.config))
        if list(self.precision) != matrices:
            raise ValueError(f"precision must list the {len(matrices)} matrices of the config")
        for name, kind in self.precision.items():
            allowed = {self.dtype, "fp8"} if name in trunk else {self.dtype}
            if kind not in allowed:
                raise ValueError(f"{name} is {kind!r}; allowed: {' or '.join(sorted(allowed))}")
        for name, record in self.files.items():
            if not is_plain_name(name) or name == MANIFEST_FILE:
                raise ValueError(f"{name!r} is not a file name in the folder of {MANIFEST_FILE}")
            _check_record(name, record)
        if list(self.tensors) != list(stored_tensors(self.config, self.dtype, self.precision)):
            raise ValueError("tensors must be those of config and precision, in order")
        for name, tensor in self.tensors.items():
            if tensor.file not in self.files or type(tensor.checksum) is not int:
                raise ValueError(f"{name} has no file of the folder or no checksum")


def _check_record(name: str, record: FileRecord) -> None:
    hashes = (record.sha256, record.header_sha256 or record.sha256)
    if type(record.bytes) is not int or record.bytes < 0:
        raise ValueError(f"{name} has {record.bytes!r} bytes")
    if not all(isinstance(h, str) and re.fullmatch("[0-9a-f]{64}", h) for h in hashes):
        raise ValueError(f"{name} has no SHA-256")


def _parsed(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=each_once)
    except FileNotFoundError:
        begun = any(folder.glob(WEIGHTS_PATTERN))
        detail = (
            f"{folder} has weights but no {MANIFEST_FILE}, which is written last: the build or "
            f"copy was not finished"
            if begun
            else f"{folder} has no {MANIFEST_FILE}; build an engine folder with mosslive build"
        )
        raise NotAnEngine([MANIFEST_FILE], detail) from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadManifest([MANIFEST_FILE], f"not readable as JSON: {error}") from None
    if not isinstance(content, dict):
        raise BadManifest([MANIFEST_FILE], "allowed: a JSON object")
    return content


def _digest(content: dict[str, Any]) -> str:
    """SHA-256 of the content; order of keys and white space have no effect."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
