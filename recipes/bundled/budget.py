"""The budget of a stage, its curves, and the tensors that it carries to the next run.

A stage reads its progress from `Budget`: by the clock on a rented machine, by steps in a test.
Knows no networks. Invariant: a carried file never exceeds `SHARD_BYTES`, and appears under its name
only when it is complete.
"""

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn

SHARD_BYTES = 15 << 20  # the largest size of one file
_WARM_STEPS = 100


@dataclass
class Budget:
    """Ends after `seconds` of `clock` or after `steps`, whichever is first. `span` is the part of a
    longer training that this run covers; the rate follows one schedule through all its runs."""

    seconds: float = math.inf
    steps: int = 1 << 60
    clock: Callable[[], float] = time.monotonic
    span: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        self.began = self.clock()

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self.began

    def progress(self, step: int) -> float:
        """Returns 0 at the start and 1 when the stage is over."""
        return min(1.0, max(step / self.steps, self.elapsed_s / self.seconds))

    def course(self, step: int) -> float:
        """Returns the progress of the longer training."""
        first, last = self.span
        return first + (last - first) * self.progress(step)

    def rate(self, step: int, lowest: float = 0.02) -> float:
        """Returns the learning-rate factor: a short rise, then half a cosine down to `lowest`."""
        rise = min(1.0, (step + 1) / min(_WARM_STEPS, max(1, self.steps // 10)))
        fall = 0.5 * (1 + math.cos(math.pi * self.course(step)))
        return rise * (lowest + (1 - lowest) * fall)


class Curves:
    """Writes numbers over steps, one JSON object per line, flushed so that a killed run keeps
    them."""

    def __init__(self, path: Path, stage: str, budget: Budget, every: int = 50) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")
        self._stage, self._budget, self._every = stage, budget, every
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        self.last: dict[str, float] = {}

    def add(self, step: int, values: Mapping[str, Tensor]) -> None:
        """Averages over `every` steps; waits for the device only when a line is written."""
        for name, value in values.items():
            seen = value.detach().float()
            self._sums[name] = self._sums[name] + seen if name in self._sums else seen
            self._counts[name] = self._counts.get(name, 0) + 1
        if (step + 1) % self._every == 0:
            self.flush(step)

    def flush(self, step: int) -> None:
        if self._sums:
            names = list(self._sums)
            read = torch.stack([self._sums[n] / self._counts[n] for n in names]).tolist()
            self.note(step, **dict(zip(names, read, strict=True)))
        self._sums, self._counts = {}, {}

    def note(self, step: int, **values: float) -> None:
        self.last |= values
        line: dict[str, Any] = {"stage": self._stage, "step": step}
        line["seconds"] = round(self._budget.elapsed_s, 1)
        line |= {name: round(value, 5) for name, value in values.items()}
        text = json.dumps(line)
        self._file.write(text + "\n")
        self._file.flush()
        print(text, flush=True)


def save_whole(content: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    torch.save(content, part)
    part.replace(path)


def save_carried(folder: Path, name: str, tensors: Mapping[str, Tensor]) -> list[Path]:
    """Saves float16 weights as `name.0.pt`, `name.1.pt`, ..., each small enough to move."""
    shards: list[dict[str, Tensor]] = [{}]
    used = 0
    for key, tensor in tensors.items():
        kept = tensor.detach().half().cpu().clone()
        if shards[-1] and used + kept.nbytes > SHARD_BYTES:
            shards.append({})
            used = 0
        shards[-1][key] = kept
        used += kept.nbytes
    paths = [folder / f"{name}.{number}.pt" for number in range(len(shards))]
    for path, shard in zip(paths, shards, strict=True):
        save_whole(shard, path)
    return paths


def drop_carried(folder: Path, name: str) -> None:
    for path in folder.glob(f"{name}.[0-9]*.pt"):
        path.unlink(missing_ok=True)


def load_carried(folder: Path, name: str) -> dict[str, Tensor] | None:
    """Returns what `save_carried` wrote, as float32, or None if there is nothing. Raises
    `ValueError` if a file is damaged."""
    tensors: dict[str, Tensor] = {}
    for path in sorted(folder.glob(f"{name}.[0-9]*.pt")):
        try:
            held = torch.load(path, map_location="cpu", weights_only=True)
        except (RuntimeError, UnpicklingError, EOFError) as error:
            raise ValueError(f"{path} cannot be read and may be truncated: {error}") from None
        tensors |= {key: tensor.float() for key, tensor in held.items()}
    return tensors or None


def optimiser(
    groups: list[tuple[nn.Module, float]],
    betas: tuple[float, float] = (0.9, 0.98),
    decay: float = 0.01,
    recorded: bool = False,
) -> torch.optim.AdamW:
    """Returns AdamW over modules with their own rates; vectors (norms, biases, snakes) do not
    decay. With `recorded`, keeps all state that changes in device memory, so that a step can be
    replayed; GPU only."""
    sets: list[dict[str, Any]] = []
    for module, rate in groups:
        wanted = [p for p in module.parameters() if p.requires_grad]
        for params, wd in (
            ([p for p in wanted if p.dim() > 1], decay),
            ([p for p in wanted if p.dim() <= 1], 0.0),
        ):
            if params:
                sets.append({"params": params, "lr": rate, "base": rate, "weight_decay": wd})
    first = sets[0]["params"][0]
    if recorded:
        for each in sets:
            each["lr"] = torch.tensor(each["lr"], device=first.device)
    return torch.optim.AdamW(sets, betas=betas, fused=first.is_cuda, capturable=recorded)


def set_rate(chosen: torch.optim.Optimizer, factor: float) -> None:
    for group in chosen.param_groups:
        rate = group["base"] * factor
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def take_step(chosen: torch.optim.Optimizer, loss: Tensor, most: float = 1.0) -> None:
    """Takes one optimiser step with the gradient clipped to `most`. Replaces non-finite gradient
    values by 0, so that one bad batch does not end an unattended run."""
    params = [p for group in chosen.param_groups for p in group["params"]]
    for param, found in zip(
        params, torch.autograd.grad(loss, params, allow_unused=True), strict=True
    ):
        param.grad = None if found is None else found.nan_to_num(0.0, 0.0, 0.0)
    torch.nn.utils.clip_grad_norm_(params, most)
    chosen.step()
