"""The estimator against golden outputs, its block formula, and the properties of its masks."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from mosslive.codec.estimator import Estimator, EstimatorDims, time_embedding
from mosslive.codec.flow import Flow
from mosslive.codec.flow_past import Whole
from mosslive.codec.flow_solver import FlowSettings
from mosslive.errors import MossliveError
from tests.codec.flow_models import (
    GOLDEN_CHUNK,
    GOLDEN_CODES,
    GOLDEN_HEAD_DIM,
    error,
    golden,
    small_flow,
)

LIMIT = 5e-5  # golden README


def golden_input() -> Tensor:
    io = golden().io
    speaker = io["est_spks"][:, None].expand(-1, io["est_x"].shape[1])
    return torch.cat((io["est_x"], io["est_mu"], speaker, io["est_cond"]))[None]


@pytest.mark.parametrize(
    ("name", "chunk"), [("est_out_full", None), ("est_out_chunk", 4 * GOLDEN_CHUNK)]
)
def test_golden_velocity(name: str, chunk: int | None) -> None:
    """The estimator equals the reference, for a length that is no multiple of the chunk."""
    model, x = golden(), golden_input()
    found = model.flow.estimator(x, model.io["est_t"], Whole(x.shape[2], chunk, x))[0]
    assert error(found, model.io[name]) < LIMIT


def test_head_dim_is_not_guessed() -> None:
    """The head width is in no tensor: another one loads too and gives another result."""
    model, x = golden(), golden_input()
    limit = FlowSettings(code_limit=GOLDEN_CODES)
    other = Flow.from_tensors(model.weights, limit, GOLDEN_HEAD_DIM // 2)
    found = other.estimator(x, model.io["est_t"], Whole(x.shape[2], None, x))[0]
    assert error(found, model.io["est_out_full"]) > 100 * LIMIT
    with pytest.raises(MossliveError, match="32 wide, which is not a multiple of head_dim 64"):
        EstimatorDims.from_tensors(model.weights, 64)


def test_time_embedding_formula() -> None:
    """sin, then cos, of 1000 t · exp(-ln(10000) n / (half - 1)): half - 1, not half."""
    for t in (0.0, 0.0123116374, 0.7):
        found = time_embedding(torch.tensor([t], dtype=torch.float32), 12)[0]
        exact = float(torch.tensor(t, dtype=torch.float32))
        angles = [1000 * exact * math.exp(-math.log(10000) * n / 5) for n in range(6)]
        wanted = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
        torch.testing.assert_close(found, torch.tensor(wanted), rtol=0, atol=1e-4)


def test_transformer_block_formula() -> None:
    """Pre-norm attention and GELU (erf) feed-forward, norm eps 1e-5: the input is small
    enough to tell it from 1e-6."""
    dims = EstimatorDims(3, 12, 8, 9, 12, 4, 7, 1, 1)
    block = Estimator(dims).double().requires_grad_(False).mid_blocks[0][1][0]  # type: ignore[index]
    generator = torch.Generator().manual_seed(0)
    for parameter in block.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    x = 1e-3 * torch.randn(1, 5, 8, generator=generator, dtype=torch.float64)

    def norm(y: Tensor, by: torch.nn.LayerNorm) -> Tensor:
        spread = y.var(-1, keepdim=True, unbiased=False)
        return (y - y.mean(-1, keepdim=True)) / (spread + 1e-5).sqrt() * by.weight + by.bias

    weights = dict(block.named_parameters())
    y = norm(x, block.norm1)[0]
    q, k, v = (y @ weights[f"attn1.to_{name}.weight"].T for name in "qkv")
    heads = []
    for h in range(3):
        part = slice(4 * h, 4 * h + 4)
        heads.append((q[:, part] @ k[:, part].T / 2).softmax(1) @ v[:, part])
    out = torch.cat(heads, 1) @ weights["attn1.to_out.0.weight"].T
    wanted = x + out + weights["attn1.to_out.0.bias"]
    inner = F.linear(
        norm(wanted, block.norm3), weights["ff.net.0.proj.weight"], weights["ff.net.0.proj.bias"]
    )
    inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
    wanted = wanted + F.linear(inner, weights["ff.net.2.weight"], weights["ff.net.2.bias"])
    torch.testing.assert_close(block(x, Whole(5, None, x)), wanted, rtol=1e-9, atol=1e-9)


@settings(derandomize=True, deadline=None, max_examples=25)
@given(chunk=st.integers(1, 9), count=st.integers(1, 4), more=st.integers(1, 11))
def test_later_frames_do_not_change_whole_chunks(chunk: int, count: int, more: int) -> None:
    """With the chunk mask everything is chunk-causal, and a chunk does see itself."""
    estimator, border = small_flow().estimator, chunk * count
    x = torch.randn(2, 12, border + more, generator=torch.Generator().manual_seed(chunk))
    t = torch.tensor([0.3])
    whole = estimator(x, t, Whole(border + more, chunk, x))[:, :, :border]
    alone = estimator(x[:, :, :border], t, Whole(border, chunk, x))
    torch.testing.assert_close(whole, alone, rtol=0, atol=1e-5)
    x[:, :, border - 1] += 1
    changed = estimator(x[:, :, :border], t, Whole(border, chunk, x))
    assert not torch.allclose(changed[:, :, border - chunk], alone[:, :, border - chunk])


def test_rows_do_not_meet() -> None:
    """The guided and the unguided half share a batch and nothing else."""
    estimator = small_flow().estimator
    x = torch.randn(3, 12, 10, generator=torch.Generator().manual_seed(5))
    t, past = torch.tensor([0.5]), Whole(10, None, x)
    together = estimator(x, t, past)
    for row in range(3):
        torch.testing.assert_close(estimator(x[row : row + 1], t, past)[0], together[row])
