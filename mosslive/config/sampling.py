"""Sampling settings of a reply. No arithmetic.

`Sampling()` leaves the model's own distribution unchanged. The two published sets are
`Sampling.driver()` and `Sampling.model_card()`.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from mosslive.config.files import is_positive_number, refuse

SECONDS_PER_CODE = 0.08  # and per row: 12.5 rows are one second

IgnoredAudio = Literal["sample", "pad"]


@dataclass(frozen=True)
class Sampling:
    """Settings of one request, used for both channels, as in the published loop."""

    greedy: bool = False  # arg-max, lowest index on ties; temperature, top_k and top_p are unused
    temperature: float = 1.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0  # 1: off
    repetition_penalty: float = 1.0  # 1: off
    max_new: int = 500  # rows; 12.5 rows are one second of speech
    min_new: int = 0  # the end of speech is masked in rows 1 .. min_new - 1
    seed: int = 0
    # The published loop samples an audio id for text rows as well. It is never heard, but it stays
    # in the grid and in the history of the repetition penalty. It also matters if the model writes
    # the speech placeholder as text, or opens speech on a row whose ignored id is the end of
    # speech. "pad" writes the audio pad instead, so the audio tail need not run while the model
    # writes.
    ignored_audio: IgnoredAudio = "sample"

    def __post_init__(self) -> None:
        if not isinstance(self.greedy, bool):
            raise refuse("greedy", self.greedy, "true or false")
        self._number("temperature", "0.01 to 100 (use greedy for the most likely id)")
        self._number("repetition_penalty", "0.01 to 100 (1 is off)")
        if not is_positive_number(self.top_p) or self.top_p > 1:
            raise refuse("top_p", self.top_p, "above 0 and at most 1 (1 is off)")
        self._integer("top_k", 0, "0 or more (0 is off)")
        self._integer("max_new", 1, "1 or more rows")
        self._integer("min_new", 0, "0 or more rows")
        self._integer("seed", 0, "0 to 2**64 - 1")
        if self.seed >= 2**64:
            raise refuse("seed", self.seed, "0 to 2**64 - 1")
        if self.ignored_audio not in get_args(IgnoredAudio):
            raise refuse("ignored_audio", self.ignored_audio, " or ".join(get_args(IgnoredAudio)))

    def _number(self, name: str, allowed: str) -> None:
        # Beyond these bounds float32 logits overflow, and samples are meaningless.
        value = getattr(self, name)
        if not is_positive_number(value) or not 0.01 <= value <= 100:
            raise refuse(name, value, allowed)

    def _integer(self, name: str, least: int, allowed: str) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise refuse(name, value, allowed)

    @classmethod
    def driver(cls, **changes: Any) -> "Sampling":
        """The defaults of the published driver (its web interface)."""
        return replace(
            cls(temperature=0.6, top_k=20, top_p=0.95, repetition_penalty=1.1, max_new=500),
            **changes,
        )

    @classmethod
    def model_card(cls, **changes: Any) -> "Sampling":
        """The defaults of the script on the model card."""
        return replace(
            cls(temperature=0.7, top_k=20, top_p=0.95, max_new=1000, min_new=10), **changes
        )
