"""A 64-bit sum over a tensor's bytes, cheap enough to check every weight on the device at loading.

Each 64-bit word is mixed with its place by a bijection, and the results are added modulo 2⁶⁴. So
any change within one word, a flipped bit above all, always shows; words that changed places or
several changed ones go unseen once in 2⁶⁴. It guards against broken disks and copies, not against
people: the manifest's SHA-256 of every file does that. The same on every device, bit for bit.
"""

import torch
from torch import Tensor

_PLACE = -0x61C8864680B583EB  # odd constants of no pattern; int64, so written as signed
_SPREAD = -0x40A7B892E31B1A47
_LENGTH = 0x94D049BB133111EB - (1 << 64)
_LOW_WORD = 0xFFFFFFFF
_BLOCK_WORDS = {"cpu": 1 << 17, "cuda": 1 << 23}  # temporaries: in a CPU's cache; 64 MiB on a GPU


def checksum(tensor: Tensor) -> Tensor:
    """Any contiguous tensor → int64 scalar on its device; nothing waits for the device."""
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
    """Each step can be undone: two words at one place never give the same. `places` is consumed."""
    places.bitwise_xor_(words).mul_(_SPREAD)
    # PyTorch shifts in copies of the sign; the mask makes it the shift that can be undone.
    return places.bitwise_xor_((places >> 32).bitwise_and_(_LOW_WORD))


def _wrap(value: int) -> int:
    """To int64, as the device's own arithmetic wraps."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
