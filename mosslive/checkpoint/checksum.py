"""A 64-bit checksum of a tensor's bytes, fast enough to check every weight on the device at load.

A bijection mixes each 64-bit word with its position; the results are added modulo 2⁶⁴. Any change
within one word, such as a flipped bit, is always detected. Swapped words or several changed words
are missed with probability 2⁻⁶⁴. The checksum detects faulty disks and copies, not tampering; the
manifest's SHA-256 of every file does that. All devices give the same value.
"""

import torch
from torch import Tensor

_PLACE = -0x61C8864680B583EB  # arbitrary odd constants, written as signed int64
_SPREAD = -0x40A7B892E31B1A47
_LENGTH = 0x94D049BB133111EB - (1 << 64)
_LOW_WORD = 0xFFFFFFFF
_BLOCK_WORDS = {
    "cpu": 1 << 17,
    "cuda": 1 << 23,
}  # temporaries: a CPU's cache; 64 MiB on a GPU


def checksum(tensor: Tensor) -> Tensor:
    """Any contiguous tensor → int64 scalar on its device, without a device synchronisation."""
    raw = tensor.reshape(-1).view(torch.uint8)
    whole = raw.numel() // 8 * 8
    words = raw[:whole].view(torch.int64)
    total = torch.full((), _wrap(raw.numel() * _LENGTH), device=raw.device)
    step = _BLOCK_WORDS.get(raw.device.type, 1 << 20)
    places = torch.arange(min(step, len(words)), device=raw.device) * _PLACE
    for first in range(0, len(words), step):
        block = words[first : first + step]
        total += _mixed(block, places[: len(block)] + _wrap(first * _PLACE)).sum()
    if whole < raw.numel():
        last = torch.zeros(8, dtype=torch.uint8, device=raw.device)
        last[: raw.numel() - whole] = raw[whole:]
        place = torch.full((1,), _wrap(len(words) * _PLACE), device=raw.device)
        total += _mixed(last.view(torch.int64), place).sum()
    return total


def _mixed(words: Tensor, places: Tensor) -> Tensor:
    """Overwrites `places`. Invertible at each position: two words never mix to one value."""
    places.bitwise_xor_(words).mul_(_SPREAD)
    # PyTorch's >> is arithmetic; the mask makes the shift logical, hence invertible.
    return places.bitwise_xor_((places >> 32).bitwise_and_(_LOW_WORD))


def _wrap(value: int) -> int:
    """Wraps to int64, like the device's arithmetic."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
