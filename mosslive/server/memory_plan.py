"""How the GPU's memory is divided: pages of conversations, and pages of replies being rendered.

Two pools grow with the number of sessions: the language model's pages (a conversation holds them as
long as it is open) and the flow's (a reply holds them while it is rendered). Everything else has a
size of its own. Pure functions of numbers, computed once before the pools are allocated; the caller
reads the device. Invariant: a plan never exceeds the available bytes.
"""

from dataclasses import dataclass

from mosslive.errors import MossliveError

_GIB = 1 << 30
# Of all sessions, those whose replies are rendered at one moment; the others listen or are silent.
SPEAKING_SHARE = 2 / 3
# Length of most replies. A reply at a random moment is half done and holds half its pages.
TYPICAL_REPLY_S = 8.0
HEARD_S = 4.0  # of each session, on average: a third of them listen to turns of 12 s or less
LONG_TURNS_S = 90.0  # three segments of 30 s
VOICES_S = 20.0  # prompts of a few voices; replies of one voice share its prompt
LEAST_POOL_S = 8.0  # a prompt and one short reply
# Replies get at least this share of both pools, so that long conversations do not silence them.
_REPLY_SHARE = 1 / 3
# Intermediate results of recorded steps and workspaces of libraries.
_FIXED_OTHER_BYTES = 3 * _GIB // 2
_OTHER_BYTES_PER_SESSION = 24 << 20


@dataclass(frozen=True)
class Needs:
    """What the server wants; bytes, unless a unit is named."""

    sessions: int
    lm_weights: int
    hearing: int  # encoder states of all sessions
    row_bytes: int
    rows: int  # that no conversation is limited by
    least_rows: int
    second_bytes: int  # of replies; 0: no spoken replies
    reply_s: float  # seconds of replies in the pool
    chosen: bool = False  # `reply_s` is the user's: all of it or an error

    @property
    def other(self) -> int:
        return _FIXED_OTHER_BYTES + self.sessions * _OTHER_BYTES_PER_SESSION

    @property
    def fixed(self) -> dict[str, int]:
        return {
            "language model's weights": self.lm_weights,
            "hearing": self.hearing,
            "intermediate results": self.other,
        }


@dataclass(frozen=True)
class MemoryPlan:
    rows: int
    reply_s: float
    parts: dict[str, int]  # name → bytes, all that is still to be allocated

    @property
    def pool_bytes(self) -> int:
        """Of both pools: free until they are allocated."""
        return self.parts["pages of conversations"] + self.parts["pages of replies"]

    def document(self) -> dict[str, object]:
        """The fields of the log record `memory`."""
        return {
            "kv_rows": self.rows,
            "reply_pool_s": round(self.reply_s, 1),
            **{f"{_key(name)}_gib": round(size / _GIB, 2) for name, size in self.parts.items()},
        }


def reply_seconds(sessions: int, longest_s: float) -> float:
    """Seconds of replies that are stored at one moment, prompts included: two thirds of the
    sessions are being answered and hold half a reply, and one of them the longest."""
    half = min(TYPICAL_REPLY_S, longest_s) / 2
    speaking = max(1.0, SPEAKING_SHARE * sessions)
    return VOICES_S + max(longest_s, half * speaking)


def hearing_seconds(sessions: int) -> float:
    """Seconds of turns that are heard at one moment. Turns hold memory from their begin to their
    end, so half of their length on average; a few may be long."""
    return LONG_TURNS_S + HEARD_S * sessions


def plan_memory(available: int, needs: Needs) -> MemoryPlan:
    """Divides `available` bytes. The language model gets its rows and the replies get theirs if
    both fit. If not, the replies get what the rows leave, but at least a third of both pools.
    Raises `MossliveError` with the size of every part if the least does not fit."""
    left = available - sum(needs.fixed.values())
    least_s = 0.0
    if needs.second_bytes:
        least_s = needs.reply_s if needs.chosen else min(LEAST_POOL_S, needs.reply_s)
    least = _parts(needs, needs.least_rows, least_s)
    if sum(least.values()) > available:
        raise MossliveError(_too_little(available, least))
    rows, seconds = needs.rows, least_s
    if needs.second_bytes and not needs.chosen:
        free = max(left - rows * needs.row_bytes, int(left * _REPLY_SHARE))
        seconds = max(least_s, min(needs.reply_s, free / needs.second_bytes))
    pages = left - int(seconds * needs.second_bytes)
    rows = max(needs.least_rows, min(rows, pages // needs.row_bytes))
    # The least rows may leave less than the replies' share.
    if needs.second_bytes and not needs.chosen:
        seconds = min(seconds, (left - rows * needs.row_bytes) / needs.second_bytes)
    return MemoryPlan(rows, seconds, _parts(needs, rows, seconds))


def _parts(needs: Needs, rows: int, seconds: float) -> dict[str, int]:
    return {
        **needs.fixed,
        "pages of conversations": rows * needs.row_bytes,
        "pages of replies": int(seconds * needs.second_bytes),
    }


def _too_little(available: int, least: dict[str, int]) -> str:
    listed = ", ".join(f"{name} {size / _GIB:.1f}" for name, size in least.items())
    return (
        f"{sum(least.values()) / _GIB:.1f} GiB of GPU memory are needed and "
        f"{available / _GIB:.1f} are available, in GiB: {listed}; raise --gpu-memory-gib, lower "
        f"--max-sessions, --context-rows or --reply-pool-s, or use an FP8 engine folder or "
        f"--codec-precision half"
    )


def _key(name: str) -> str:
    return name.replace("language model's", "lm").replace(" ", "_")
