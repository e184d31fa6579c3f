"""Loads an engine folder's weights onto a device, with several reading threads.

On a GPU each thread has two pinned buffers: it fills one while the other is copied to the device.
On a CPU threads read into the tensors directly. There is no other copy in host memory. Invariant:
every byte is checked by its tensor's checksum, computed on the device that now holds it.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event
from typing import NamedTuple

import torch
from torch import Tensor

from mosslive.checkpoint.checksum import checksum
from mosslive.checkpoint.engine_folder import EngineFolder, open_engine
from mosslive.checkpoint.engine_layout import LAYER_MATRICES, scale_name
from mosslive.checkpoint.faults import DamagedEngine, TruncatedShard
from mosslive.config import ModelConfig, refuse
from mosslive.kernels import Matrix
from mosslive.model import DecoderWeights, LayerWeights, TailWeights
from mosslive.rows import CHANNELS, Channel, TextTokenizer

# Reading a cached file is a memory copy by one core; several cores saturate the device link.
_THREADS = 8
_BLOCK_BYTES = 8 << 20  # measured: 18.2 GB in 0.63 s on an H200, with 32 MiB in 0.78 s
_DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32, "F8_E4M3": torch.float8_e4m3fn}

Progress = Callable[[int], None]  # gets the bytes done since the last call


def load_engine_folder(
    path: str | Path, device: torch.device, progress: Progress = lambda _: None
) -> tuple[ModelConfig, TextTokenizer, DecoderWeights]:
    """Raises a `CheckpointError` if the folder is incomplete, has another version, or any bit
    changed. `quick_check` tests whether the model computes correctly. `progress` is called from
    several threads."""
    engine = open_engine(path)
    config = engine.manifest.config
    tokenizer = TextTokenizer.from_file(engine.tokenizer_path)
    tokenizer.check(config)
    return config, tokenizer, load_engine_weights(engine, device, progress)


def load_engine_weights(
    engine: EngineFolder, device: torch.device, progress: Progress = lambda _: None
) -> DecoderWeights:
    try:
        tensors = {
            name: torch.empty(placed.shape, dtype=_DTYPES[placed.dtype], device=device)
            for name, placed in engine.tensors.items()
        }
    except (RuntimeError, MemoryError):  # raised by PyTorch and Python if out of memory
        size = f"{engine.weight_bytes / 1e9:.1f} GB"
        raise refuse("device", str(device), f"one with {size} free for the weights") from None
    _read_all(list(_pieces(engine, tensors)), device, progress)
    sums = torch.stack([checksum(tensor) for tensor in tensors.values()]).tolist()
    stated = [placed.checksum for placed in engine.tensors.values()]
    pairs = zip(tensors, sums, stated, strict=True)
    if changed := [name for name, found, wanted in pairs if found != wanted]:
        raise DamagedEngine(changed, f"in {engine.folder}: the checksum differs from the manifest")
    return _assemble(engine.manifest.config, tensors)


class _Piece(NamedTuple):
    path: Path
    offset: int
    target: Tensor  # uint8, on the device


def _pieces(engine: EngineFolder, tensors: dict[str, Tensor]) -> Iterator[_Piece]:
    for name, placed in engine.tensors.items():
        raw = tensors[name].view(-1).view(torch.uint8)
        for first in range(0, placed.data_bytes, _BLOCK_BYTES):
            target = raw[first : first + _BLOCK_BYTES]
            yield _Piece(placed.path, placed.offset + first, target)


def _read_all(pieces: list[_Piece], device: torch.device, progress: Progress) -> None:
    waiting: SimpleQueue[_Piece] = SimpleQueue()
    for piece in pieces:
        waiting.put(piece)
    files = {path: os.open(path, os.O_RDONLY) for path in {piece.path for piece in pieces}}
    cancelled = Event()
    count = min(_THREADS, os.cpu_count() or 1)
    if device.type == "cuda":
        # Earlier work on this stream may still read the memory. Not the whole device: another
        # thread may be recording a graph, which a synchronised device would break.
        torch.cuda.current_stream(device).synchronize()
    try:
        with ThreadPoolExecutor(count) as threads:
            try:
                jobs = [
                    threads.submit(_drain, waiting, files, device, progress, cancelled)
                    for _ in range(count)
                ]
                for job in jobs:
                    job.result()
            finally:
                cancelled.set()
    finally:
        for number in files.values():
            os.close(number)


def _drain(
    waiting: "SimpleQueue[_Piece]",
    files: dict[Path, int],
    device: torch.device,
    progress: Progress,
    cancelled: Event,
) -> None:
    """One thread: reads pieces from the queue until it is empty."""
    copier = _PinnedCopier(device) if device.type == "cuda" else _DirectCopier()
    with copier.entered():
        while not cancelled.is_set():
            try:
                piece = waiting.get_nowait()
            except Empty:
                break
            buffer = copier.buffer(piece.target)
            _read_exactly(files[piece.path], buffer.numpy().data, piece)
            copier.send(buffer, piece.target)
            progress(piece.target.numel())
        copier.finish()


class _DirectCopier:
    """For a CPU: the target is the buffer, so nothing is copied."""

    def entered(self) -> AbstractContextManager[object]:
        return nullcontext()

    def buffer(self, target: Tensor) -> Tensor:
        return target

    def send(self, buffer: Tensor, target: Tensor) -> None:
        pass

    def finish(self) -> None:
        pass


class _PinnedCopier(_DirectCopier):
    """For a GPU: two alternating pinned buffers, copied on a stream of their own."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._buffers = [
            torch.empty(_BLOCK_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(2)
        ]
        self._sent = [torch.cuda.Event() for _ in range(2)]  # type: ignore[no-untyped-call]
        self._current = 0

    def entered(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self._stream)

    def buffer(self, target: Tensor) -> Tensor:
        self._current = 1 - self._current
        self._sent[self._current].synchronize()  # returns at once if nothing was sent yet
        return self._buffers[self._current][: target.numel()]

    def send(self, buffer: Tensor, target: Tensor) -> None:
        target.copy_(buffer, non_blocking=True)
        self._sent[self._current].record(self._stream)

    def finish(self) -> None:
        self._stream.synchronize()


def _read_exactly(file: int, buffer: memoryview, piece: _Piece) -> None:
    done = 0
    while done < len(buffer):
        count = os.preadv(file, [buffer[done:]], piece.offset + done)
        if not count:  # the file was truncated after it was opened
            raise TruncatedShard([piece.path.name], "it ends before its last tensor")
        done += count


def _assemble(config: ModelConfig, tensors: dict[str, Tensor]) -> DecoderWeights:
    def matrix(name: str) -> Matrix:
        return Matrix(tensors[name], tensors.get(scale_name(name)))

    def layers(block: str, count: int) -> list[LayerWeights]:
        return [
            LayerWeights(
                **{
                    field.name: matrix(name) if field.name in LAYER_MATRICES else tensors[name]  # type: ignore[arg-type]
                    for field in fields(LayerWeights)
                    for name in [f"{block}.{index}.{field.name}"]
                }
            )
            for index in range(count)
        ]

    tails: dict[Channel, TailWeights] = {
        channel: TailWeights(
            embed=tensors[f"{channel}.embed"],
            layers=layers(channel, config.num_modality_layers),
            norm=tensors[f"{channel}.norm"],
            head=matrix(f"{channel}.head"),
        )
        for channel in CHANNELS
    }
    return DecoderWeights(layers("trunk", config.num_shared_layers), tails)
