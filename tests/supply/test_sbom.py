"""The list of parts of a release. `make sbom` itself checks the file against the schema."""

from mosslive.version import __version__
from supply.locks import installed_by, read
from supply.sbom import direct, parts, version


def test_the_parts_of_a_release() -> None:
    """The list has every package of the image once, torch and all direct dependencies included, and
    none that only tests need."""
    names = [(part.name, part.version) for part in parts()]
    assert len(names) == len(set(names))
    assert {(pin.name, pin.version) for pin in [*installed_by("server"), *read("torch")]} == set(
        names
    )
    assert direct() <= {name for name, _ in names}
    assert not {"pytest", "ruff", "triton"} & {name for name, _ in names}
    assert version() == __version__
