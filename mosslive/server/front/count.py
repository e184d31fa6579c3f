"""How many front processes a server starts. Pure, except for the number of usable cores."""

from importlib.util import find_spec

from mosslive.config import refuse
from mosslive.server.settings import ServerSettings
from mosslive.talk.cpu_threads import usable_cores

_MOST = 4  # by default; the process of the model cannot keep more of them busy
_CORES = 4  # for each front; the rest is for the model, its codec and other programs
_PACKAGES = {"zmq": "pyzmq", "msgpack": "msgpack"}


def front_count(settings: ServerSettings) -> int:
    """The number asked for, or the default. Without the packages that fronts need the default is
    0. Raises `ConfigError` if fronts are asked for and cannot run."""
    missing = [name for module, name in _PACKAGES.items() if find_spec(module) is None]
    if settings.fronts is None:
        if settings.device == "cpu" or missing:
            return 0
        return max(1, min(_MOST, usable_cores() // _CORES))
    if settings.fronts and missing:
        raise refuse("fronts", settings.fronts, f"0 until {', '.join(missing)} is installed")
    return settings.fronts
