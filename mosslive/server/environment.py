"""Settings in environment variables: which are ours, and which only begin like ours.

A program's environment belongs to others, too: for a Service named mosslive, Kubernetes sets
`MOSSLIVE_SERVICE_HOST` and `MOSSLIVE_PORT=tcp://10.0.0.1:8000` in every container. So a variable
that is no setting is ignored with a warning and never stops the server. Warnings have no values: a
misspelt name may hold a key. Pure functions; does not know the settings.
"""

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches

from mosslive.config.folders import CACHE_VARIABLE

PREFIX = "MOSSLIVE_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"  # path of the TOML file
_OTHERS = (CONFIG_VARIABLE, CACHE_VARIABLE)  # ours, and no settings

# As Kubernetes names and writes what it sets for a Service.
_SERVICE_NAME = re.compile(
    r".*_SERVICE_(HOST|PORT(_\w+)?)|.*_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"
)
_SERVICE_VALUE = re.compile(r"(tcp|udp|sctp)://.*")


def own_variables(
    environment: Mapping[str, str], known: Collection[str]
) -> tuple[dict[str, str], list[str]]:
    """Returns the text of each setting that a variable gives, and a warning for the others.
    `known`: names of all settings."""
    found: dict[str, str] = {}
    warnings: list[str] = []
    foreign: list[str] = []
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable in _OTHERS:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if _SERVICE_VALUE.fullmatch(text) or _SERVICE_NAME.fullmatch(variable):
            foreign.append(variable)
        elif name in known:
            found[name] = text
        else:
            nearest = suggestion(name, known)
            hint = f"; did you mean {PREFIX}{nearest.upper()}?" if nearest else ""
            warnings.append(f"{variable} is not a setting and is ignored{hint}")
    if foreign:
        warnings.append(
            f"ignored, because Kubernetes sets them for a Service: {', '.join(sorted(foreign))}"
        )
    return found, warnings


def suggestion(name: str, known: Collection[str]) -> str | None:
    """The setting that was probably meant."""
    return next(iter(get_close_matches(name.lower(), known, n=1, cutoff=0.7)), None)
