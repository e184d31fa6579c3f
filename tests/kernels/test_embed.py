"""The embedding kernel selects the row its definition selects."""

import pytest
import torch

from mosslive.kernels import embed, gpu

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("width", [16, 1100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernel_equals_the_definition(width: int, dtype: torch.dtype) -> None:
    """The kernel returns the definition's vectors, and never reads the other table."""
    generator = torch.Generator().manual_seed(1)
    texts, audios = (torch.randn(n, width, generator=generator).to(DEVICE, dtype) for n in (7, 5))
    text = torch.tensor([3, 0, 3, 6], device=DEVICE)
    audio = torch.tensor([4, 1, 0, 2], device=DEVICE)
    audios[1], texts[3] = float("nan"), float("nan")  # of rows that read the other table
    expected = embed(text, audio, texts, audios, 3)
    assert torch.isfinite(expected).all()
    assert torch.equal(gpu.embed(text, audio, texts, audios, 3), expected)
