"""Triton version of `mosslive.kernels.embed`: one launch, and it reads only the rows it needs.

The tables may be in pinned host memory, for GPUs without enough memory: the kernel then reads a few
kilobytes per row over the bus.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit
def _embed(text, audio, text_table, audio_table, result, pad, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    written, spoken = tl.load(text + row), tl.load(audio + row)
    # Reads one table's row completely and nothing of the other's.
    audio_width = tl.where(written == pad, width, 0)
    text_width = width - audio_width
    from_audio = tl.load(
        audio_table + spoken * width + columns, mask=columns < audio_width, other=0.0
    )
    from_text = tl.load(
        text_table + written * width + columns, mask=columns < text_width, other=0.0
    )
    # One of the two is zeros, so the sum is exactly the other.
    tl.store(result + row * width + columns, from_audio + from_text, mask=columns < width)


def embed(text: Tensor, audio: Tensor, text_table: Tensor, audio_table: Tensor, pad: int) -> Tensor:
    width = text_table.shape[1]
    for ids in (text, audio):
        assert ids.dtype == torch.int64, "ids must be int64"
        assert ids.is_contiguous(), "ids must be contiguous"
    for table in (text_table, audio_table):
        assert table.is_contiguous(), "tables must be contiguous"
        assert table.shape[1] == width, "tables must be equally wide"
    result = torch.empty(len(text), width, device=text.device, dtype=text_table.dtype)
    grid = (len(text), triton.cdiv(width, _BLOCK))
    _embed[grid](text, audio, text_table, audio_table, result, pad, width, BLOCK=_BLOCK)
    return result
