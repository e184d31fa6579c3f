"""Settings from the environment and the config file: what is ours, and what is said of the rest."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mosslive import MossliveError
from mosslive.server.environment import own_variables
from mosslive.server.settings import ServerSettings, read_settings

# What Kubernetes sets in a container beside a Service `mosslive` with the port 8000.
SERVICE = {
    "MOSSLIVE_SERVICE_HOST": "10.0.0.1",
    "MOSSLIVE_SERVICE_PORT": "8000",
    "MOSSLIVE_SERVICE_PORT_HTTP": "8000",
    "MOSSLIVE_PORT": "tcp://10.0.0.1:8000",
    "MOSSLIVE_PORT_8000_TCP": "tcp://10.0.0.1:8000",
    "MOSSLIVE_PORT_8000_TCP_PROTO": "tcp",
    "MOSSLIVE_PORT_8000_TCP_PORT": "8000",
    "MOSSLIVE_PORT_8000_TCP_ADDR": "10.0.0.1",
}


def test_the_variables_of_a_kubernetes_service_are_ignored() -> None:
    """A Service of our name changes no setting and gives one warning that names its variables."""
    warnings: list[str] = []
    environment = SERVICE | {"MOSSLIVE_HOST": "0.0.0.0"}
    settings = read_settings({}, environment, None, warnings.append)
    assert settings == ServerSettings(host="0.0.0.0")
    (warning,) = warnings
    assert warning.startswith("ignored, because Kubernetes sets them for a Service: MOSSLIVE_PORT,")
    assert all(name in warning for name in SERVICE)


def test_a_misspelt_variable_is_a_warning() -> None:
    """The warning has the nearest setting and no value, which may be a key."""
    warnings: list[str] = []
    environment = {"MOSSLIVE_API_KEY": "secret-secret", "MOSSLIVE_ZEBRA": "secret-secret"}
    assert read_settings({}, environment, None, warnings.append) == ServerSettings()
    assert warnings == [
        "MOSSLIVE_API_KEY is not a setting and is ignored; did you mean MOSSLIVE_API_KEYS?",
        "MOSSLIVE_ZEBRA is not a setting and is ignored",
    ]


_words = st.sampled_from(["PORT", "HOST", "SERVICE", "8000", "TCP", "MAX", "SESSIONS", "CONFIG"])
_names = st.lists(_words, min_size=1, max_size=5).map("_".join)
_values = st.sampled_from(["8000", "tcp://10.0.0.1:8000", "", "udp://x"])


@given(st.dictionaries(_names.map("MOSSLIVE_{}".format), _values, max_size=5))
def test_every_variable_is_a_setting_or_mentioned(environment: dict[str, str]) -> None:
    """No variable with our prefix is dropped without a word, except the config file's path."""
    found, warnings = own_variables(environment, ["port", "host", "max_sessions"])
    said = " ".join(warning.partition("; did you mean")[0] for warning in warnings)
    mentioned = set(re.findall(r"MOSSLIVE_\w+", said))
    taken = {f"MOSSLIVE_{name.upper()}" for name in found}
    assert taken.isdisjoint(mentioned)
    assert taken | mentioned == environment.keys() - {"MOSSLIVE_CONFIG"}


def test_a_misspelt_setting_in_the_file_is_an_error(tmp_path: Path) -> None:
    """Our own file has our settings only: the error suggests the one that was meant."""
    file = tmp_path / "server.toml"
    file.write_text("max_sesions = 3\n")
    with pytest.raises(MossliveError) as caught:
        read_settings({}, {}, file)
    message = "Unknown setting max_sesions; did you mean max_sessions?"
    assert str(caught.value) == f"{message} (in {file})"


def test_a_missing_file() -> None:
    """The error for a config file that does not exist is one short sentence."""
    with pytest.raises(MossliveError) as caught:
        read_settings({}, {}, Path("nosuch.toml"))
    assert str(caught.value) == "nosuch.toml: no such file."


def test_the_help_of_the_keys() -> None:
    """The help names keys as users know them."""
    field = ServerSettings.__dataclass_fields__["api_keys"]
    assert field.metadata["help"] == "API keys, comma-separated."
