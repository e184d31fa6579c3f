"""The upsampling conformer against golden outputs and its formulas in double precision."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from mosslive.codec.conformer import ConformerDims, ConformerLayer, position_table, rotate
from mosslive.codec.flow_past import Whole
from mosslive.errors import MossliveError
from tests.codec.flow_models import CODES, GOLDEN_CHUNK, error, golden, hidden, small_flow

LIMIT = 1e-5  # golden README


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def encoding(difference: int, width: int) -> Tensor:
    """The position encoding pe(r), for any sign of r."""
    pairs = [(math.sin(difference * w), math.cos(difference * w)) for w in frequencies(width)]
    return torch.tensor(pairs, dtype=torch.float64).flatten()


def frequencies(width: int) -> list[float]:
    return [10000 ** (-m / width) for m in range(0, width, 2)]


@pytest.mark.parametrize(
    ("name", "chunk", "finalize"),
    [
        ("encoder_full", None, True),
        ("encoder_chunk_final", GOLDEN_CHUNK, True),
        ("encoder_chunk_lookahead", GOLDEN_CHUNK, False),
    ],
)
def test_golden_hidden_frames(name: str, chunk: int | None, finalize: bool) -> None:
    """The conformer equals the reference: full attention, chunk mask, look-ahead context."""
    model = golden()
    wanted = model.io[name]
    tokens = torch.cat((model.io["prompt_codes"], model.io["codes"]))
    tokens = tokens[: len(wanted) // 4 + (0 if finalize else 3)]
    assert error(hidden(model.flow, tokens, chunk, finalize), wanted) < LIMIT


def test_turned_queries_see_differences() -> None:
    """t · table[j] = query · pe(i - j): for keys before and behind, at the far end of a stream."""
    width, length = 20, 15000
    table = position_table(length, width)
    for i, j in [(0, 0), (3, 11), (11, 3), (14999, 0), (14999, 14990), (7000, 14999)]:
        query = random(1, 2, 1, width, seed=i + j)
        scores = rotate(query, table[None, [i]].double()) @ table[j].double()
        wanted = query @ encoding(i - j, width)
        torch.testing.assert_close(scores, wanted, rtol=0, atol=1e-5)


def test_layer_formula_with_its_tiny_eps() -> None:
    """A layer equals its formula; the input is so small that a norm eps of 1e-5 would show."""
    dims = ConformerDims(width=12, heads=3, ffn=7, layers=1, up_layers=1)
    layer = ConformerLayer(dims).double().requires_grad_(False)
    for seed, parameter in enumerate(layer.parameters()):
        parameter.data = random(*parameter.shape, seed=seed)
    length, x = 6, 1e-4 * random(6, 12, seed=99)
    table = position_table(length, 12).double()
    past = Whole(length, None, x, table)
    found = layer(x[None], table[past.positions], past)[0]

    def norm(y: Tensor, by: torch.nn.LayerNorm) -> Tensor:
        spread = y.var(1, keepdim=True, unbiased=False)
        return (y - y.mean(1, keepdim=True)) / (spread + 1e-12).sqrt() * by.weight + by.bias

    attn, y = layer.self_attn, norm(x, layer.norm_mha)
    heads = []
    for h in range(3):
        part = slice(4 * h, 4 * h + 4)
        q, k, v = (
            y @ linear.weight[part].T + linear.bias[part]
            for linear in (attn.linear_q, attn.linear_k, attn.linear_v)
        )
        scores = torch.zeros(length, length, dtype=torch.float64)
        for i in range(length):
            for j in range(length):
                place = attn.linear_pos.weight[part] @ encoding(i - j, 12)
                content = (q[i] + attn.pos_bias_u[h]) @ k[j]
                scores[i, j] = (content + (q[i] + attn.pos_bias_v[h]) @ place) / 2
        heads.append(scores.softmax(1) @ v)
    wanted = x + torch.cat(heads, 1) @ attn.linear_out.weight.T + attn.linear_out.bias
    inner = norm(wanted, layer.norm_ff) @ layer.feed_forward.w_1.weight.T
    inner = F.silu(inner + layer.feed_forward.w_1.bias)
    wanted = wanted + inner @ layer.feed_forward.w_2.weight.T + layer.feed_forward.w_2.bias
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)  # the table is float32


@settings(derandomize=True, deadline=None, max_examples=25)
@given(chunk=st.integers(1, 6), count=st.integers(1, 4), more=st.integers(0, 9), data=st.data())
def test_later_tokens_do_not_change_whole_chunks(
    chunk: int, count: int, more: int, data: st.DataObject
) -> None:
    """Frames of whole chunks depend on tokens up to three after them, and on no later one."""
    flow, border = small_flow(), chunk * count
    tokens = torch.randint(CODES, (border + 3 + more,), generator=torch.Generator().manual_seed(1))
    kept = hidden(flow, tokens[: border + 3], chunk, finalize=False)
    if more:
        longer = hidden(flow, tokens, chunk, finalize=False)[: 4 * border]
        torch.testing.assert_close(longer, kept, rtol=0, atol=1e-5)
    seen = data.draw(st.integers(border - 1, border + 2))
    tokens[seen] = (tokens[seen] + 1) % CODES
    changed = hidden(flow, tokens[: border + 3], chunk, finalize=False)
    assert not torch.allclose(changed[-4:], kept[-4:], atol=1e-4), "the look-ahead is not used"


def test_end_of_stream_is_not_a_token() -> None:
    """At the end three zero vectors follow `embed`, not three embedded tokens."""
    flow, tokens = small_flow(), torch.arange(9)
    ended = hidden(flow, tokens, 3, finalize=True)
    for code in (0, 1):
        longer = torch.cat((tokens, torch.full((3,), code)))
        assert error(hidden(flow, longer, 3, finalize=False)[-4:], ended[-4:]) > 1e-2


def test_only_differences_of_positions_enter() -> None:
    """Scores depend on position differences alone, so cached keys stay valid."""
    flow = small_flow()
    layer = copy.deepcopy(flow.encoder.up_encoders[0])
    x = random(1, 6, 12).float()
    results = []
    for start in (0, 9000):
        table = flow.encoder.table[start : start + 6]
        results.append(layer(x, table[None], Whole(6, None, x, table)))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-4)


def test_layers_that_are_not_there() -> None:
    """A checkpoint without a stack is refused with the name that was looked for."""
    weights = golden().weights
    some = {name: w for name, w in weights.items() if not name.startswith("encoder.up_encoders")}
    with pytest.raises(MossliveError, match=r"encoder\.up_encoders\.0"):
        ConformerDims.from_tensors(some)
    with pytest.raises(MossliveError, match=r"encoder\.after_norm\.weight is absent"):
        ConformerDims.from_tensors({})
