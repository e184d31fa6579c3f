"""Engine folder → weights on a device: read in threads, straight to where they stay.

On a GPU each thread reads into a pair of pinned buffers while the other one is under way to the
device; on a CPU it reads into the tensors themselves. The model is in host memory nowhere else.
Invariant: every byte was proven by its tensor's checksum, computed on the device where it now is.
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

# Reading from memory-backed disk is a copy by one core; a few cores fill the path to the device.
_THREADS = 8
_BLOCK_BYTES = 8 << 20  # measured: 18.2 GB in 0.63 s on an H200, with 32 MiB in 0.78 s
_DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32, "F8_E4M3": torch.float8_e4m3fn}

Progress = Callable[[int], None]  # told the bytes done since the last call


def load_engine_folder(
    path: str | Path, device: torch.device, progress: Progress = lambda _: None
) -> tuple[ModelConfig, TextTokenizer, DecoderWeights]:
    """Raises a `CheckpointError` for a folder that is not whole, of another version, or changed in
    any bit. Whether the model computes what it should is `quick_check`'s to say. `progress` is
    called from several threads."""
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
    except (RuntimeError, MemoryError):  # what PyTorch and Python raise when memory ends
        size = f"{engine.weight_bytes / 1e9:.1f} GB"
        raise refuse("device", str(device), f"one with {size} free for the weights") from None
    _read_all(list(_pieces(engine, tensors)), device, progress)
    sums = torch.stack([checksum(tensor) for tensor in tensors.values()]).tolist()
    stated = [placed.checksum for placed in engine.tensors.values()]
    pairs = zip(tensors, sums, stated, strict=True)
    if changed := [name for name, found, wanted in pairs if found != wanted]:
        raise DamagedEngine(changed, f"in {engine.folder}: the checksum is not the manifest's")
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
        torch.cuda.synchronize(device)  # the targets may be memory that earlier work still reads
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
    """One thread: pieces from the queue until none is left."""
    lane = _PinnedLane(device) if device.type == "cuda" else _DirectLane()
    with lane.entered():
        while not cancelled.is_set():
            try:
                piece = waiting.get_nowait()
            except Empty:
                break
            buffer = lane.buffer(piece.target)
            _read_exactly(files[piece.path], buffer.numpy().data, piece)
            lane.send(buffer, piece.target)
            progress(piece.target.numel())
        lane.finish()


class _DirectLane:
    """A target on the CPU is its own buffer."""

    def entered(self) -> AbstractContextManager[object]:
        return nullcontext()

    def buffer(self, target: Tensor) -> Tensor:
        return target

    def send(self, buffer: Tensor, target: Tensor) -> None:
        pass

    def finish(self) -> None:
        pass


class _PinnedLane(_DirectLane):
    """Two pinned buffers in turn, and a stream of its own for their copies."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._buffers = [
            torch.empty(_BLOCK_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(2)
        ]
        self._sent = [torch.cuda.Event() for _ in range(2)]  # type: ignore[no-untyped-call]
        self._turn = 0

    def entered(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self._stream)

    def buffer(self, target: Tensor) -> Tensor:
        self._turn = 1 - self._turn
        self._sent[self._turn].synchronize()  # done at once where nothing was sent yet
        return self._buffers[self._turn][: target.numel()]

    def send(self, buffer: Tensor, target: Tensor) -> None:
        target.copy_(buffer, non_blocking=True)
        self._sent[self._turn].record(self._stream)

    def finish(self) -> None:
        self._stream.synchronize()


def _read_exactly(file: int, buffer: memoryview, piece: _Piece) -> None:
    done = 0
    while done < len(buffer):
        count = os.preadv(file, [buffer[done:]], piece.offset + done)
        if not count:  # somebody cut the file after it was opened
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
