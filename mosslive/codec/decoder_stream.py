"""One live reply: the batch of `decoder_batch` with a single member."""

from collections.abc import Sequence

import torch

from mosslive.codec.decoder_batch import DecoderBatch, take_made
from mosslive.codec.mel_source import MelSource
from mosslive.codec.rendering import Samples
from mosslive.codec.vocoder import Vocoder


class DecoderStream:
    """`push` codes as they come; `finish` when the reply ends, or `close` to drop it."""

    def __init__(
        self,
        mel: MelSource,
        vocoder: Vocoder,
        prompt_codes: int,
        chunk: int,
        generator: torch.Generator | None,
    ) -> None:
        self._batch = DecoderBatch(vocoder, chunk)
        self.reply = self._batch.join(mel, prompt_codes, generator)

    def push(self, codes: Sequence[int]) -> Samples:
        """The samples these codes settle; empty while a chunk and its look-ahead are not whole.
        After `PoolFull` nothing is lost: push no codes when pages are free."""
        self._batch.push(self.reply, codes)
        self._batch.drain(self.reply)
        return take_made(self.reply)

    def finish(self) -> Samples:
        """Returns the rest and closes the stream."""
        return self._batch.finish(self.reply)

    def close(self) -> None:
        """Frees all memory of the reply. Idempotent."""
        self._batch.cancel(self.reply)
