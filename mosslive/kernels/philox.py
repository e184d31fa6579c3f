"""Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011).

A number depends on (seed, step, channel) alone, not on how many were used before or on what else
runs in the batch. So a request gets the same reply alone or batched, and unused numbers need not be
computed. The rule from a word to a float is exact in float32, on any device.
"""

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_MASK = 0xFFFFFFFF

Words = tuple[int, int, int, int]


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """Four 32-bit words from a 128-bit counter and a 64-bit key."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, step: int, channel: int) -> float:
    """In [0, 1), a multiple of 2⁻²⁴. `channel`: 0 text, 1 audio."""
    word = philox((step & _MASK, channel, 0, 0), (seed & _MASK, seed >> 32))[0]
    return (word >> 8) * 2.0**-24
