"""Checks of `mosslive doctor` on Python and packages, from the metadata of the installed package.

Reads metadata only and imports nothing that it checks, so a broken package cannot break the check.
"""

import platform
import re
import sys
from collections.abc import Mapping
from importlib import metadata

from mosslive.cli.doctor_check import Check

_LEAST_PYTHON = (3, 11)
# What each extra is for. Others, such as dev, are for developers.
_EXTRAS = {
    "voice": "audio files and voices",
    "talk": "live talk with a microphone",
    "server": "mosslive serve",
    "hub": "models by name",
    "smart-turn": "the end-of-turn model",
    "bench": "comparison with transformers",
}
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,.-]+)\])?(?:>=([\w.]+))?")
_EXTRA = re.compile(r"extra == [\"']([\w-]+)[\"']")

Requirements = Mapping[str, Mapping[str, str]]  # by extra, "" without one: least version by package


def package_checks() -> list[Check]:
    version = platform.python_version()
    if sys.version_info < _LEAST_PYTHON:
        wanted = ".".join(map(str, _LEAST_PYTHON))
        python = Check("python", "error", version, f"install Python {wanted} or later")
    else:
        python = Check("python", "ok", f"{version}, {sys.executable}")
    try:
        wanted_packages = requirements(metadata.requires("mosslive") or [])
    except metadata.PackageNotFoundError:
        hint = "pip install ."
        return [python, Check("mosslive", "warning", "runs without being installed", hint)]
    return [python, *(_check(extra, wanted_packages) for extra in wanted_packages)]


def requirements(lines: list[str]) -> dict[str, dict[str, str]]:
    """Parses what `importlib.metadata.requires` returns; extras of extras are resolved."""
    found: dict[str, dict[str, str]] = {"": {}}
    included: dict[str, list[str]] = {}
    for line in lines:
        spec, _, marker = line.partition(";")
        parsed, extra = _REQUIREMENT.match(spec.strip()), _EXTRA.search(marker)
        name = extra[1] if extra else ""
        if parsed is None or (name and name not in _EXTRAS):
            continue
        found.setdefault(name, {})
        if parsed[1] == "mosslive":
            included.setdefault(name, []).extend((parsed[2] or "").split(","))
        else:
            found[name][parsed[1]] = parsed[3] or ""
    for name, extras in included.items():
        for inner in extras:
            found[name] |= found.get(inner, {})
    return found


def _check(extra: str, wanted: Requirements) -> Check:
    lacking, versions = [], []
    for package, least in wanted[extra].items():
        version = _version(package)
        if version is None:
            lacking.append(package)
        elif least and _numbers(version) < _numbers(least):
            lacking.append(f"{package} {version}, before {least}")
        else:
            versions.append(f"{package} {version}")
    if not extra:
        if lacking:
            detail = f"missing: {', '.join(lacking)}"
            return Check("packages", "error", detail, "pip install mosslive")
        return Check("packages", "ok", ", ".join(versions))
    name, purpose = f"extra {extra}", _EXTRAS[extra]
    if lacking:
        fix = f'pip install "mosslive[{extra}]"'
        return Check(name, "warning", f"for {purpose}; missing: {', '.join(lacking)}", fix)
    return Check(name, "ok", ", ".join(versions))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The release numbers: "2.13.0+cpu" → (2, 13, 0)."""
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, release[0].split("."))) if release else ()
