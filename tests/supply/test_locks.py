"""The lock files against pyproject.toml, without a network."""

import re
import tomllib
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from supply.locks import (
    APART,
    BASES,
    EXTRAS,
    ROOT,
    SEPARATE,
    UNLOCKED,
    Pin,
    installed_by,
    parse,
    read,
)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# What a marker sees on the machines we support.
MACHINES = [
    {"python_version": python, "python_full_version": f"{python}.1", "platform_machine": machine}
    | {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    for python in ("3.11", "3.12")
    for machine in ("x86_64", "aarch64")
]


def wanted(extras: tuple[str, ...]) -> Iterator[Requirement]:
    """What the project requires with these extras; extras that name others are followed."""
    texts = list(PROJECT["dependencies"])
    left = list(extras)
    while left:
        for text in PROJECT["optional-dependencies"][left.pop()]:
            if (requirement := Requirement(text)).name == PROJECT["name"]:
                left += requirement.extras
            else:
                texts.append(text)
    yield from map(Requirement, texts)


def chosen(pins: list[Pin], machine: dict[str, str]) -> dict[str, set[str]]:
    """Versions by name that pip would install on `machine`."""
    found: dict[str, set[str]] = {}
    for pin in pins:
        marker = Requirement(pin.line).marker
        if marker is None or marker.evaluate(machine):
            found.setdefault(pin.name, set()).add(pin.version)
    return found


@pytest.mark.parametrize("lock", EXTRAS)
def test_locks_satisfy_the_project(lock: str) -> None:
    """On every machine a lock has, together with those it builds on, one version of each
    dependency of its extras, within the range of pyproject.toml."""
    pins = [*installed_by(lock), *(pin for name in APART for pin in read(name))]
    for machine in MACHINES:
        versions = chosen(pins, machine)
        assert all(len(found) == 1 for found in versions.values()), versions
        for requirement in wanted(EXTRAS[lock]):
            (version,) = versions[canonicalize_name(requirement.name)]
            assert version in requirement.specifier, requirement


def test_every_extra_is_locked() -> None:
    """No extra that is installed here is without a lock, be it through an extra that names it."""
    named = set()
    left = {extra for extras in EXTRAS.values() for extra in extras}
    while left:
        named.add(extra := left.pop())
        for requirement in map(Requirement, PROJECT["optional-dependencies"][extra]):
            left |= requirement.extras if requirement.name == PROJECT["name"] else set()
    assert named | set(UNLOCKED) == set(PROJECT["optional-dependencies"])
    assert named.isdisjoint(UNLOCKED)


@pytest.mark.parametrize("lock", [*EXTRAS, *SEPARATE])
def test_every_entry_has_hashes(lock: str) -> None:
    """Every locked version has at least one SHA-256, and torch and triton are not locked twice."""
    pins = read(lock)
    assert pins
    for pin in pins:
        assert pin.hashes, pin.line
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", value) for value in pin.hashes)
    assert lock == "triton" or not {pin.name for pin in pins} & set(APART)


def test_locks_agree() -> None:
    """Environments that share a package have the same versions of it; nothing is locked twice with
    the same marker."""
    versions: dict[str, str] = {}
    for lock in EXTRAS:
        lines = [pin.line for pin in installed_by(lock)]
        assert len(lines) == len(set(lines))
        for pin in read(lock):
            marker = pin.line.partition(";")[2] if "python_full_version" in pin.line else ""
            assert versions.setdefault(f"{pin.name};{marker}", pin.version) == pin.version
    assert all(base in BASES for bases in BASES.values() for base in bases)


def test_an_entry_without_a_version_is_an_error() -> None:
    """A lock entry that leaves the version open is refused, and written entries read back."""
    with pytest.raises(ValueError, match="no exact version"):
        list(parse("numpy>=2\n"))
    (pin,) = parse(
        "a-b==1.0 ; python_version < '4' \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n"
    )
    assert (pin.name, pin.version, len(pin.hashes)) == ("a-b", "1.0", 2)
    assert list(parse(pin.text())) == [pin]
