"""Compiles the language model's layers: one compilation for every layer and batch shape.

Compiles a layer and not the model, which is eight times less work and limits what can fail. Knows
no training. Invariant: a failure here costs speed and never the run: layers then run uncompiled,
and a printed line gives the reason.
"""

import copy
import json
import math
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from recipes.bundled.lm_model import Computing, LmModel, Runner, run_plain

# Relative error of the gradient against float32; that of a trained model in bfloat16 is about 0.05.
_MOST_TIMES, _LEAST_ERROR = 2.0, 0.02
_TIMED = 6


class CompiledLayers:
    """A `Runner` that uses compiled layers as soon as they are ready, and plain ones before or
    without them."""

    def __init__(
        self,
        model: LmModel,
        dtype: torch.dtype,
        patience_s: float = 60.0,
        backend: str | Callable[..., Any] = "inductor",
        probe: tuple[int, int] = (12, 48),
    ) -> None:
        """Compiles on its own thread and waits at most `patience_s`; see `wait`. `probe`: rows and
        length of the batch for compiling, two different numbers. The split of reductions depends on
        their product: a much smaller batch is compiled again."""
        self._run: Runner = run_plain
        self._dropped = False
        self._began = time.monotonic()
        self._patience_s = patience_s
        self._probe = probe
        # A copy, because training changes the weights meanwhile.
        todo = (copy.deepcopy(model), dtype, backend, torch.get_num_threads())
        self._thread = threading.Thread(target=self._compile, args=todo, daemon=True)
        self._thread.start()

    def __call__(
        self, layer: nn.Module, x: Tensor, cos: Tensor, signed_sin: Tensor, kept: Tensor
    ) -> Tensor:
        return self._run(layer, x, cos, signed_sin, kept)

    @property
    def compiled(self) -> bool:
        return self._run is not run_plain

    @property
    def settled(self) -> bool:
        """Whether the choice between compiled and plain is final, unless `give_up` is called."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        left = self._began + self._patience_s - time.monotonic()
        self._thread.join(max(0.0, left))
        if self._thread.is_alive():
            self._say("not yet; training begins without")

    def give_up(self, error: Exception) -> bool:
        """Returns whether compiled layers were in use. If not, the error is the caller's."""
        had, self._run, self._dropped = self.compiled, run_plain, True
        if had:
            self._say(f"given up: {_short(error)}")
        return had

    def _compile(
        self,
        model: LmModel,
        dtype: torch.dtype,
        backend: str | Callable[..., Any],
        threads: int,
    ) -> None:
        torch.set_num_threads(threads)  # per thread; compiled code checks it
        try:
            fast = torch.compile(run_plain, backend=backend)

            def first(
                layer: nn.Module, x: Tensor, cos: Tensor, signed_sin: Tensor, kept: Tensor
            ) -> Tensor:
                # Marks the changing sizes as dynamic, so that one compilation serves all.
                for tensor, sizes in ((x, [0, 1]), (cos, [0]), (signed_sin, [0]), (kept, [1])):
                    torch._dynamo.maybe_mark_dynamic(tensor, sizes)
                found: Tensor = fast(layer, x, cos, signed_sin, kept)
                return found

            exact = _gradient(model, Computing(), self._probe)
            plain, found = (
                float((_gradient(model, how, self._probe) - exact).norm() / exact.norm())
                for how in (Computing(dtype), Computing(dtype, first))
            )
            # Runs other shapes: a recompilation then happens here and not in training.
            rows, length = self._probe
            for other in (length - 32, length + 64, 2 * length + 48):
                _gradient(model, Computing(dtype, fast), (rows * length // other, other))
            times = [
                _seconds(model, Computing(dtype, run), self._probe) for run in (run_plain, fast)
            ]
        except Exception as error:  # a broken compiler must not end an unattended run
            self._say(f"failed: {_short(error)}")
            return
        figures = f"error {found:.4f}, of plain layers {plain:.4f}"
        figures += f"; {1000 * times[1]:.1f} ms, of plain layers {1000 * times[0]:.1f}"
        if not found < _MOST_TIMES * plain + _LEAST_ERROR:
            self._say(f"wrong: {figures}")
        elif times[1] > times[0] and model.cos.is_cuda:  # on other devices they are only tested
            self._say(f"slow: {figures}")
        elif not self._dropped:
            self._run = fast
            self._say(f"done, {figures}")

    def _say(self, what: str) -> None:
        seconds = round(time.monotonic() - self._began, 1)
        print(json.dumps({"compiled layers": what, "seconds": seconds}), flush=True)


def _gradient(model: LmModel, how: Computing, size: tuple[int, int]) -> Tensor:
    """Returns the gradient of a value that depends on all layers, as one vector."""
    config = model.config
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(config.vocab_size, size, generator=generator)
    text[:, ::2] = config.modality_pad_token_id
    audio = torch.randint(config.eosp_token_id, size, generator=generator)
    device = model.cos.device
    states = model(text.to(device), audio.to(device), how)
    loss = (model.text_lm_head(states.text.float()).logsumexp(-1)).mean()
    loss = loss + (model.audio_lm_head(states.audio.float()).logsumexp(-1)).mean()
    found = torch.autograd.grad(loss, list(model.parameters()))
    return torch.cat([each.detach().float().flatten() for each in found])


def _seconds(model: LmModel, how: Computing, size: tuple[int, int]) -> float:
    """Returns the best time of a few passes with gradient, because others can use the device."""
    best = math.inf
    for _ in range(_TIMED):
        began = time.perf_counter()
        _gradient(model, how, size).norm().item()  # waits for the device
        best = min(best, time.perf_counter() - began)
    return best


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"
