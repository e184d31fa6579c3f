"""What a vocoder is: mel → sound, whole and as streams, for a mel of one description.

`mosslive.codec.hift.stream.HiftStream` and `mosslive.codec.bigvgan.BigVganVocoder` implement it. A
vocoder understands only the mel that it was trained on, so `check_mel` compares descriptions before
any network is loaded. Knows no files and no codes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from mosslive.codec.mel import FLOW_MEL, MelSettings
from mosslive.config import ConfigError

if TYPE_CHECKING:
    from mosslive.codec.hift.arena import HiftArena


class Vocoder(Protocol):
    """One network for any number of streams. The state of a stream is the vocoder's own object.

    Invariants: a finished stream has returned exactly `mel_settings.hop_samples` samples per frame;
    its samples do not depend on the streams that share its calls.
    """

    @property
    def mel_settings(self) -> MelSettings: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def delay_frames(self) -> int:
        """How many frames the returned sound lags behind the mel that was pushed."""
        ...

    def warm_chunks(self, frames: int) -> int:
        """Returns after how many chunks of this many frames a stream repeats the same shapes."""
        ...

    def whole(self, mel: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """A whole mel [bands, T] → samples [hop · T]. `generator`: of the noise, if any."""
        ...

    def open(self, generator: torch.Generator | None = None, expected: int = 0) -> Any:
        """A stream that has received nothing. `expected`: frames of most pushes; 0: unknown."""
        ...

    def arena(self, frames: int) -> "HiftArena | None":
        """Slots for the streams of a batch whose pushes have this many frames, if this vocoder has
        recorded windows on its device. None: the batch uses `open`, `push` and `finish`."""
        ...

    def push(self, states: Sequence[Any], mels: Sequence[Tensor]) -> list[Tensor]:
        """New frames [bands, n] of each stream, n may be 0 → the samples [s] that they settle."""
        ...

    def finish(self, states: Sequence[Any], mels: Sequence[Tensor]) -> list[Tensor]:
        """The last frames [bands, n] of each stream, n may be 0 → all samples that are left."""
        ...


def check_mel(name: str, mel: MelSettings, wanted: MelSettings = FLOW_MEL) -> None:
    """Raises `ConfigError` with both descriptions if a vocoder's mel is not the flow's."""
    if mel == wanted:
        return
    ours, theirs = wanted.description(), mel.description()
    rows = [("", "flow", "vocoder", "")]
    rows += [
        (what, ours[what], theirs[what], "" if ours[what] == theirs[what] else "  differs")
        for what in ours
    ]
    table = "\n".join(f"  {a:<12} {b:<24} {c:<24}{d}".rstrip() for a, b, c, d in rows)
    raise ConfigError(
        f"{name}: this vocoder was trained on another mel than the flow makes:\n{table}\n"
        f"Use a vocoder that was trained on the flow's mel, or none for the codec's own HiFT."
    )
