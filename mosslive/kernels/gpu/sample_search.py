"""Samples one row for any top_k and top_p: a search over the values, without sorting them.

Ids stand in the definition's order: largest value first, lowest id first among equals. Each setting
asks for a place in that order: where the count reaches top_k, where the probability reaches top_p,
where it passes the random number. Each place is found by narrowing a window of values to one value,
then by counting among its equals. Exact for every setting, and slower than the other two ways,
which `sample_batch` tries first.
"""

import triton
import triton.language as tl

_SPOTS = tl.constexpr(32)  # bounds that one pass over the row tries


@triton.jit
def scaled(logits, seen, column, inside, penalty, temperature, penalised: tl.constexpr):  # type: ignore[no-untyped-def]
    """Logits at `column` after penalty and temperature, float32; -inf outside."""
    x = tl.load(logits + column, mask=inside, other=float("-inf")).to(tl.float32)
    if penalised:  # noqa: SIM102 (a constexpr)
        if penalty != 1:
            known = tl.load(seen + column, mask=inside, other=0) != 0
            x = tl.where(known, tl.where(x < 0, x * penalty, tl.div_rn(x, penalty)), x)
    return tl.div_rn(x, temperature)


@triton.jit
def history_of(seen, seen_rows, row, size, indexed: tl.constexpr):  # type: ignore[no-untyped-def]
    """The row of `seen` that belongs to a row of logits."""
    seen_row = row
    if indexed:
        seen_row = tl.load(seen_rows + row)
    return seen + seen_row * size


@triton.jit
def order(value):  # type: ignore[no-untyped-def]
    """float32 → int32 that compares the same way; -0 equals 0."""
    bits = tl.where(value == 0, 0.0, value).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _value(key):  # type: ignore[no-untyped-def]
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def sample_by_search(  # type: ignore[no-untyped-def]
    logits,
    seen,
    legal,
    penalty,
    temperature,
    top,
    top_k,
    top_p,
    number,
    penalised: tl.constexpr,
    block: tl.constexpr,
):
    """`logits`, `seen`: the row; `top`: its largest value when scaled; `number` in [0, 1)."""
    spot = tl.arange(0, _SPOTS)
    lane = tl.arange(0, block)
    last_key: tl.constexpr = 2**31 - 1
    lowest = order(top * 0 - float("inf"))  # of the values kept so far
    kept = tl.cast(-1.0, tl.float64)  # their sum; negative: not known yet
    chosen = tl.cast(0, tl.int32)
    for phase in range(3):  # top-k, top-p, sampling
        counting = phase == 0
        wanted = (counting & (top_k > 0) & (top_k < legal)) | ((phase == 1) & (top_p < 1))
        if wanted | (phase == 2):
            low, high = lowest, order(top) + 1  # the window holds keys low .. high-1
            above = tl.cast(0.0, tl.float64)  # sum of everything over the window
            goal = tl.cast(top_k, tl.float64)
            turn = 0
            while (turn == 0) | (low + 1 < high):
                # First steps of one from the top, where probabilities are; then even ones.
                near = tl.maximum(order(top - spot.to(tl.float32)), low)
                near = tl.where(spot == _SPOTS - 1, low, near)
                span = (high.to(tl.int64) - low) * (spot + 1)  # up to 2³²·32
                even = high - (span + _SPOTS - 1) // _SPOTS
                bound = tl.where(turn == 0, near, even.to(tl.int32))
                sums = tl.zeros([block, _SPOTS], tl.float64)
                for first in range(0, legal, block):
                    column = first + lane
                    inside = column < legal
                    x = scaled(logits, seen, column, inside, penalty, temperature, penalised)
                    key = order(x)
                    inside = inside & (key >= low) & (key < high)
                    weight = tl.exp(x.to(tl.float64) - top.to(tl.float64))
                    weight = tl.where(inside, tl.where(counting, 1.0, weight), 0.0)
                    sums += tl.where(key[:, None] >= bound[None, :], weight[:, None], 0.0)
                sum_to = tl.sum(sums, axis=0)  # [spots], of the window down to each bound
                total = tl.max(sum_to, axis=0)
                if (turn == 0) & (phase > 0):
                    whole = tl.where(kept < 0, total, kept)
                    goal = whole * tl.where(phase == 1, top_p.to(tl.float64), number)
                passed = tl.where(phase == 2, above + sum_to > goal, above + sum_to >= goal)
                passed = passed | (sum_to >= total)  # where rounding ran out
                hit = tl.min(tl.where(passed, spot, _SPOTS - 1), axis=0)
                above += tl.sum(tl.where(spot == hit - 1, sum_to, 0.0), axis=0)
                low = tl.sum(tl.where(spot == hit, bound, 0), axis=0)
                high = tl.where(hit == 0, high, tl.sum(tl.where(spot == hit - 1, bound, 0), axis=0))
                # A window no wider than what it holds: bf16 values leave wide gaps.
                smallest = tl.full([block], last_key, tl.int32)
                largest = tl.full([block], -last_key, tl.int32)
                for first in range(0, legal, block):
                    column = first + lane
                    inside = column < legal
                    x = scaled(logits, seen, column, inside, penalty, temperature, penalised)
                    key = order(x)
                    inside = inside & (key >= low) & (key < high)
                    smallest = tl.minimum(smallest, tl.where(inside, key, last_key))
                    largest = tl.maximum(largest, tl.where(inside, key, -last_key))
                low, high = tl.min(smallest, axis=0), tl.max(largest, axis=0) + 1
                turn += 1
            lowest = low
            weight_each = tl.exp(_value(low).to(tl.float64) - top.to(tl.float64))
            equals = (goal - above) / weight_each  # how many of the last value it takes
            if phase == 1:
                kept = above + tl.maximum(tl.ceil(equals), 1.0) * weight_each
            if phase == 2:
                rank = tl.floor(equals).to(tl.int32)
                before = 0
                for first in range(0, legal, block):
                    column = first + lane
                    inside = column < legal
                    x = scaled(logits, seen, column, inside, penalty, temperature, penalised)
                    equal = (inside & (order(x) == low)).to(tl.int32)
                    place = before + tl.cumsum(equal, axis=0) - 1
                    # Up to the rank, not at it: the last equal if rounding ran out.
                    match = (equal != 0) & (place <= rank)
                    chosen = tl.maximum(chosen, tl.max(tl.where(match, column, 0), axis=0))
                    before += tl.sum(equal, axis=0)
    return chosen
