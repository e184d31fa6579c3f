"""Fetches the records of known vulnerabilities of every locked package: `make advisories`.

Asks https://api.osv.dev, which also has the records of PyPI and GitHub, for all versions of each
package, so that the snapshot stays valid when a lock changes a version. Writes
locks/advisories.json, all or nothing. Needs a network; `supply.audit` does not.
"""

import json
import urllib.request
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from typing import Any

from supply.audit import Record
from supply.locks import FOLDER, everything

URL = "https://api.osv.dev/v1/query"
KEPT = ("id", "aliases", "summary", "modified", "withdrawn")
Ask = Callable[[dict[str, Any]], dict[str, Any]]


def ask_osv(question: dict[str, Any]) -> dict[str, Any]:
    """One request of the API of OSV. Raises OSError if there is no answer within 30 s."""
    body = json.dumps(question).encode()
    request = urllib.request.Request(URL, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return dict(json.load(answer))


def records_of(name: str, ask: Ask) -> list[Record]:
    """The records of one package, of all pages of the answer, cut to what the audit reads."""
    question: dict[str, Any] = {"package": {"name": name, "ecosystem": "PyPI"}}
    found: list[Record] = []
    while True:
        answer = ask(question)
        found += [trimmed(record) for record in answer.get("vulns", ())]
        if not (token := answer.get("next_page_token")):
            return found
        question = {**question, "page_token": token}


def trimmed(record: Record) -> Record:
    """The record without texts, links and commits: a tenth of its size."""
    affected = [
        {
            "package": {key: part["package"][key] for key in ("ecosystem", "name")},
            "ranges": [span for span in part.get("ranges", ()) if span["type"] != "GIT"],
            "versions": part.get("versions", []),
        }
        for part in record.get("affected", ())
        if part.get("package", {}).get("ecosystem") == "PyPI"
    ]
    return {key: record[key] for key in KEPT if key in record} | {"affected": affected}


def snapshot(names: Iterable[str], ask: Ask, day: date) -> dict[str, Any]:
    """The contents of locks/advisories.json."""
    names = sorted(set(names))
    records = {record["id"]: record for name in names for record in records_of(name, ask)}
    return {
        "source": URL,
        "date": day.isoformat(),
        "packages": names,
        "records": [records[key] for key in sorted(records)],
    }


def main() -> None:
    day = datetime.now(UTC).date()
    try:
        data = snapshot((pin.name for pin in everything()), ask_osv, day)
    except OSError as error:
        raise SystemExit(f"{URL} cannot be read ({error}); nothing is changed") from error
    (FOLDER / "advisories.json").write_text(json.dumps(data, indent=1) + "\n", "utf-8")
    print(f"{len(data['records'])} records of {len(data['packages'])} packages, {day}")


if __name__ == "__main__":
    main()
