"""Settings of a capacity benchmark, and the command that repeats it. Data only."""

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from mosslive.bench.capacity.level import Promise
from mosslive.bench.capacity.line import TurnEnds
from mosslive.bench.capacity.load import Load
from mosslive.bench.subject import Subject
from mosslive.config import refuse
from mosslive.config.codec_precision import codec_precision


@dataclass(frozen=True)
class CapacitySettings:
    """One of `url`, `model` and `subject` is given."""

    url: str | None = None  # the Realtime address of a running server
    model: Path | None = None  # a folder to serve
    subject: Subject | None = None  # random weights
    device: str = "cpu"  # of `model`
    levels: tuple[int, ...] = ()  # conversations; empty: search
    most: int = 256  # conversations that the search tries
    seconds: float = 30.0  # measured in each level, after its ramp
    sockets: float = 0.5  # share of the callers over sockets; 1 with a URL
    ends: TurnEnds = field(default_factory=lambda: TurnEnds(detected=False))
    promise: Promise = field(default_factory=Promise)
    load: Load = field(default_factory=Load)
    recording: Path | None = None  # from which the questions are made
    key: str | None = None  # of the server
    precision: str = "bf16"  # of a random language model
    codec_precision: str | None = None  # see `CodecPrecision`; None: the device's default
    server_options: tuple[str, ...] = ()  # of a server in a process of its own

    def __post_init__(self) -> None:
        if (self.url, self.model, self.subject).count(None) != 2:
            raise refuse("url, model, size", "more than one of them or none", "exactly one")
        if self.url and urlsplit(self.url).scheme not in ("ws", "wss"):
            raise refuse("url", self.url, "ws://HOST:PORT/v1/realtime, or wss://")
        if not 0 <= self.sockets <= 1:
            raise refuse("sockets", self.sockets, "a share from 0 to 1")
        if self.codec_precision is not None:
            codec_precision(self.codec_precision, "cpu")  # raises for an unknown name

    @property
    def most_level(self) -> int:
        return max(self.levels, default=self.most)

    def socket_callers(self, conversations: int) -> int:
        return conversations if self.url else round(self.sockets * conversations + 1e-9)

    @property
    def command(self) -> str:
        """The command that repeats the measurement, without the key."""
        load, ends = self.load, self.ends
        words = ["mosslive bench capacity"]
        if self.url:
            words.append(f"--url {self.url}")
        elif self.subject:
            words.append(f"{self.subject.options} --precision {self.precision}")
            chosen = codec_precision(self.codec_precision, self.subject.device)
            words.append(f"--codec-precision {chosen.name}")
        else:
            words.append(f"--model {self.model} --device {self.device}")
        if self.levels:
            words.append(f"--conversations {','.join(map(str, self.levels))}")
        else:
            words.append(f"--most {self.most}")
        if not self.url:
            words.append(f"--sockets {self.sockets:g}")
        words.append(f"--seconds {self.seconds:g} --ttfa-ms {self.promise.ttfa_ms:g}")
        if ends.detected:
            words.append(f"--turn-detection server_vad --silence-ms {ends.silence_ms}")
        words.append(f"--question-s {load.question_s[0]:g},{load.question_s[1]:g}")
        words.append(f"--reply-s {load.reply_s[0]:g},{load.reply_s[1]:g} --turns {load.turns:g}")
        words.append(f"--interrupted {load.interrupted:g} --left {load.left:g} --seed {load.seed}")
        if self.recording:
            words.append(f"--recording {self.recording}")
        if self.server_options:
            words.append(f"--server-options '{' '.join(self.server_options)}'")
        return " ".join(words)
