"""Fetches the judges into a folder outside the repository.

    python -m recipes.bundled.exam.fetch [DIR]

    DIR/moonshine-base/   the recogniser, from npm @usefulsensors/moonshine-js
    DIR/human/            two recordings of people, from the wheel of PyPI moonshine-voice

Both are MIT-licensed data inside packages; the packages themselves are not installed. Needs npm and
pip. Invariant: a file is installed only if its SHA-256 is the one listed here.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from mosslive.errors import MossliveError

JUDGES_FOLDER = Path.home() / ".cache" / "mosslive" / "judges"
NPM_PACKAGE = "@usefulsensors/moonshine-js@0.1.16"
WHEEL = "moonshine-voice==0.1.0"
# The wheels of all platforms hold the same recordings, so every machine downloads this one.
_WHEEL_PLATFORM = "manylinux_2_34_x86_64"
_MODEL = "package/dist/model/base/quantized"
_ASSETS = "moonshine_voice/assets"

# Target path: (source path, SHA-256).
FROM_NPM = {
    "moonshine-base/encoder_model.onnx": (
        f"{_MODEL}/encoder_model.onnx",
        "1dd9ab0a7f987113d30affcba5a068d11c8f90fa0223caa3e491ade431ad9751",
    ),
    "moonshine-base/decoder_model_merged.onnx": (
        f"{_MODEL}/decoder_model_merged.onnx",
        "cc9f3cd6698a369c6008b41aa60aa3fb3322e7f03c9bdf19d8e6b7200afca4f3",
    ),
}
FROM_WHEEL = {
    "human/beckett.wav": (
        f"{_ASSETS}/beckett.wav",
        "e5a26b3d29e5b0bc8dbd72c11d16a3808a4ec0ac45b21f12a27d2a2fe5c5ae61",
    ),
    "human/two_cities.wav": (
        f"{_ASSETS}/two_cities.wav",
        "f3348494d77cb74a02862f5e685ed09faf3e75832c5cc5c80703282c2cd8b52e",
    ),
}


class NotFetched(MossliveError):
    """A judge could not be downloaded, or its checksum differs."""


def fetch(folder: Path) -> list[Path]:
    """Downloads missing files and returns the paths of all files."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        if _absent(folder, FROM_NPM):
            _run(["npm", "pack", "--silent", NPM_PACKAGE], work)
            with tarfile.open(_only(work, "*.tgz")) as archive:
                for target, (inner, _) in FROM_NPM.items():
                    source = archive.extractfile(inner)
                    assert source is not None, f"{inner} is a file"
                    _place(source.read(), folder / target, FROM_NPM[target][1])
        if _absent(folder, FROM_WHEEL):
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            pip += ["--only-binary", ":all:", "--platform", _WHEEL_PLATFORM, WHEEL]
            _run(pip, work)
            with zipfile.ZipFile(_only(work, "*.whl")) as wheel:
                for target, (inner, digest) in FROM_WHEEL.items():
                    _place(wheel.read(inner), folder / target, digest)
    return [folder / target for target in (*FROM_NPM, *FROM_WHEEL)]


def _absent(folder: Path, wanted: dict[str, tuple[str, str]]) -> bool:
    return not all((folder / target).is_file() for target in wanted)


def _run(command: list[str], work: Path) -> None:
    if shutil.which(command[0]) is None:
        raise NotFetched(f"{command[0]} is not installed; it is needed to download the judges")
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotFetched(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")


def _only(work: Path, pattern: str) -> Path:
    found = list(work.glob(pattern))
    if len(found) != 1:
        raise NotFetched(f"{pattern}: {len(found)} files downloaded; expected one")
    return found[0]


def _place(content: bytes, target: Path, digest: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise NotFetched(f"{target.name}: SHA-256 {found}; expected {digest}")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    part.write_bytes(content)
    part.replace(target)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fetch the judges of `mosslive bench bundled`.")
    parser.add_argument("folder", type=Path, nargs="?", default=JUDGES_FOLDER)
    try:
        for path in fetch(parser.parse_args().folder):
            print(path)
    except NotFetched as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
