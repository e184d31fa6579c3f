"""The audit of known vulnerabilities, against records in the OSV format; no network."""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from supply import audit
from supply.advisories import records_of, snapshot
from supply.audit import Snapshot, accepted_ids, affects, findings, in_range
from supply.locks import everything, parse

DAY = date(2026, 11, 17)


def record(*events: dict[str, str], **more: Any) -> dict[str, Any]:
    affected = {
        "package": {"ecosystem": "PyPI", "name": "Some_Package"},
        "ranges": [{"type": "ECOSYSTEM", "events": list(events)}],
    }
    return {"id": "PYSEC-1", "aliases": ["CVE-1"], "affected": [affected]} | more


FIXED = record({"introduced": "0"}, {"fixed": "1.2.3"})


@pytest.mark.parametrize(
    ("version", "events", "bad"),
    [
        ("1.2.2", [{"introduced": "0"}, {"fixed": "1.2.3"}], True),
        ("1.2.3", [{"introduced": "0"}, {"fixed": "1.2.3"}], False),
        ("1.2.3rc1", [{"introduced": "0"}, {"fixed": "1.2.3"}], True),
        ("1.10", [{"introduced": "1.9"}], True),
        ("1.8", [{"introduced": "1.9"}], False),
        ("2.0", [{"introduced": "0"}, {"last_affected": "2.0"}], True),
        ("2.0.1", [{"introduced": "0"}, {"last_affected": "2.0"}], False),
        ("3.1", [{"fixed": "3.2"}, {"introduced": "3.0"}, {"fixed": "1.5"}], True),
        ("2.9", [{"introduced": "0"}, {"fixed": "1.5"}, {"introduced": "3.0"}], False),
    ],
)
def test_ranges(version: str, events: list[dict[str, str]], bad: bool) -> None:
    """A version is affected from `introduced` up to, not including, `fixed`, or up to and including
    `last_affected`, in any order of events."""
    assert in_range(Version(version), events) is bad


@given(st.lists(st.integers(0, 30), min_size=2, max_size=8, unique=True), st.integers(0, 31))
def test_ranges_are_intervals(bounds: list[int], minor: int) -> None:
    """Events that alternate describe half-open intervals."""
    pairs = list(zip(*[iter(sorted(bounds))] * 2, strict=False))
    events = [e for a, b in pairs for e in ({"introduced": f"1.{a}"}, {"fixed": f"1.{b}"})]
    assert in_range(Version(f"1.{minor}"), events[::-1]) is any(a <= minor < b for a, b in pairs)


def test_affected_versions() -> None:
    """A record counts by listed version or by range, for the normalised name, unless withdrawn or
    of another ecosystem; versions that cannot be compared count."""
    assert affects(FIXED, "some-package", "1.0")
    assert not affects(FIXED, "some-package", "1.2.3")
    assert not affects(FIXED, "another", "1.0")
    assert not affects(FIXED | {"withdrawn": "2026-01-01T00:00:00Z"}, "some-package", "1.0")
    listed = record()
    listed["affected"][0]["versions"] = ["9.9"]
    assert affects(listed, "some-package", "9.9")
    assert not affects(listed, "some-package", "9.8")
    listed["affected"][0]["package"]["ecosystem"] = "npm"
    assert not affects(listed, "some-package", "9.9")
    assert affects(record({"introduced": "not a version"}), "some-package", "1.0")


def test_findings() -> None:
    """A vulnerable version and a package that nobody asked about are findings; a fixed or accepted
    one is none, whether accepted by id or by alias."""
    known = Snapshot(DAY, frozenset({"some-package"}), (FIXED,))
    old, new, other = (list(parse(t)) for t in ("some-package==1.0", "some.package==2", "x==1"))
    assert [line.split(":")[1].strip() for line in findings(old, known)] == ["PYSEC-1"]
    assert findings(new, known) == []
    assert findings(old, known, ["PYSEC-1"]) == findings(old, known, ["CVE-1"]) == []
    assert "not in the snapshot" in findings(other, known)[0]
    assert accepted_ids("# why\n\nCVE-1 we never call it\n") == ["CVE-1"]
    with pytest.raises(ValueError, match="CVE-1 needs a reason"):
        accepted_ids("CVE-1\n")


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The audit of our locks fails on a record against a locked version, says so if there is no
    snapshot, and for a release demands one of the last days."""
    monkeypatch.setattr(audit, "FOLDER", tmp_path)
    assert (audit.main([]), audit.main(["--required"])) == (0, 1)
    assert "NOT DONE" in capsys.readouterr().out
    (tmp_path / "accepted.txt").touch()
    today = datetime.now(UTC).date()

    def stored(day: date, *records: dict[str, Any]) -> None:
        names = [pin.name for pin in everything()]
        data = {"date": day.isoformat(), "packages": names, "records": records}
        (tmp_path / "advisories.json").write_text(json.dumps(data))

    stored(today)
    assert (audit.main([]), audit.main(["--required"])) == (0, 0)
    stored(today - timedelta(days=audit.MAX_AGE_DAYS + 2))
    assert (audit.main([]), audit.main(["--required"])) == (0, 1)
    against = record({"introduced": "0"}, summary="a hole")
    against["affected"][0]["package"]["name"] = "starlette"
    capsys.readouterr()
    stored(today, against)
    assert audit.main([]) == 1
    assert "PYSEC-1: a hole" in capsys.readouterr().out


def test_the_snapshot() -> None:
    """A snapshot has the records of all pages, each once, of PyPI only and without long texts, and
    the names of packages without any."""
    asked: list[dict[str, Any]] = []

    def ask(question: dict[str, Any]) -> dict[str, Any]:
        asked.append(question)
        if question["package"]["name"] == "clean":
            return {}
        if "page_token" not in question:
            return {"vulns": [FIXED | {"details": "long"}], "next_page_token": "2"}
        return {"vulns": [FIXED, FIXED | {"id": "PYSEC-2"}]}

    data = snapshot(["some-package", "clean", "clean"], ask, DAY)
    assert len(asked) == 3
    assert data["packages"] == ["clean", "some-package"]
    assert [one["id"] for one in data["records"]] == ["PYSEC-1", "PYSEC-2"]
    assert "details" not in data["records"][0]
    assert affects(records_of("some-package", ask)[0], "some-package", "1.0")
