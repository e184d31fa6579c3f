"""Folding weight norm: both spellings, plain tensors next to them, and files that do not add up."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import weight_norm as old_style
from torch.nn.utils.parametrizations import weight_norm as new_style

from mosslive.codec.weight_norm import fold_weight_norm
from mosslive.errors import MossliveError

G, V = "parametrizations.weight.original0", "parametrizations.weight.original1"


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("g_name", "v_name"), [(G, V), ("weight_g", "weight_v")], ids=["new", "old"]
)
@pytest.mark.parametrize("layer", ["", "conv_pre.", "ups.0.0."])
def test_formula(layer: str, g_name: str, v_name: str) -> None:
    """w = g · v / ‖v‖, the norm over all axes but the first, whatever the name of the layer."""
    g, v = random(4, 1, 1), random(4, 3, 5, seed=1)
    folded = fold_weight_norm({layer + g_name: g, layer + v_name: v})
    assert list(folded) == [f"{layer}weight"]
    for row in range(4):
        wanted = g[row].item() * v[row] / v[row].square().sum().sqrt()
        torch.testing.assert_close(folded[f"{layer}weight"][row], wanted)


@pytest.mark.parametrize("style", [new_style, old_style], ids=["new", "old"])
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.ConvTranspose1d])
@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch calls the old style deprecated
def test_torch_agrees(kind: type[nn.Conv1d | nn.ConvTranspose1d], style: object) -> None:
    """Names and axis are those that torch writes, also where the first axis is the input."""
    layer = kind(6, 4, 3)
    assert callable(style)
    normed = style(layer)
    with torch.no_grad():
        for parameter in normed.parameters():
            parameter.copy_(random(*parameter.shape, seed=parameter.numel()))
    x = random(2, 6, 9)
    plain = kind(6, 4, 3)
    plain.load_state_dict(fold_weight_norm(normed.state_dict()))
    torch.testing.assert_close(plain(x), normed(x))


def test_the_rest_is_left_alone() -> None:
    """Plain weights, biases and names that only look similar pass through as the same objects."""
    names = ["a.weight", "a.bias", "a.alpha", "b.my_weight_g", "c.weight_gain", "weight"]
    plain = {name: random(2, 2, seed=k) for k, name in enumerate(names)}
    folded = fold_weight_norm(plain | {f"d.{G}": random(2, 1), f"d.{V}": random(2, 3)})
    assert folded.keys() == plain.keys() | {"d.weight"}
    assert all(folded[name] is tensor for name, tensor in plain.items())
    assert fold_weight_norm(folded).keys() == folded.keys()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_type_is_kept(dtype: torch.dtype) -> None:
    """A folded weight has the type of the file; the quotient is rounded once, at the end."""
    g, v = random(3, 1).to(dtype), random(3, 50, seed=1).to(dtype)
    weight = fold_weight_norm({"a.weight_g": g, "a.weight_v": v})["a.weight"]
    exact = g.double() * v.double() / v.double().norm(dim=1, keepdim=True)
    assert weight.dtype == dtype
    torch.testing.assert_close(weight, exact.to(dtype), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({f"a.{V}": (2, 3)}, f"a.weight has no a.{G}"),
        ({f"a.{G}": (2, 1)}, f"a.weight has no a.{V}"),
        ({"a.weight_v": (2, 3)}, "has no a.weight_g"),
        ({"a.weight_g": (2, 1)}, "has no a.weight_v"),
        ({f"a.{G}": (2, 1), "a.weight_v": (2, 3)}, "both the old and the new style"),
        (
            {f"a.{G}": (2, 1), f"a.{V}": (2, 3), "b.weight_g": (2, 1), "b.weight_v": (2, 3)},
            "both the old and the new style",
        ),
        ({"a.weight_g": (2, 1), "a.weight_v": (2, 3), "a.weight": (2, 3)}, "given folded and as"),
        ({"a.weight_g": (3, 1), "a.weight_v": (2, 3)}, r"lengths \[3, 1\]"),
        ({"a.weight_g": (2, 1), "a.weight_v": (2, 3, 4)}, r"allowed: \[2, 1, 1\]"),
        ({"a.weight_g": (2,), "a.weight_v": (2,)}, "two axes or more"),
    ],
)
def test_what_is_not_determined_is_refused(shapes: dict[str, tuple[int, ...]], words: str) -> None:
    """A missing half, two spellings, or sizes that contradict each other: never a guess."""
    with pytest.raises(MossliveError, match=words):
        fold_weight_norm({name: random(*shape) for name, shape in shapes.items()})


def test_zero_direction_is_refused() -> None:
    """0/0 would put a NaN into the network, to be heard much later."""
    v = random(3, 4)
    v[1] = 0
    with pytest.raises(MossliveError, match="direction is zero"):
        fold_weight_norm({"a.weight_g": random(3, 1), "a.weight_v": v})
