"""Triton twin of `mosslive.kernels.embed`: one launch, and it reads only the rows it needs.

The tables may lie in pinned host memory, for cards that lack room: the kernel then reads over the
bus, a few kilobytes per row.
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
    # How much of each table's row is read: all of the one and nothing of the other.
    audio_width = tl.where(written == pad, width, 0)
    text_width = width - audio_width
    from_audio = tl.load(
        audio_table + spoken * width + columns, mask=columns < audio_width, other=0.0
    )
    from_text = tl.load(
        text_table + written * width + columns, mask=columns < text_width, other=0.0
    )
    # One of the two is zeros: the sum is the other, exactly.
    tl.store(result + row * width + columns, from_audio + from_text, mask=columns < width)


def embed(text: Tensor, audio: Tensor, text_table: Tensor, audio_table: Tensor, pad: int) -> Tensor:
    width = text_table.shape[1]
    for ids in (text, audio):
        assert ids.dtype == torch.int64, "ids are int64"
        assert ids.is_contiguous(), "ids lie side by side"
    for table in (text_table, audio_table):
        assert table.is_contiguous(), "tables are whole"
        assert table.shape[1] == width, "tables are equally wide"
    result = torch.empty(len(text), width, device=text.device, dtype=text_table.dtype)
    grid = (len(text), triton.cdiv(width, _BLOCK))
    _embed[grid](text, audio, text_table, audio_table, result, pad, width, BLOCK=_BLOCK)
    return result
