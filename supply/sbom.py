"""Lists the parts of a release in the CycloneDX format: `make sbom`.

The parts are what the image installs: the lock files of the server, and torch. The list has names,
versions and the hashes of the locks; it does not say which part requires which, except for the
direct dependencies of mosslive. Runs in .venv/tools, where the library of CycloneDX is. No
network.
"""

import re
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from supply.locks import ROOT, Pin, installed_by, read

INDEX = "https://pypi.org/simple"


def parts() -> list[Pin]:
    """Every locked package of the image once, by name and version."""
    found = {(pin.name, pin.version): pin for pin in [*installed_by("server"), *read("torch")]}
    return [found[key] for key in sorted(found)]


def direct() -> set[str]:
    """Names that pyproject.toml requires for the server, its extras `talk` and `voice` included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    texts = [*project["dependencies"], *extras["server"], *extras["talk"], *extras["voice"]]
    names: set[str] = {canonicalize_name(Requirement(text).name) for text in texts}
    return names - {project["name"]}


def version() -> str:
    """The version of mosslive, read without importing it."""
    text = (ROOT / "mosslive" / "version.py").read_text(encoding="utf-8")
    (found,) = re.findall(r'^__version__ = "(.+)"$', text, re.M)
    return str(found)


def document() -> str:
    """The list as JSON, checked against the schema of CycloneDX 1.6."""
    from cyclonedx.contrib.hash.factories import HashTypeFactory
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model import ExternalReference, ExternalReferenceType, XsUri
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output import make_outputter
    from cyclonedx.schema import OutputFormat, SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    from packageurl import PackageURL

    def component(name: str, number: str, kind: ComponentType) -> Component:
        url = PackageURL("pypi", name=name, version=number)
        return Component(name=name, version=number, type=kind, purl=url, bom_ref=url.to_string())

    root = component("mosslive", version(), ComponentType.APPLICATION)
    root.licenses.add(LicenseFactory().make_from_string("Apache-2.0"))
    bom = Bom()
    bom.metadata.component = root
    for pin in parts():
        part = component(pin.name, pin.version, ComponentType.LIBRARY)
        part.external_references.add(
            ExternalReference(
                type=ExternalReferenceType.DISTRIBUTION,
                url=XsUri(f"{INDEX}/{pin.name}/"),
                hashes=[HashTypeFactory().from_composite_str(value) for value in pin.hashes],
            )
        )
        bom.components.add(part)
    wanted = direct()
    bom.register_dependency(root, [part for part in bom.components if part.name in wanted])
    text: str = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(
        indent=1
    )
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise SystemExit(f"the list does not follow the schema: {problem}")
    return text


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document(), "utf-8")
