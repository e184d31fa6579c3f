"""Triton version of `kernels.conv1d`: one implicit GEMM per layer.

Row m of the left matrix is one moment of one batch row, column k one tap of one channel; it is read
from the signal, not unfolded in memory. The channels of a moment are adjacent, so that rows are
read contiguously. Bias, sums and snake are applied before the result leaves the registers. Float32
is computed as three TF32 products, which is float32 up to its own rounding, whatever PyTorch's
switches say.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.conv1d import Activation, are_channels_together, are_taps_together
from mosslive.kernels.gpu.overlap import after_previous, overlap
from mosslive.kernels.gpu.snake import bend

_MOST_ADDENDS = 3


class Tiles(NamedTuple):
    """Launch settings of one product: rows, output channels and depth of a tile; warps; stages; and
    the split-K parts, which a second kernel sums."""

    rows: int
    outputs: int
    depth: int
    warps: int
    stages: int
    parts: int = 1


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    stride: int = 1,
    dilation: int = 1,
    padding: int = 0,
    addends: Sequence[Tensor] = (),
    scale: float = 1.0,
    activation: Activation | None = None,
    slope: float = 0.0,
    alpha: Tensor | None = None,
    tiles: Tiles | None = None,
) -> Tensor:
    """As the definition; x and the addends with channels, the weight with taps together."""
    place = _Place(stride, dilation, padding)
    y = _result(x, weight, place)
    if (activation == "snake") != (alpha is not None):
        raise ValueError("alpha must be given with activation 'snake' and only then")
    _launch(x, weight, bias, place, addends, scale, activation, slope, y, alpha, None, tiles)
    return y


def conv1d_snake(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    alpha: Tensor,
    *,
    dilation: int = 1,
    padding: int = 0,
    addends: Sequence[Tensor] = (),
    tiles: Tiles | None = None,
) -> tuple[Tensor, Tensor]:
    place = _Place(1, dilation, padding)
    y = _result(x, weight, place)
    bent = torch.empty_like(y)
    _launch(x, weight, bias, place, addends, 1.0, None, 0.0, y, alpha, bent, tiles)
    return y, bent


class _Place(NamedTuple):
    stride: int
    dilation: int
    padding: int


def _result(x: Tensor, weight: Tensor, place: _Place) -> Tensor:
    """[B, O, T'], uninitialised."""
    reach = place.dilation * (weight.shape[2] - 1)
    times = (x.shape[2] + 2 * place.padding - reach - 1) // place.stride + 1
    if times < 1:
        raise ValueError(
            f"{x.shape[2]} samples; the convolution needs at least {reach + 1 - 2 * place.padding}"
        )
    return x.new_empty(x.shape[0], times, weight.shape[0]).transpose(1, 2)


def _launch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    place: _Place,
    addends: Sequence[Tensor],
    scale: float,
    activation: Activation | None,
    slope: float,
    y: Tensor,
    alpha: Tensor | None,
    bent: Tensor | None,
    tiles: Tiles | None,
) -> None:
    outputs, inputs, taps = weight.shape
    batch, channels, times = x.shape
    if channels != inputs or not are_taps_together(weight):
        raise ValueError(f"weight {list(weight.shape)} {weight.stride()} for {channels} channels")
    if len(addends) > _MOST_ADDENDS or any(a.shape != y.shape for a in addends):
        raise ValueError(f"at most {_MOST_ADDENDS} addends of shape {list(y.shape)}")
    for signal in (x, *addends):
        if not are_channels_together(signal):
            raise ValueError(f"strides {signal.stride()}: channels must be adjacent")
    for vector in (bias, alpha):
        if vector is not None and (vector.shape != (outputs,) or not vector.is_contiguous()):
            raise ValueError(f"bias and alpha must be [{outputs}], contiguous")
    if any(t.dtype != x.dtype for t in (weight, *addends)):
        raise ValueError("signals and weight must be of one dtype")
    rows = batch * y.shape[2]
    if not rows:
        return
    tiles = tiles or choose_tiles(rows, inputs, outputs, taps, x.dtype)
    padded = [*addends, *([x] * (_MOST_ADDENDS - len(addends)))]
    after = (
        bias if bias is not None else x,
        *padded,
        alpha if alpha is not None else x,
        y,
        bent if bent is not None else y,
        rows,
        y.shape[2],
        len(addends),
        *(_moments(addend) for addend in padded),
        scale,
        slope,
    )
    kinds = {
        "OUTPUTS": outputs,
        "BIAS": bias is not None,
        "ACTIVATION": activation,
        "SNAKE_TOO": bent is not None,
    }
    sums = y
    if tiles.parts > 1:
        sums = torch.empty(tiles.parts, rows, outputs, dtype=torch.float32, device=x.device)
    across = triton.cdiv(outputs, tiles.outputs)
    _product_kernel[(triton.cdiv(rows, tiles.rows) * across, tiles.parts)](
        x,
        weight,
        sums,
        *after,
        times,
        _moments(x),
        taps,
        *place,
        **kinds,
        INPUTS=inputs,
        WHOLE=inputs % tiles.depth == 0,
        PRECISION="tf32x3" if x.dtype == torch.float32 else "ieee",
        ROWS=tiles.rows,
        COLUMNS=tiles.outputs,
        DEPTH=tiles.depth,
        PARTS=tiles.parts,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
        **overlap(x),
    )
    if tiles.parts > 1:
        _sum_kernel[(triton.cdiv(rows, _SUM_ROWS), triton.cdiv(outputs, _SUM_COLUMNS))](
            sums, *after, **kinds, PARTS=tiles.parts, ROWS=_SUM_ROWS, COLUMNS=_SUM_COLUMNS,
            num_warps=1, **overlap(x),
        )  # fmt: skip


def _moments(signal: Tensor) -> int:
    """The batch stride in moments: the kernel then knows that a row starts at a moment, and can
    use wide loads."""
    if signal.shape[0] == 1:
        return 0
    if signal.stride(0) % signal.shape[1]:
        raise ValueError(f"strides {signal.stride()}: batch rows must be whole moments apart")
    return signal.stride(0) // signal.shape[1]


def choose_tiles(rows: int, inputs: int, outputs: int, taps: int, dtype: torch.dtype) -> Tiles:
    """Measured on an H200: the largest tiles that keep its SMs busy; split-K where even small tiles
    are too few."""
    wide, deep = dtype == torch.float32, taps * inputs
    few = wide and rows <= _FEW_ROWS  # then only the weight is read: many small programs
    for tiles, enough in () if few else _WIDE if wide else _HALF:
        count = triton.cdiv(rows, tiles.rows) * triton.cdiv(outputs, tiles.outputs)
        one_tile = triton.next_power_of_2(outputs) == tiles.outputs
        if count >= enough and (one_tile or outputs % tiles.outputs == 0):
            return tiles
    tiles = Tiles(32, 16, 64, 4, 4) if few else Tiles(64, 32, 32, 4, 4) if wide else _SMALL_HALF
    count = triton.cdiv(rows, tiles.rows) * triton.cdiv(outputs, tiles.outputs)
    wanted = max(2, 2 * _SMS // count) if few else _SMS // count
    parts = min(wanted, deep // (_FEWEST_STEPS * tiles.depth), _MOST_PARTS)
    return tiles._replace(parts=max(1, parts))


_SMS = 132
_MOST_PARTS = 8
_FEW_ROWS = 32
_FEWEST_STEPS = 6  # of a split-K part: fewer do not pay for the second kernel
_SUM_ROWS, _SUM_COLUMNS = 4, 64
_SMALL_HALF = Tiles(64, 32, 64, 4, 5)
# (tiles, least number of them), tried in this order.
_HALF = (
    (Tiles(128, 256, 64, 8, 3), 80),
    (Tiles(128, 128, 64, 8, 3), 132),
    (Tiles(128, 64, 64, 4, 3), 132),
    (Tiles(128, 32, 64, 4, 3), 132),
    (Tiles(64, 64, 64, 4, 4), 120),
)
_WIDE = (
    (Tiles(128, 64, 32, 8, 3), 264),
    (Tiles(64, 64, 32, 4, 3), 132),
    (Tiles(64, 32, 32, 4, 4), 132),
)

# Vary too much to compile a kernel for each value.
_COUNTS = ("rows", "times_out", "addends", "add0_step", "add1_step", "add2_step")
_PLACES = ("times_in", "x_step", "taps", "stride", "dilation", "padding")


@triton.jit(do_not_specialize=_COUNTS + _PLACES)
def _product_kernel(  # type: ignore[no-untyped-def]
    x_at, weight_at, sums_at,
    bias_at, add0_at, add1_at, add2_at, alpha_at, y_at, bent_at,
    rows, times_out, addends, add0_step, add1_step, add2_step, scale, slope,
    times_in, x_step, taps, stride, dilation, padding,
    OUTPUTS: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    SNAKE_TOO: tl.constexpr, INPUTS: tl.constexpr, WHOLE: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PARTS: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    """One tile [ROWS, COLUMNS] of the result [B · T', O], or one part of its sums."""
    across: tl.constexpr = (OUTPUTS + COLUMNS - 1) // COLUMNS
    row = tl.program_id(0) // across * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % across * COLUMNS + tl.arange(0, COLUMNS)
    batch, time = (row // times_out).to(tl.int64), row % times_out
    first = time * stride - padding  # the input under the first tap
    x_rows = x_at + (batch * x_step + first) * INPUTS
    weights = weight_at + column * (taps * INPUTS)
    after_previous(OVERLAP)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    steps = (taps * INPUTS + DEPTH - 1) // DEPTH
    begin, end = 0, steps
    if PARTS > 1:
        each = (steps + PARTS - 1) // PARTS
        begin = tl.program_id(1) * each
        end = tl.minimum(begin + each, steps)
    for step in range(begin, end):
        # Column k is channel k % INPUTS of tap k // INPUTS. With dilation 1 the taps lie side by
        # side, as the columns do; otherwise each tap is further away by this much. No remainder
        # is computed: the compiler must see that neighbouring columns are neighbours in memory.
        k = step * DEPTH + tl.arange(0, DEPTH)
        if WHOLE:  # the whole depth of a tile belongs to one tap
            tap = step * DEPTH // INPUTS
            moment = first + tap * dilation
            there = ((moment >= 0) & (moment < times_in) & (row < rows))[:, None]
            inside = (column < OUTPUTS)[None, :]
        else:
            tap = k // INPUTS
            moment = first[:, None] + (tap * dilation)[None, :]
            deep = tap < taps
            there = (moment >= 0) & (moment < times_in) & (row < rows)[:, None] & deep[None, :]
            inside = (column < OUTPUTS)[None, :] & deep[:, None]
        offset = (k + tap * (dilation - 1) * INPUTS)[None, :]
        left = tl.load(x_rows[:, None] + offset, there, other=0)
        right = tl.load(weights[None, :] + k[:, None], inside, other=0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    if PARTS > 1:
        inside = (row < rows)[:, None] & (column < OUTPUTS)[None, :]
        part = tl.program_id(1).to(tl.int64) * rows + row
        tl.store(sums_at + part[:, None] * OUTPUTS + column[None, :], total, inside)
    else:
        _finish(total, row, column,
                bias_at, add0_at, add1_at, add2_at, alpha_at, y_at, bent_at,
                rows, times_out, addends, add0_step, add1_step, add2_step, scale, slope,
                OUTPUTS, BIAS, ACTIVATION, SNAKE_TOO)  # fmt: skip


@triton.jit(do_not_specialize=_COUNTS)
def _sum_kernel(  # type: ignore[no-untyped-def]
    sums_at,
    bias_at, add0_at, add1_at, add2_at, alpha_at, y_at, bent_at,
    rows, times_out, addends, add0_step, add1_step, add2_step, scale, slope,
    OUTPUTS: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    SNAKE_TOO: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    """Sums the split-K parts of a tile, always in the same order."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < OUTPUTS)[None, :]
    after_previous(OVERLAP)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for part in tl.static_range(PARTS):
        place = (part * rows + row).to(tl.int64)[:, None] * OUTPUTS + column[None, :]
        total += tl.load(sums_at + place, inside, other=0)
    _finish(total, row, column,
            bias_at, add0_at, add1_at, add2_at, alpha_at, y_at, bent_at,
            rows, times_out, addends, add0_step, add1_step, add2_step, scale, slope,
            OUTPUTS, BIAS, ACTIVATION, SNAKE_TOO)  # fmt: skip


@triton.jit
def _finish(  # type: ignore[no-untyped-def]
    total, row, column,
    bias_at, add0_at, add1_at, add2_at, alpha_at, y_at, bent_at,
    rows, times_out, addends, add0_step, add1_step, add2_step, scale, slope,
    OUTPUTS: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    SNAKE_TOO: tl.constexpr,
):  # fmt: skip
    """Bias, sums and activation of a tile, then to memory."""
    batch, time = (row // times_out).to(tl.int64), row % times_out
    inside = (row < rows)[:, None] & (column < OUTPUTS)[None, :]
    if BIAS:
        total += tl.load(bias_at + column, column < OUTPUTS, other=0).to(tl.float32)[None, :]
    across = column[None, :]
    # The number of addends is no constexpr: that would compile each kernel several times, and a
    # masked load costs nothing.
    count = row * 0 + addends
    place = ((batch * add0_step + time) * OUTPUTS)[:, None] + across
    total += tl.load(add0_at + place, inside & (count > 0)[:, None], other=0).to(tl.float32)
    place = ((batch * add1_step + time) * OUTPUTS)[:, None] + across
    total += tl.load(add1_at + place, inside & (count > 1)[:, None], other=0).to(tl.float32)
    place = ((batch * add2_step + time) * OUTPUTS)[:, None] + across
    total += tl.load(add2_at + place, inside & (count > 2)[:, None], other=0).to(tl.float32)
    total *= scale
    if ACTIVATION == "gelu":
        total = 0.5 * total * (1 + tl.erf(total * 0.7071067811865476))
    elif ACTIVATION == "elu":
        total = tl.where(total > 0, total, tl.exp(total) - 1)
    elif ACTIVATION == "leaky":
        total = tl.where(total > 0, total, total * slope)
    elif ACTIVATION == "snake":
        alpha = tl.load(alpha_at + column, column < OUTPUTS, other=1).to(tl.float32)[None, :]
        total = bend(total, alpha)
    place = row.to(tl.int64)[:, None] * OUTPUTS + across
    tl.store(y_at + place, total.to(y_at.dtype.element_ty), inside)
    if SNAKE_TOO:
        alpha = tl.load(alpha_at + column, column < OUTPUTS, other=1).to(tl.float32)[None, :]
        tl.store(bent_at + place, bend(total, alpha).to(bent_at.dtype.element_ty), inside)
