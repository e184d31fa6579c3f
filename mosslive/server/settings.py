"""Settings of the server: one dataclass, read from flags, environment variables and a TOML file.

`--max-sessions 8`, `MOSSLIVE_MAX_SESSIONS=8` and `max_sessions = 8` are equivalent. A flag
overrides the variable, which overrides the file. An unknown name is an error in the file; among
variables, which others may set, it is a warning (`environment.py`). Immutable, so usable on any
thread. Does not know who uses a setting.
"""

# ruff: noqa: RUF009 - _setting returns a dataclass field with its help text
import logging
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from mosslive.config import refuse
from mosslive.config.codec_precision import HELP, codec_precision
from mosslive.config.folders import BUNDLED
from mosslive.errors import MossliveError
from mosslive.server.environment import PREFIX, own_variables, suggestion

_log = logging.getLogger("mosslive.settings")
LOG_FORMATS = ("auto", "text", "json")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def _setting(default: Any, help_text: str, least: float | None = None) -> Any:
    """`help_text`: what `mosslive serve --help` prints. `least`: the smallest allowed number."""
    return field(default=default, metadata={"help": help_text, "least": least})


@dataclass(frozen=True)
class ServerSettings:
    # The model.
    model: Path = _setting(Path(BUNDLED), "Serve this model or engine folder, or repo id.")
    codec: Path | None = _setting(
        None, "Use this codec folder or repo id; default: the model's, if it has one."
    )
    voice: Path | None = _setting(
        None, "Speak with this .voice file or recording; default: the codec's voice."
    )
    voices: Path | None = _setting(
        None, "Offer the .voice files of this folder too; default: the codec's."
    )
    vocoder: Path | None = _setting(
        None, "Use this BigVGAN folder, trained on the flow's mel, instead of the codec's HiFT."
    )
    voices_dir: Path | None = _setting(
        None, "Store uploaded voices in this folder; default: they are lost at exit."
    )
    name: str = _setting("moss-speech", "Report this model name; requests may use any name.")
    device: str = _setting("auto", "Run on cpu or cuda; auto: cuda where there is a GPU.")
    dtype: str | None = _setting(
        None, "Compute in float32 or bfloat16; default: the device's preferred type."
    )
    fp8: str | None = _setting(
        None, "On a GPU, build the engine of a checkpoint with float8 matrices: trunk."
    )
    codec_precision: str | None = _setting(
        None, f"{HELP}; default: float32 on a CPU, mixed on a GPU."
    )
    instructions: str | None = _setting(
        None, "Use this system prompt; default: the model publishers'."
    )
    preset: str = _setting(
        "model", "Sample replies by this preset: model (its generation_config.json) or driver."
    )
    tail: str = _setting(
        "cached",
        "Render the end of a reply as cached, or reference (as published; slow).",
    )
    speculate: bool = _setting(
        False,
        "Start replies in a user's pause, before the turn has ended, if capacity allows.",
    )
    max_reply_s: float | None = _setting(
        None, "Limit a reply to this many seconds of speech; default: the preset's limit.", 0.08
    )
    min_reply_s: float = _setting(
        0.0, "Make each reply at least this many seconds of speech long.", 0
    )
    seed: int | None = _setting(
        None, "Seed sampling, for repeatable replies; default: random for each session.", 0
    )
    transcripts: bool | None = _setting(
        None, "Transcribe speech with the model's text mode; default: as the model states."
    )
    context_rows: int | None = _setting(
        None,
        "Limit the rows of a conversation, 12.5 a second; default: what the model was trained for.",
        64,
    )
    reply_pool_s: float | None = _setting(
        None,
        "Store this many seconds of replies on the GPU while they are rendered; default: by "
        "max_sessions and the memory.",
        1,
    )
    gpu_memory_gib: float | None = _setting(
        None, "Use at most this much GPU memory, in GiB; default: as the settings need.", 1
    )
    # Address and access.
    host: str = _setting(
        "127.0.0.1", "Listen at this address; addresses beyond loopback require a key."
    )
    port: int = _setting(8000, "Listen at this port; 0 picks a free one.", 0)
    fronts: int | None = _setting(
        None,
        "Handle connections in this many extra processes; 0: in the main process; default: 0 on "
        "a CPU, else one per 4 cores, 1 to 4.",
        0,
    )
    api_keys: tuple[str, ...] = _setting((), "API keys, comma-separated.")
    no_auth: bool = _setting(False, "Allow addresses beyond loopback without a key.")
    ssl_certfile: Path | None = _setting(None, "Serve https and wss with this certificate.")
    ssl_keyfile: Path | None = _setting(None, "Use this private key of the certificate.")
    allowed_origins: tuple[str, ...] = _setting(
        (), "Accept web pages of these other origins, comma-separated."
    )
    allowed_hosts: tuple[str, ...] = _setting(
        (), "Accept these Host names if no key is set, comma-separated; * accepts all."
    )
    ice_servers: tuple[str, ...] = _setting(
        (), "Use these WebRTC servers: stun:HOST:PORT, turn:USER:PASSWORD@HOST:PORT; default: none."
    )
    metrics_key: bool = _setting(False, "Require a key for /metrics too.")
    # Limits.
    max_sessions: int = _setting(64, "Allow this many sessions at once.", 1)
    max_sessions_per_key: int = _setting(32, "Allow this many sessions at once per key.", 1)
    max_requests: int = _setting(32, "Allow this many HTTP replies at once.", 1)
    admit_overload: bool = _setting(
        False, "Accept sessions and replies even if they would be slower than real time."
    )
    promise_ttfa_ms: float = _setting(
        500.0,
        "Admit as many sessions as get their first audio within this many milliseconds.",
        1,
    )
    max_items: int = _setting(2000, "Allow this many items per session.", 1)
    max_event_bytes: int = _setting(20 << 20, "Limit a client event to this many bytes.", 1024)
    max_turn_s: float = _setting(120.0, "Limit a user's turn to this many seconds.", 1)
    max_sound_s: float = _setting(
        120.0, "Keep this many seconds of sound per session for retrieval.", 0
    )
    max_text_chars: int = _setting(
        20_000, "Limit the text of an item or of instructions to this many characters.", 1
    )
    max_upload_bytes: int = _setting(20 << 20, "Limit an HTTP body to this many bytes.", 1024)
    max_upload_s: float = _setting(
        120.0, "Limit the audio in an HTTP body to this many seconds, decoded.", 1
    )
    max_voices: int = _setting(100, "Allow this many uploaded voices, of all keys together.", 0)
    max_out_of_band: int = _setting(
        4, "Allow this many out-of-band responses at once per session.", 0
    )
    idle_s: float = _setting(
        300.0, "Close a session after this many seconds without a client event.", 0.1
    )
    max_session_s: float = _setting(3600.0, "Close a session after this many seconds.", 1)
    send_queue_bytes: int = _setting(
        16 << 20, "Disconnect a client that falls this many bytes behind.", 1024
    )
    send_timeout_s: float = _setting(
        20.0, "Disconnect a client that reads nothing for this many seconds.", 0.1
    )
    drain_s: float = _setting(30.0, "Wait this many seconds for replies at shutdown.", 0)
    # What is logged.
    log_content: bool = _setting(False, "Log the texts of users and replies; never their sound.")
    log_level: str = _setting("info", "Log from this level: debug, info, warning or error.")
    log_format: str = _setting(
        "auto", "Log as text, json (one object per line) or auto: text on a terminal, else json."
    )

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
        if self.log_format not in LOG_FORMATS:
            raise refuse("log_format", self.log_format, ", ".join(LOG_FORMATS))
        if bool(self.ssl_certfile) != bool(self.ssl_keyfile):
            raise MossliveError("TLS needs both --ssl-certfile and --ssl-keyfile")
        if any(len(key) < 8 or key.startswith("ek_") for key in self.api_keys):
            raise MossliveError(
                "api_keys has a key that is too short or starts with ek_; allowed: 8 characters or "
                "more, not starting with ek_"
            )
        if self.tail not in ("cached", "reference"):
            raise refuse("tail", self.tail, "cached, reference")
        if self.fp8 not in (None, "trunk"):
            raise refuse("fp8", self.fp8, "trunk, or none")
        if self.preset not in ("model", "driver"):
            raise refuse("preset", self.preset, "model, driver")
        codec_precision(self.codec_precision, self.device)  # raises for an unknown name


def is_loopback(host: str) -> bool:
    """Parses the address: a prefix test would accept names such as `127.example.org`."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(settings: ServerSettings) -> None:
    """Raises `MossliveError` if other machines could use the server without a key by accident."""
    if not is_loopback(settings.host) and not settings.api_keys and not settings.no_auth:
        raise MossliveError(
            f"host is {settings.host!r}, which other machines can reach, and there is no key; "
            f"set {PREFIX}API_KEYS, or --no-auth to serve everyone"
        )


def read_settings(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    file: Path | None = None,
    warn: Callable[[str], None] = _log.warning,
) -> ServerSettings:
    """`flags`: by field name, None if not given. `environment`: the process's variables. `warn` is
    called for variables that are no settings."""
    known = {one.name: one for one in fields(ServerSettings)}
    values: dict[str, Any] = {}
    if file:
        for name, value in _read_toml(file).items():
            values[name] = _from_toml(_known(known, name, file), value)
    given, warnings = own_variables(environment, known)
    for warning in warnings:
        warn(warning)
    for name, text in given.items():
        values[name] = from_text(known[name], text, f"{PREFIX}{name.upper()}")
    for name, value in flags.items():
        if value is not None:
            values[name] = from_text(known[name], value, name) if isinstance(value, str) else value
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


def _from_toml(one: "Field[Any]", value: Any) -> Any:
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
        names = {
            tuple: "a list of strings",
            Path: "a path",
            str: "a string",
            bool: "true or false",
            int: "a whole number",
            float: "a number",
        }
        raise refuse(one.name, value, names[kind])


def _known(known: dict[str, "Field[Any]"], name: str, file: Path) -> "Field[Any]":
    if name not in known:
        nearest = suggestion(name, known)
        hint = f"did you mean {nearest}?" if nearest else "mosslive serve --help lists all."
        raise MossliveError(f"Unknown setting {name}; {hint} (in {file})")
    return known[name]


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MossliveError(f"{path}: no such file.") from None
    except (OSError, ValueError) as error:
        raise MossliveError(f"{path} is not readable as TOML: {error}") from None
