"""What callers heard: the record of each reply and call, and their JSON between processes.

Data only. Times are seconds from the start of the level.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

# heard: to the end. interrupted: by the caller's next question, or the caller hung up. refused: the
# server was too busy for the turn. failed: anything else, such as wrong sound or no sound.
Status = Literal["heard", "interrupted", "refused", "failed"]


@dataclass(frozen=True)
class HeardReply:
    asked_at: float  # the last sample of speech was sent
    ttfa_s: float | None  # from then until the first sound came; None: none came
    gaps: int
    silence_s: float  # in all gaps
    samples: int
    status: Status
    fault: str = ""  # of a failed or refused reply


@dataclass
class Outcome:
    """Of any number of callers."""

    replies: list[HeardReply] = field(default_factory=list)
    calls: list[tuple[float, float]] = field(default_factory=list)  # begin and end of each
    refused: int = 0  # calls refused at the door
    faults: list[str] = field(default_factory=list)  # of calls that failed
    unasked: int = 0  # replies in the middle of a question: the detector ended the turn too early
    late_s: float = 0.0  # how late a packet was sent at worst

    def add(self, other: "Outcome") -> None:
        self.replies += other.replies
        self.calls += other.calls
        self.refused += other.refused
        self.faults += other.faults
        self.unasked += other.unasked
        self.late_s = max(self.late_s, other.late_s)

    def document(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "Outcome":
        replies = [HeardReply(**one) for one in document["replies"]]
        calls = [(begin, end) for begin, end in document["calls"]]
        return cls(**document | {"replies": replies, "calls": calls})
