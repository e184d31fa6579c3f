"""Checks the lock files against known vulnerabilities, without a network: `make audit`.

Reads locks/advisories.json, a snapshot of OSV records (https://ossf.github.io/osv-schema) that
`make advisories` fetches, and locks/accepted.txt, the records that do not matter here and why.
Knows nothing of where records come from. Exit status 1: a locked version is vulnerable, a locked
package is not in the snapshot, or, with --required, the snapshot is missing or old.
"""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from supply.locks import FOLDER, Pin, everything

MAX_AGE_DAYS = 30  # of a snapshot, for a release
Record = dict[str, Any]  # one vulnerability, in the OSV format


@dataclass(frozen=True)
class Snapshot:
    """Records of all versions of `packages`, as they were on `day`."""

    day: date
    packages: frozenset[str]
    records: tuple[Record, ...]

    @classmethod
    def load(cls, path: Path) -> "Snapshot":
        data = json.loads(path.read_text(encoding="utf-8"))
        day = date.fromisoformat(data["date"])
        return cls(day, frozenset(data["packages"]), tuple(data["records"]))


def in_range(version: Version, events: Iterable[dict[str, str]]) -> bool:
    """Whether the last event at or before `version` leaves it affected. `limit` is for commits."""
    marks: list[tuple[Version, int, bool]] = []  # from when, order at the same version, affected
    for event in events:
        if (start := event.get("introduced")) is not None:
            marks.append((Version(start), 1, True))
        if (fix := event.get("fixed")) is not None:
            marks.append((Version(fix), 0, False))
        # The last affected version is itself affected: the end counts after it.
        if (last := event.get("last_affected")) is not None and version > Version(last):
            marks.append((Version(last), 2, False))
    before = [mark for mark in sorted(marks) if mark[0] <= version]
    return bool(before) and before[-1][2]


def affects(record: Record, name: str, version: str) -> bool:
    """Whether `record` is valid and names this version of this package of PyPI."""
    if record.get("withdrawn"):
        return False
    for affected in record.get("affected", ()):
        package = affected.get("package", {})
        if package.get("ecosystem") != "PyPI" or canonicalize_name(package["name"]) != name:
            continue
        if version in affected.get("versions", ()):
            return True
        for span in affected.get("ranges", ()):
            if span["type"] not in ("ECOSYSTEM", "SEMVER"):
                continue
            try:
                if in_range(Version(version), span["events"]):
                    return True
            except InvalidVersion:
                return True  # it cannot be compared, so a person has to look
    return False


def findings(pins: Iterable[Pin], snapshot: Snapshot, accepted: Iterable[str] = ()) -> list[str]:
    """One line for each vulnerable or unknown package."""
    accepted = set(accepted)
    lines = []
    for name, version in sorted({(pin.name, pin.version) for pin in pins}):
        if name not in snapshot.packages:
            lines.append(f"{name} is not in the snapshot of {snapshot.day}; run make advisories")
        for record in snapshot.records:
            names = {record["id"], *record.get("aliases", ())}
            if affects(record, name, version) and not names & accepted:
                summary = record.get("summary", "no summary")
                lines.append(f"{name} {version}: {record['id']}: {summary}")
    return lines


def accepted_ids(text: str) -> list[str]:
    """Reads lines `ID reason`. Raises ValueError if there is no reason."""
    entries = [line.split(maxsplit=1) for line in text.splitlines() if line and line[0] != "#"]
    for entry in entries:
        if len(entry) < 2:
            raise ValueError(f"locks/accepted.txt: {entry[0]} needs a reason after it")
    return [entry[0] for entry in entries]


def main(options: list[str]) -> int:
    required = "--required" in options
    path = FOLDER / "advisories.json"
    if not path.is_file():
        print("audit: NOT DONE, there is no locks/advisories.json; make advisories fetches it")
        return int(required)
    snapshot = Snapshot.load(path)
    accepted = accepted_ids((FOLDER / "accepted.txt").read_text(encoding="utf-8"))
    pins = everything()
    lines = findings(pins, snapshot, accepted)
    if required and (age := (date.today() - snapshot.day).days) > MAX_AGE_DAYS:
        lines.append(f"the snapshot is {age} days old, more than {MAX_AGE_DAYS}; make advisories")
    print(*lines, sep="\n", end="\n" if lines else "")
    found = f"{len(lines)} findings" if lines else "nothing known against them"
    print(f"audit: {len(pins)} locked versions, advisories of {snapshot.day}: {found}")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
