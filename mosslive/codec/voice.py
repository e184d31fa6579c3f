"""A voice: a few seconds of a speaker, prepared once as the decoder's prompt.

The codes, the mel and the speaker vector of the prompt, cut to whole codes. Stored as safetensors
with a manifest that names the codec that made them. Knows nothing of how replies are rendered.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mosslive.codec.flow import FlowVoice
from mosslive.errors import MossliveError

_FORMAT = "mosslive-voice"
_VERSION = 1
_TENSORS = ("prompt_codes", "prompt_feat", "embedding")
_LARGEST = 1e6  # beyond all codes, and far beyond a mel in decibels or a speaker vector


class BadVoice(MossliveError):
    """The file is not a voice, is damaged, or belongs to another codec."""


def another_codec(what: str, theirs: object, ours: str) -> BadVoice:
    return BadVoice(
        f"{what}: prepared by another codec ({theirs}; this one is {ours}); make it again from its "
        f"recording"
    )


@dataclass(frozen=True, eq=False)
class Voice:
    prompt: FlowVoice
    codec: str  # fingerprint of the codec that prepared it
    name: str = ""

    @property
    def codes(self) -> int:
        """P, the length of the prompt in codes."""
        return len(self.prompt.prompt_codes)

    def save(self, path: str | Path) -> None:
        """Writes under another name and renames when complete."""
        manifest = {
            "format": _FORMAT,
            "version": str(_VERSION),
            "codec": self.codec,
            "name": self.name,
        }
        tensors = {name: getattr(self.prompt, name).contiguous().cpu() for name in _TENSORS}
        manifest["checksum"] = _checksum(tensors)
        target = Path(path)
        part = target.with_name(f".{target.name}.part")
        try:
            save_file(tensors, part, metadata={"manifest": json.dumps(manifest)})
            part.replace(target)
        except (SafetensorError, OSError) as error:
            raise BadVoice(f"{path}: cannot be written: {error}") from None
        finally:
            part.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path, codec: str) -> "Voice":
        """Raises `BadVoice` if another codec made the voice: its codes mean something else here."""
        manifest, tensors = _read(Path(path))
        if manifest.get("format") != _FORMAT or manifest.get("version") != str(_VERSION):
            raise BadVoice(f"{path}: not a voice of version {_VERSION}; make it again")
        if manifest.get("codec") != codec:
            raise another_codec(str(path), manifest.get("codec"), codec)
        missing = [name for name in _TENSORS if name not in tensors]
        if missing:
            raise BadVoice(f"{path}: {', '.join(missing)} missing; make the voice again")
        found = _checksum(tensors)
        if manifest.get("checksum", found) != found:
            raise BadVoice(f"{path}: damaged: its checksum is wrong; make the voice again")
        if not all(bool((t.float().abs() <= _LARGEST).all()) for t in tensors.values()):
            raise BadVoice(f"{path}: holds NaN, infinite or huge values; make the voice again")
        prompt = FlowVoice(*(tensors[name] for name in _TENSORS))
        return cls(prompt, codec, str(manifest.get("name", "")))


def aligned(prompt: FlowVoice, chunk: int) -> FlowVoice:
    """The prompt cut at its beginning to a multiple of `chunk` codes, so that the first sound comes
    after the fewest codes; a prompt shorter than a chunk stays."""
    cut = len(prompt.prompt_codes) % chunk
    if cut == len(prompt.prompt_codes):
        return prompt
    return FlowVoice(prompt.prompt_codes[cut:], prompt.prompt_feat[4 * cut :], prompt.embedding)


def _checksum(tensors: dict[str, Tensor]) -> str:
    """Files of earlier versions have none."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {list(tensors[name].shape)} ".encode())
        digest.update(tensors[name].contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _read(path: Path) -> tuple[dict[str, object], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            manifest = json.loads((file.metadata() or {}).get("manifest", "{}"))
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise BadVoice(f"{path}: no such file") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise BadVoice(f"{path}: not a voice file: {error}") from None
    if not isinstance(manifest, dict):
        raise BadVoice(f"{path}: its manifest is not an object")
    return manifest, tensors
