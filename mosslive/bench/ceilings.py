"""Measures the limits of the machine in the same run: bytes read and products per second.

The time of a memory-bound step is compared with the first, the time of a prefill with the second.
"""

from dataclasses import dataclass

import torch

from mosslive.bench.timing import summary, times_ms

_READ_BYTES = {"cuda": 8 << 30, "cpu": 64 << 20}  # far larger than the caches
_PRODUCT_SIZE = {"cuda": 8192, "cpu": 256}
# On a GPU some tenths of a second: an idle GPU takes that long to raise its clocks.
_REPEATS = {"cuda": 100, "cpu": 5}


@dataclass(frozen=True)
class Ceilings:
    read_bytes_per_s: float
    bf16_flops: float  # per second, of a large product of random values
    fp8_flops: float | None  # None where the device has no float8 products


def measure_ceilings(device: str) -> Ceilings:
    size = _PRODUCT_SIZE[device]
    left, right = (torch.randn(size, size, device=device).bfloat16() for _ in range(2))
    flops = 2e3 * size**3
    bf16 = flops / summary(times_ms(lambda: left @ right.T, device, _REPEATS[device])).median_ms
    fp8 = None
    if device == "cuda" and torch.cuda.get_device_capability() >= (8, 9):
        narrow = [side.to(torch.float8_e4m3fn) for side in (left, right)]
        one = torch.ones((), device=device)

        def product() -> object:
            return torch._scaled_mm(
                narrow[0], narrow[1].T, one, one, out_dtype=torch.bfloat16, use_fast_accum=True
            )

        fp8 = flops / summary(times_ms(product, device, _REPEATS[device])).median_ms
    return Ceilings(_read_bytes_per_s(device), bf16, fp8)


def _read_bytes_per_s(device: str) -> float:
    # Random values, because the values in memory can change its speed. A maximum costs almost no
    # compute.
    count = _READ_BYTES[device] // 4
    data = torch.randint(2**31 - 1, (count,), dtype=torch.int32, device=device)
    return (
        data.nbytes
        / summary(times_ms(lambda: data.amax(), device, _REPEATS[device])).median_ms
        * 1e3
    )
