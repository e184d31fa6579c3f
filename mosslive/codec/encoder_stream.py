"""One speaker's turn, encoded while it is spoken, and exact when it ends.

A code is returned as soon as the samples it depends on have come, 7.5 ms before its 80 ms are over.
Only one feature looks ahead: the floor depends on the loudest moment of the segment. Live codes use
the loudest moment so far. When a segment ends, everything from the first block that the later
loudness changes is computed again. Knows nothing of transport, sample rates or speakers.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from mosslive.codec.encoder import BLOCK_FRAMES, POOL, Encoder, check_codes
from mosslive.codec.encoder_samples import Samples, SegmentSamples
from mosslive.codec.mel import check_pcm, floor_and_scale, floor_rises, log10_mel
from mosslive.errors import MossliveError

_REACH_STEP = 64  # attention reads a multiple of this many positions: few shapes, little waste


@dataclass(frozen=True)
class HeardTurn:
    """What `finish` returns. To correct a list of live codes: append `rest`, or, if `first_revised`
    is not None, cut the list there and append `codes[first_revised:]`."""

    rest: list[int]  # the codes push had not returned yet
    codes: list[int]  # of the whole turn, as `Encoder.encode` gives them
    first_revised: int | None  # index of the first code from push that differs in `codes`

    @classmethod
    def compare(cls, live: list[int], codes: list[int]) -> "HeardTurn":
        """`live`: the codes that push returned; `codes`: the exact ones of the whole turn."""
        pairs = enumerate(zip(live, codes, strict=False))
        revised = next((index for index, (one, other) in pairs if one != other), None)
        return cls(codes[len(live) :], codes, revised)


@dataclass
class _Segment:
    """The current segment, at most 30 s. Frames are stored in the order in which `Encoder.step`
    takes them: column 8c+i is frame 8c-1+i. Column 0, which is not a frame, repeats column 1."""

    log10: Tensor  # [mel_bands, 8 · codes + 1], without the floor
    lowest: Tensor  # [codes], the lowest value in the frames of each code
    loudest: Tensor  # [codes], the loudest value up to and with the frames of each code
    samples: SegmentSamples = field(default_factory=SegmentSamples)
    live: list[int] = field(default_factory=list)


class EncoderStream:
    """Turns are independent: after `finish`, `reset` begins another in the same memory."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._state = encoder.open(1)
        self.reset()

    def reset(self) -> None:
        """Clears everything: the next sample is the first of a turn."""
        self._live: list[int] = []  # of finished segments, as push returned them
        self._codes: list[int] = []  # of finished segments, exact
        self._finished = False
        self._begin_segment()

    def push(self, pcm: Tensor) -> list[int]:
        """pcm [n], any n, at 16 kHz, float in [-1, 1] or int16 → the codes it completes."""
        if self._finished:
            raise MossliveError("sound pushed into a turn that was finished; reset begins another")
        wave: Samples = check_pcm(pcm).cpu().numpy().copy()
        codes = []
        while len(wave):
            left = self._encoder.dims.segment_samples - self._segment.samples.count
            codes += self._feed(wave[:left])
            if len(wave) >= left:
                self._end_segment()
            wave = wave[left:]
        return codes

    def finish(self) -> HeardTurn:
        """Ends the turn; the last block is filled up with silence."""
        if self._finished:
            raise MossliveError("a turn finished twice; reset begins another")
        self._finished = True
        self._end_segment()
        return HeardTurn.compare(self._live, self._codes)

    def _begin_segment(self) -> None:
        dims, device = self._encoder.dims, self._encoder.half_norms.device
        self._encoder.truncate(self._state, 0)
        self._segment = _Segment(
            log10=torch.empty(dims.mel_bands, BLOCK_FRAMES * dims.segment_codes + 1, device=device),
            lowest=torch.empty(dims.segment_codes, device=device),
            loudest=torch.empty(dims.segment_codes, device=device),
        )

    def _feed(self, pcm: Samples) -> list[int]:
        """pcm within the segment → the codes that are now determined."""
        segment, done = self._segment, len(self._segment.live)
        segment.samples.push(pcm)
        count = segment.samples.whole
        if not count:
            return []
        end = done + count
        log10 = self._analyse(segment.samples.take(count))
        blocks = log10.view(log10.shape[0], -1, BLOCK_FRAMES)  # [mel_bands, codes, 8]
        segment.lowest[done:end] = blocks.amin((0, 2))
        segment.loudest[done:end] = blocks.amax((0, 2))
        so_far = segment.loudest[max(0, done - 1) : end].cummax(0).values
        segment.loudest[done:end] = so_far[-(end - done) :]
        loudest = segment.loudest[done:end].repeat_interleave(BLOCK_FRAMES)
        codes = self._step(floor_and_scale(log10, loudest), done)
        segment.live += codes
        return codes

    def _end_segment(self) -> None:
        """Makes the segment's codes exact, and begins the next one."""
        segment, done = self._segment, len(self._segment.live)
        end = segment.samples.blocks
        if not end:
            return
        loudest = self._analyse(segment.samples.take_rest()).amax()
        loudest = torch.maximum(loudest, segment.loudest[:done].amax()) if done else loudest
        changed = floor_rises(segment.lowest[:done], segment.loudest[:done], loudest)
        # The one read-back: the first block that changed, or else the first not computed yet.
        first = int(F.pad(changed, (0, 1), value=True).int().argmax())
        codes = segment.live[:first]
        if first < end:
            self._encoder.truncate(self._state, first)
            log10 = segment.log10[:, first * BLOCK_FRAMES : end * BLOCK_FRAMES]
            codes += self._step(floor_and_scale(log10, loudest), first)
        self._live += segment.live
        self._codes += codes
        self._begin_segment()

    def _analyse(self, framed: Samples) -> Tensor:
        """Samples from the next code's first frame on → all their frames, kept and returned."""
        segment, first = self._segment, BLOCK_FRAMES * len(self._segment.live)
        log10 = log10_mel(
            torch.from_numpy(framed).to(segment.log10.device), self._encoder.dims.mel_bands
        )
        if not first:
            log10[:, 0] = log10[:, 1]  # neither the loudest nor the lowest because of it
        segment.log10[:, first : first + log10.shape[1]] = log10
        return log10

    def _step(self, features: Tensor, first: int) -> list[int]:
        """features [mel_bands, 8n] of the codes from `first` on → n codes, on the host."""
        positions = POOL * first + features.shape[1] * POOL // BLOCK_FRAMES
        reach = min(-(-positions // _REACH_STEP) * _REACH_STEP, self._encoder.dims.positions)
        _, codes = self._encoder.step(self._state, features[None], reach)
        result: list[int] = codes[0].tolist()
        check_codes(result)
        return result
