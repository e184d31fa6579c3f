"""docs/dangers.md names only tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\|[^|]+\|[^|]+\| `(tests/[\w/]+\.py)(?:::(\w+))?` \|$")


def test_every_danger_has_a_test_that_exists() -> None:
    """Each row of the table ends with a test file of the repository, or a test in it."""
    lines = (ROOT / "docs" / "dangers.md").read_text("utf-8").splitlines()
    rows = [line for line in lines if line.startswith("|")][2:]
    assert len(rows) >= 25
    for row in rows:
        named = ROW.match(row)
        assert named, row
        source = (ROOT / named[1]).read_text("utf-8")
        assert f"def {named[2] or 'test_'}" in source, row
