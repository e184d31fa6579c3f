"""Settings of the server: one dataclass for flags, environment and a TOML file.

A flag beats the environment, which beats the file. A name nobody knows is refused wherever it
stands. `--max-sessions 8`, `MOSSLIVE_MAX_SESSIONS=8` and `max_sessions = 8` are the same.
"""

# ruff: noqa: RUF009 - _setting makes a dataclass field, with its help text
import tomllib
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from mosslive.config import refuse
from mosslive.config.folders import BUNDLED
from mosslive.errors import MossliveError

PREFIX = "MOSSLIVE_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"  # names the file
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def _setting(default: Any, says: str, least: float | None = None) -> Any:
    return field(default=default, metadata={"help": says, "least": least})


@dataclass(frozen=True)
class ServerSettings:
    # What is served.
    model: Path = _setting(Path(BUNDLED), "A model or engine folder.")
    codec: Path | None = _setting(None, "A codec folder; default: the model's own, if it has one.")
    voice: Path | None = _setting(
        None, "The default voice: a .voice file, or a recording; default: the codec's."
    )
    vocoder: Path | None = _setting(
        None, "A BigVGAN folder, trained on the flow's mel, to use instead of the codec's HiFT."
    )
    voices: Path | None = _setting(None, "A folder of more .voice files; default: the codec's.")
    voices_dir: Path | None = _setting(
        None, "A folder where uploaded voices are kept; default: they end with the process."
    )
    name: str = _setting("moss-speech", "The model's name on the wire; any other is accepted too.")
    device: str = _setting("cpu", "cpu or cuda.")
    dtype: str | None = _setting(None, "float32 or bfloat16; default: as the device likes it.")
    instructions: str | None = _setting(None, "System turn; default: the publishers'.")
    preset: str = _setting(
        "model", "How replies are drawn: model (its generation_config.json) or driver."
    )
    tail: str = _setting(
        "cached", "End of a spoken reply: cached, or reference (as published; holds up all others)."
    )
    max_reply_s: float | None = _setting(
        None, "Longest reply, in seconds of speech; default: the preset's.", 0.08
    )
    min_reply_s: float = _setting(0.0, "Shortest reply, in seconds of speech.", 0)
    seed: int | None = _setting(None, "Same seed, same replies; default: another each session.", 0)
    transcripts: bool | None = _setting(
        None, "Write down what was said, in the model's text mode; default: as the model states."
    )
    context_rows: int | None = _setting(
        None,
        "Limit the rows of a conversation, 12.5 a second; default: what the model was taught, "
        "and more is refused.",
        64,
    )
    # Where, and for whom.
    host: str = _setting("127.0.0.1", "Address to listen at; others than loopback need a key.")
    port: int = _setting(8000, "Port to listen at; 0: any free one.", 0)
    api_keys: tuple[str, ...] = _setting((), "Keys that open the door; several with commas.")
    no_auth: bool = _setting(False, "Listen beyond loopback without any key.")
    ssl_certfile: Path | None = _setting(None, "Certificate, for https and wss.")
    ssl_keyfile: Path | None = _setting(None, "Its key.")
    allowed_origins: tuple[str, ...] = _setting((), "Web pages of other hosts that may connect.")
    allowed_hosts: tuple[str, ...] = _setting((), "Host names this server has, without a key.")
    ice_servers: tuple[str, ...] = _setting(
        (), "For WebRTC: stun:HOST:PORT, turn:USER:PASSWORD@HOST:PORT; default: none."
    )
    metrics_key: bool = _setting(False, "Ask for a key at /metrics too.")
    # Limits.
    max_sessions: int = _setting(64, "Live sessions at once.", 1)
    max_sessions_per_key: int = _setting(32, "Live sessions at once of one key.", 1)
    max_requests: int = _setting(32, "HTTP replies being made at once.", 1)
    admit_overload: bool = _setting(
        False, "Let new sessions in although replies are made more slowly than they are played."
    )
    max_items: int = _setting(2000, "Items of a session.", 1)
    max_event_bytes: int = _setting(20 << 20, "Longest client event.", 1024)
    max_turn_s: float = _setting(120.0, "Longest turn of a user, in seconds.", 1)
    max_sound_s: float = _setting(120.0, "Sound a session keeps for retrieval.", 0)
    max_text_chars: int = _setting(20_000, "Longest text of an item or of instructions.", 1)
    max_upload_bytes: int = _setting(20 << 20, "Longest HTTP body.", 1024)
    max_upload_s: float = _setting(120.0, "Longest sound in an HTTP body, unpacked.", 1)
    max_voices: int = _setting(100, "Uploaded voices.", 0)
    max_out_of_band: int = _setting(4, "Out-of-band responses of a session at once.", 0)
    idle_s: float = _setting(300.0, "A session without a client event for so long is closed.", 0.1)
    max_session_s: float = _setting(3600.0, "A session is closed after so long.", 1)
    send_queue_bytes: int = _setting(16 << 20, "Events a slow reader may owe us.", 1024)
    send_timeout_s: float = _setting(20.0, "A reader that takes nothing for so long is cut.", 0.1)
    drain_s: float = _setting(30.0, "At the end, time for replies to finish.", 0)
    # What is written down.
    log_content: bool = _setting(False, "Text of users and replies in the log; never sound.")
    log_level: str = _setting("info", "debug, info, warning or error.")

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            _check_type(one, value)
            least = one.metadata["least"]
            if least is not None and value is not None and not least <= value < float("inf"):
                raise refuse(one.name, value, f"{least} or more")
        if self.port > 65_535:
            raise refuse("port", self.port, "0 to 65535")
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise refuse("log_level", self.log_level, "debug, info, warning, error")
        if bool(self.ssl_certfile) != bool(self.ssl_keyfile):
            raise refuse("ssl_certfile, ssl_keyfile", "one of them", "both, or neither")
        if any(len(key) < 8 or key.startswith("ek_") for key in self.api_keys):
            raise MossliveError("api_keys: a key has 8 characters or more, and no ek_ in front")
        if self.tail not in ("cached", "reference"):
            raise refuse("tail", self.tail, "cached, reference")
        if self.preset not in ("model", "driver"):
            raise refuse("preset", self.preset, "model, driver")


def is_loopback(host: str) -> bool:
    """An address, not whatever begins like one: `127.example.org` is anybody's."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(settings: ServerSettings) -> None:
    """Refuses to serve strangers by accident."""
    if not is_loopback(settings.host) and not settings.api_keys and not settings.no_auth:
        raise MossliveError(
            f"host is {settings.host!r}, which others can reach, and there is no key: "
            f"set {PREFIX}API_KEYS, or say --no-auth if strangers may use it"
        )


def read_settings(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None = None
) -> ServerSettings:
    """`flags`: by field name, None where not given; the environment: as the process has it."""
    known = {one.name: one for one in fields(ServerSettings)}
    values: dict[str, Any] = {}
    if file:
        for name, value in _read_toml(file).items():
            values[name] = _from_toml(_known(known, name, str(file)), value, str(file))
    for variable, text in environment.items():
        if variable.startswith(PREFIX) and variable != CONFIG_VARIABLE:
            name = variable.removeprefix(PREFIX).lower()
            values[name] = from_text(_known(known, name, variable), text, variable)
    for name, value in flags.items():
        one = _known(known, name, "flags")
        if value is not None:
            values[name] = from_text(one, value, name) if isinstance(value, str) else value
    return ServerSettings(**values)


def kind_of(one: "Field[Any]") -> tuple[type, bool]:
    """The type of a field, and whether it may be None."""
    kind: Any = one.type
    if isinstance(kind, UnionType):
        return get_args(kind)[0], True
    return (get_origin(kind) or kind), False


def from_text(one: "Field[Any]", text: str, where: str) -> Any:
    kind, _ = kind_of(one)
    if kind is bool:
        if text.lower() not in (*_TRUE, *_FALSE):
            raise refuse(where, text, "true or false")
        return text.lower() in _TRUE
    if kind is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        return kind(text)
    except ValueError:
        raise refuse(where, text, "a number") from None


def _from_toml(one: "Field[Any]", value: Any, where: str) -> Any:
    kind, _ = kind_of(one)
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind is tuple and isinstance(value, list):
        return tuple(value)
    if kind is float and type(value) is int:
        return float(value)
    return value


def _check_type(one: "Field[Any]", value: Any) -> None:
    kind, optional = kind_of(one)
    if value is None and optional:
        return
    right = type(value) in (int, float) if kind is float else isinstance(value, kind)
    right = right and (kind is bool or not isinstance(value, bool))
    if kind is tuple:
        right = right and all(isinstance(part, str) for part in value)
    if not right:
        names = {tuple: "a list of strings", Path: "a path", str: "a string", bool: "true or false"}
        raise refuse(one.name, value, names.get(kind, f"a {kind.__name__}"))


def _known(known: dict[str, "Field[Any]"], name: str, where: str) -> "Field[Any]":
    if name not in known:
        raise MossliveError(f"{where}: no setting {name!r}; allowed: {', '.join(known)}")
    return known[name]


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MossliveError(f"{path}: not readable as TOML: {error}") from None
