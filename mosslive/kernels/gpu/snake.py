"""Triton version of `kernels.snake`: one pass, and no upsampled signal in memory.

Each lane computes GROUP neighbouring samples of one channel, so that the upsampled samples between
them are computed once. Lanes run over channels first, which are adjacent. Invariant: float32
inside, whatever the dtype of input and output; sample t reads samples t-5 .. t+5.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.libdevice import fast_sinf

from mosslive.kernels.conv1d import are_channels_together
from mosslive.kernels.gpu.overlap import after_previous, overlap

_TAPS = 12
_LANES = 256
_PLAIN_LANES = 1024


def anti_aliased_snake(
    x: Tensor,
    alpha: Tensor,
    beta: Tensor,
    up_filter: Tensor,
    down_filter: Tensor,
    *,
    log_scale: bool,
) -> Tensor:
    """x [B, C, T] → [B, C, T], as the definition; channels adjacent."""
    batch, channels, times = x.shape
    if not are_channels_together(x):
        raise ValueError(f"strides {x.stride()}: channels must be adjacent")
    for p in (alpha, beta):
        if p.shape != (channels,) or not p.is_contiguous():
            raise ValueError(f"alpha and beta must be [{channels}], contiguous")
    for f in (up_filter, down_filter):
        if f.numel() != _TAPS or not f.is_contiguous():
            raise ValueError(f"filters have {_TAPS} taps, contiguous")
    y = x.new_empty(batch, times, channels).transpose(1, 2)
    # Long groups recompute less, short ones keep more of the device busy.
    fast = x.is_cuda and x.dtype != torch.float32
    group = 4 if y.numel() < 1 << 20 else 16 if fast and y.numel() > 1 << 22 else 8
    lanes = triton.cdiv(times, group) * channels
    _kernel[(triton.cdiv(lanes, _LANES), batch)](
        x,
        alpha,
        beta,
        up_filter,
        down_filter,
        y,
        times,
        x.stride(0) // channels,
        CHANNELS=channels,
        LOG_SCALE=log_scale,
        GROUP=group,
        FAST=fast,
        LANES=_LANES,
        num_warps=4,
        **overlap(x),
    )
    return y


@triton.jit
def sine_squared(x):  # type: ignore[no-untyped-def]
    """sin²(x) of float32 to its own rounding, for |x| up to some ten thousand: its period is π, so
    what is left after whole periods lies within ±π/2, where a polynomial does."""
    periods = tl.floor(x * 0.3183098861837907 + 0.5)
    # π in two parts: the first product and difference are exact in a fused operation.
    rest = tl.fma(periods, -3.1415927410125732, x)
    rest = tl.fma(periods, 8.742277657347586e-08, rest)
    square = rest * rest
    sine = tl.fma(square, -2.3889859e-08, 2.7525562e-06)
    sine = tl.fma(square, sine, -1.98408743e-04)
    sine = tl.fma(square, sine, 8.33333097e-03)
    sine = tl.fma(square, sine, -1.66666667e-01)
    sine = tl.fma(square * rest, sine, rest)
    return sine * sine


@triton.jit
def bend(x, alpha):  # type: ignore[no-untyped-def]
    """The plain snake in float32."""
    return x + sine_squared(alpha * x) / (alpha + 1e-9)


def snake(x: Tensor, alpha: Tensor) -> Tensor:
    """x [B, C, T], channels adjacent, alpha [C] → [B, C, T], as `kernels.conv1d.snake`."""
    batch, channels, times = x.shape
    if not are_channels_together(x):
        raise ValueError(f"strides {x.stride()}: channels must be adjacent")
    if alpha.shape != (channels,) or not alpha.is_contiguous():
        raise ValueError(f"alpha must be [{channels}], contiguous")
    y = x.new_empty(batch, times, channels).transpose(1, 2)
    grid = (triton.cdiv(times * channels, _PLAIN_LANES), batch)
    _plain_kernel[grid](
        x, alpha, y, times, x.stride(0) // channels,
        CHANNELS=channels, LANES=_PLAIN_LANES, num_warps=4, **overlap(x),
    )  # fmt: skip
    return y


@triton.jit(do_not_specialize=("times", "x_step"))
def _plain_kernel(  # type: ignore[no-untyped-def]
    x_at, alpha_at, y_at, times, x_step,
    CHANNELS: tl.constexpr, LANES: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    inside = lane < times * CHANNELS
    batch = tl.program_id(1).to(tl.int64)
    alpha = tl.load(alpha_at + lane % CHANNELS).to(tl.float32)
    after_previous(OVERLAP)
    x = tl.load(x_at + batch * x_step * CHANNELS + lane, inside, other=0).to(tl.float32)
    place = y_at + batch * times * CHANNELS + lane
    tl.store(place, bend(x, alpha).to(y_at.dtype.element_ty), inside)


@triton.jit(do_not_specialize=("times", "x_step"))
def _kernel(  # type: ignore[no-untyped-def]
    x_at, alpha_at, beta_at, up_at, down_at, y_at, times, x_step,
    CHANNELS: tl.constexpr, LOG_SCALE: tl.constexpr, GROUP: tl.constexpr, FAST: tl.constexpr,
    LANES: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    channel, begin = lane % CHANNELS, lane // CHANNELS * GROUP
    alpha = tl.load(alpha_at + channel).to(tl.float32)
    beta = tl.load(beta_at + channel).to(tl.float32)
    if LOG_SCALE:
        alpha, beta = tl.exp(alpha), tl.exp(beta)
    share = 1 / (beta + 1e-9)
    batch = tl.program_id(1).to(tl.int64)
    x_at += batch * x_step * CHANNELS + channel
    y_at += batch * times * CHANNELS + channel
    after_previous(OVERLAP)
    earliest = tl.program_id(0) * LANES // CHANNELS * GROUP
    latest = (tl.program_id(0) * LANES + LANES - 1) // CHANNELS * GROUP + GROUP - 1
    if (earliest >= 5) & (latest + 5 < times):  # far from the ends: most programs
        _samples(x_at, up_at, down_at, y_at, alpha, share, begin, times,
                 CHANNELS, GROUP, FAST, LANES, False)  # fmt: skip
    else:
        _samples(x_at, up_at, down_at, y_at, alpha, share, begin, times,
                 CHANNELS, GROUP, FAST, LANES, True)  # fmt: skip


@triton.jit
def _samples(  # type: ignore[no-untyped-def]
    x_at, up_at, down_at, y_at, alpha, share, begin, times,
    CHANNELS: tl.constexpr, GROUP: tl.constexpr, FAST: tl.constexpr, LANES: tl.constexpr,
    ENDS: tl.constexpr,
):  # fmt: skip
    """Samples begin .. begin+GROUP-1; with ENDS some of what they see may lie beyond the ends."""
    # Inputs begin-5 .. begin+GROUP+4; the first and last value go on beyond the ends.
    xs = ()
    for k in tl.static_range(GROUP + 10):
        time = begin + (k - 5)
        if ENDS:
            time = tl.minimum(tl.maximum(time, 0), times - 1)
        xs = xs + (tl.load(x_at + time * CHANNELS).to(tl.float32),)  # type: ignore
    # Bent samples 2·begin-5 .. 2·begin+2·GROUP+4 of the doubled rate.
    bents = ()
    for n in tl.static_range(2 * GROUP + 10):
        total = tl.zeros((LANES,), tl.float32)
        # Sample 2·begin+n-5 meets input begin+k-5 with tap (n-5)+5-2·(k-5) = n+10-2k.
        for tap in tl.static_range(n % 2, 12, 2):
            total = tl.fma(xs[(n + 10 - tap) // 2], 2 * tl.load(up_at + tap).to(tl.float32), total)
        if FAST:
            sine = fast_sinf(alpha * total)
            bents = bents + (tl.fma(sine * sine, share, total),)  # type: ignore
        else:
            bents = bents + (tl.fma(sine_squared(alpha * total), share, total),)  # type: ignore
    if ENDS:  # beyond the ends of the doubled signal its own first and last value go on
        fixed = (bents[5],)  # type: ignore
        for n in tl.static_range(4, -1, -1):
            before = 2 * begin + (n - 5) < 0
            fixed = (tl.where(before, fixed[0], bents[n]),) + fixed  # type: ignore
        for n in tl.static_range(6, 2 * GROUP + 10):
            beyond = 2 * begin + (n - 5) >= 2 * times
            fixed = fixed + (tl.where(beyond, fixed[n - 1], bents[n]),)  # type: ignore
        bents = fixed  # type: ignore
    for r in tl.static_range(GROUP):
        total = tl.zeros((LANES,), tl.float32)
        for tap in tl.static_range(12):
            total = tl.fma(bents[2 * r + tap], tl.load(down_at + tap).to(tl.float32), total)
        place = y_at + (begin + r) * CHANNELS
        if ENDS:
            tl.store(place, total.to(y_at.dtype.element_ty), begin + r < times)
        else:
            tl.store(place, total.to(y_at.dtype.element_ty))
