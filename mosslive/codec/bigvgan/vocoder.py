"""BigVGAN as the vocoder of live replies: every reply is a stream, and streams share passes.

The exact form lags behind the mel by the network's reach. With a shorter look-ahead, the newest
samples are computed as if the mel ended with the newest frame and are not revised. The exact
signal continues underneath, so an error in one chunk does not reach the next. Knows mels and
samples, not codes. Invariants: after n frames a stream has returned exactly
hop · max(0, n - look-ahead) samples, and hop · n after `finish`; its samples do not depend on the
streams that share its passes.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mosslive.codec.bigvgan.graph import graphed_advance
from mosslive.codec.bigvgan.network import BigVganNetwork
from mosslive.codec.bigvgan.states import join_states, shape_key, split_state
from mosslive.codec.bigvgan.step import BigVganState, rest
from mosslive.codec.mel import MelSettings
from mosslive.config import refuse
from mosslive.errors import MossliveError

_MOST_ROWS = 64  # streams in one pass


@dataclass(eq=False)
class OpenStream:
    """One waveform in progress; usually one row, B = 1."""

    state: BigVganState = field(default_factory=BigVganState)
    frames: int = 0  # received
    returned: int = 0  # samples
    held: Tensor | None = None  # [B, s], exact samples that are not due yet


class BigVganVocoder:
    """`mosslive.codec.vocoder.Vocoder` over a BigVGAN. Has no noise: a generator is not used."""

    def __init__(self, network: BigVganNetwork, look_ahead_frames: int | None = None) -> None:
        """`look_ahead_frames`: 0 up to the network's reach; None: the whole reach, exact."""
        most = network.reach.ahead
        frames = most if look_ahead_frames is None else look_ahead_frames
        if type(frames) is not int or not 0 <= frames <= most:
            raise refuse("look_ahead_frames", frames, f"0..{most}, or None for {most}: exact")
        self.network = network
        self.delay_frames = frames

    @property
    def mel_settings(self) -> MelSettings:
        return self.network.mel_settings

    @property
    def device(self) -> torch.device:
        return self.network.conv_pre.weight.device

    def warm_chunks(self, frames: int) -> int:
        """Chunks until every layer is full, and two more: one that finds that the shapes repeat,
        and one that is recorded."""
        reach = self.network.reach
        return -(-(reach.behind + reach.ahead) // frames) + 2

    def whole(self, mel: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """mel [bands, T] → wave [hop · T]."""
        wave: Tensor = self.network(mel)
        return wave

    def open(self, generator: torch.Generator | None = None, expected: int = 0) -> OpenStream:
        """A stream that has received nothing."""
        return OpenStream()

    def arena(self, frames: int) -> None:
        """Has none."""

    @torch.no_grad()
    def push(self, streams: Sequence[OpenStream], mels: Sequence[Tensor]) -> list[Tensor]:
        """New frames [bands, n] of each stream → the samples [s] that are due."""
        return [wave[0] for wave in self.push_rows(streams, self._accepted(streams, mels))]

    @torch.no_grad()
    def finish(self, streams: Sequence[OpenStream], mels: Sequence[Tensor]) -> list[Tensor]:
        """The last frames [bands, n] of each stream, n may be 0 → all samples that are left. The
        streams are then as newly opened."""
        frames = self._accepted(streams, mels)
        pairs = zip(streams, frames, strict=True)
        return [self.finish_rows(stream, mel)[0] for stream, mel in pairs]

    def push_rows(self, streams: Sequence[OpenStream], mels: Sequence[Tensor]) -> list[Tensor]:
        """As `push`, with mels [B, bands, n] in the network's type → [B, s] each."""
        groups: dict[Hashable, list[int]] = {}
        for index, (stream, mel) in enumerate(zip(streams, mels, strict=True)):
            if mel.shape[-1]:
                key = shape_key(stream.state), mel.shape[-1]
                groups.setdefault(key, []).append(index)
        for members in groups.values():
            for first in range(0, len(members), _MOST_ROWS):
                some = members[first : first + _MOST_ROWS]
                self._advance([streams[k] for k in some], [mels[k] for k in some])
        return [self._due(stream, mel) for stream, mel in zip(streams, mels, strict=True)]

    def finish_rows(self, stream: OpenStream, mel: Tensor) -> Tensor:
        """As `finish` of one stream, with a mel [B, bands, n] → [B, s]."""
        frames = stream.frames + mel.shape[-1]
        wave = self._held(stream, mel)
        first = stream.state.samples - wave.shape[-1]  # the sample that `wave` begins with
        if frames:
            wave = torch.cat((wave, rest(self.network, stream.state, mel)), -1)
        wave = wave[:, stream.returned - first :]
        vars(stream).update(vars(OpenStream()))
        return wave

    def _advance(self, streams: list[OpenStream], mels: list[Tensor]) -> None:
        """One pass over streams whose shapes agree."""
        joined = join_states([stream.state for stream in streams], self.network.dispatch)
        mel = torch.cat(mels)
        count = joined.kept[0].shape[0] if joined.kept else len(mel)
        if count > len(mel):
            mel = torch.cat((mel, mel.new_zeros(count - len(mel), *mel.shape[1:])))
        wave, after = graphed_advance(self.network, joined, mel)
        rows = [len(mel) for mel in mels]
        samples = [stream.state.samples + wave.shape[-1] for stream in streams]
        states = split_state(after, rows, samples)
        waves = torch.split(wave[: sum(rows)], rows)
        for stream, state, fresh, own in zip(streams, states, waves, mels, strict=True):
            stream.held = torch.cat((self._held(stream, own), fresh), -1)
            stream.state, stream.frames = state, stream.frames + own.shape[-1]

    def _due(self, stream: OpenStream, mel: Tensor) -> Tensor:
        """The samples that are due now. Those beyond the exact ones are computed as if the mel
        ended here, and are not stored."""
        until = self.network.hop * max(0, stream.frames - self.delay_frames)
        wave = self._held(stream, mel)
        first = stream.state.samples - wave.shape[-1]
        stream.held = wave[:, until - first :].clone()
        if until > max(stream.returned, stream.state.samples):
            wave = torch.cat((wave, rest(self.network, stream.state, mel[..., :0])), -1)
        due = wave[:, stream.returned - first : until - first]
        stream.returned = until
        return due

    @staticmethod
    def _held(stream: OpenStream, mel: Tensor) -> Tensor:
        if stream.held is not None:
            return stream.held
        dtype = torch.float64 if mel.dtype == torch.float64 else torch.float32
        return mel.new_zeros(len(mel), 0, dtype=dtype)

    def _accepted(self, streams: Sequence[OpenStream], mels: Sequence[Tensor]) -> list[Tensor]:
        if len(streams) != len(mels):
            raise MossliveError(f"BigVGAN: {len(mels)} mels for {len(streams)} streams")
        if len(set(streams)) != len(streams):
            raise MossliveError("BigVGAN: a stream may be given only once per call")
        return [self.network.accept(mel) for mel in mels]
