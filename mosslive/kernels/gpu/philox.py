"""The random numbers of `mosslive.kernels.philox` inside a kernel, bit for bit the same."""

import triton
import triton.language as tl


@triton.jit
def uniform(seed, step, channel):  # type: ignore[no-untyped-def]
    """int64 seed (the bits of an unsigned number), int64 step → float64 in [0, 1)."""
    # Words are kept in 64 bits, so that a product keeps its upper half.
    low: tl.constexpr = 0xFFFFFFFF
    k0 = seed.to(tl.uint64) & low
    k1 = seed.to(tl.uint64) >> 32
    c0 = step.to(tl.uint64) & low
    c1 = c0 * 0 + channel
    c2 = c0 * 0
    c3 = c0 * 0
    for _ in tl.static_range(10):
        p0 = c0 * 0xD2511F53
        p1 = c2 * 0xCD9E8D57
        c0 = (p1 >> 32) ^ c1 ^ k0
        c1 = p1 & low
        c2 = (p0 >> 32) ^ c3 ^ k1
        c3 = p0 & low
        k0 = (k0 + 0x9E3779B9) & low
        k1 = (k1 + 0xBB67AE85) & low
    return (c0 >> 8).to(tl.float64) * 5.9604644775390625e-08  # 2⁻²⁴
