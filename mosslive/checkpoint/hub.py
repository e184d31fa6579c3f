"""Models by name: a Hugging Face repo id becomes a local folder.

A folder that exists wins. OWNER/NAME and OWNER/NAME@REVISION are downloaded by `huggingface_hub`,
which owns the cache, progress bars, retries, HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE. Knows which
file names the package reads, not their contents. Blocks; used on the caller's thread before
anything is loaded. Invariant: in a folder that was downloaded, every file has the hash that the hub
states for it, if it states one; otherwise a warning says so. The library compares sizes only.
"""

import hashlib
import logging
import os
import re
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from mosslive.checkpoint import bigvgan, codec, engine_folder, engine_manifest, layout
from mosslive.checkpoint.digests import Digests
from mosslive.checkpoint.hub_errors import Damaged, NoSuchModel, explain
from mosslive.checkpoint.hub_progress import stoppable
from mosslive.checkpoint.progress import Stage, silent
from mosslive.config.codec import EXTRACTOR_FILE
from mosslive.config.folders import BUNDLED, CODEC_FOLDER, LM_FOLDER, VOICES_FOLDER, cache_folder

_log = logging.getLogger("mosslive.hub")
_ROOT_FILES = (
    layout.CONFIG_FILE,
    layout.GENERATION_FILE,
    layout.CAPABILITIES_FILE,
    layout.TOKENIZER_FILE,
    layout.INDEX_FILE,
    layout.SINGLE_FILE,
    "model-*.safetensors",
    engine_manifest.MANIFEST_FILE,
    engine_manifest.WEIGHTS_PATTERN,
    engine_folder.PROBES_FILE,
    bigvgan.GENERATOR_FILE,
    EXTRACTOR_FILE,
    f"{codec.FLOW_FOLDER}/{codec.FLOW_CONFIG}",
    f"{codec.FLOW_FOLDER}/{codec.VOCODER_FILE}",
    f"{codec.FLOW_FOLDER}/{codec.SPEAKER_FILE}",
    *(f"{codec.FLOW_FOLDER}/{name}" for name in codec.FLOW_FILES.values()),
    f"{VOICES_FOLDER}/*.voice",
)
# All that any part of the package reads; a model folder has its parts in folders of their own.
FILES = [
    f"{place}{name}" for place in ("", f"{LM_FOLDER}/", f"{CODEC_FOLDER}/") for name in _ROOT_FILES
]
# The library drops the unfinished part of a file when it is stopped, so few files at once lose
# less. Two streams are enough for the usual connection.
_WORKERS = 2
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?P<id>{_PART}/{_PART})(?:@(?P<revision>[^@\s]+))?")


@dataclass(frozen=True)
class RepoName:
    id: str
    revision: str | None = None  # branch, tag or commit; None: the default branch

    def __str__(self) -> str:
        return self.id if self.revision is None else f"{self.id}@{self.revision}"


def repo_name(name: str | Path) -> RepoName | None:
    """None if `name` is a folder that exists, "bundled", or not of the form OWNER/NAME[@REV]."""
    text = name if isinstance(name, str) else name.as_posix()
    if text == BUNDLED or os.path.exists(text):
        return None
    found = _NAME.fullmatch(text)
    return RepoName(found["id"], found["revision"]) if found else None


def local_folder(name: str | Path, stage: Stage = silent) -> Path:
    """The folder of a model, downloaded if `name` is a repo id. Any other name is returned as it
    is, and whoever opens it reports that it does not exist. `stage`: shows the hashing of new
    files. Raises `NoSuchModel`, `DownloadFailed` or `Damaged`; KeyboardInterrupt leaves a cache
    that the next call completes."""
    repo = repo_name(name)
    if repo is None:
        return Path(name)
    from huggingface_hub import snapshot_download

    with explain(repo.id, repo.revision), stoppable() as bars:
        folder = snapshot_download(
            repo.id,
            revision=repo.revision,
            allow_patterns=FILES,
            max_workers=_WORKERS,
            tqdm_class=bars,
        )
    snapshot = Path(folder)
    if not needed_files(snapshot):
        raise NoSuchModel(
            f"{repo} has no file that mosslive reads, such as {layout.CONFIG_FILE}; it takes "
            f"MOSS-Speech models, their codecs, BigVGAN vocoders and engine folders"
        )
    _check_hashes(repo, snapshot, stage)
    return snapshot


def needed_files(snapshot: Path) -> list[Path]:
    """Files of a downloaded folder that the package reads."""
    found = [path for path in sorted(snapshot.rglob("*")) if path.is_file()]
    return [p for p in found if any(fnmatch(p.relative_to(snapshot).as_posix(), f) for f in FILES)]


def _check_hashes(repo: RepoName, snapshot: Path, stage: Stage) -> None:
    """Compares each file with its name in the cache, which is the hash that the hub states: SHA-256
    of a large file, git's hash of a small one. A file that differs is removed."""
    stated = {
        path: Path(os.readlink(path)).name for path in needed_files(snapshot) if path.is_symlink()
    }
    large = [path for path, name in stated.items() if re.fullmatch("[0-9a-f]{64}", name)]
    small = [path for path, name in stated.items() if re.fullmatch("[0-9a-f]{40}", name)]
    if unchecked := len(needed_files(snapshot)) - len(large) - len(small):
        _log.warning("%s: %d files have no stated hash and were not compared", repo, unchecked)
    digests = Digests(cache_folder())
    with stage("checking hashes", digests.missing(large)) as progress:
        found = digests.of(large, progress)
    found |= {path: _git_hash(path) for path in small}
    damaged = [path for path, digest in found.items() if digest != stated[path]]
    for path in damaged:
        # A link to the content, which may be a link into a store that several repos share.
        for place in (Path(os.path.realpath(path)), path.parent / os.readlink(path), path):
            place.unlink(missing_ok=True)
    if damaged:
        raise Damaged(str(repo), [path.relative_to(snapshot).as_posix() for path in damaged])


def _git_hash(path: Path) -> str:
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
