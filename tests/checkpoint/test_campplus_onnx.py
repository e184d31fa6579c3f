"""The CAM++ graph against stored outputs of the published model, and against a plain PyTorch
reference at other lengths and widths."""

import math
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from mosslive.checkpoint import faults
from mosslive.checkpoint.campplus_onnx import (
    MIN_FRAMES,
    campplus_onnx,
    campplus_shapes,
    random_campplus,
)
from mosslive.errors import MossliveError

GOLDEN = Path(__file__).parents[1] / "golden" / "campplus.safetensors"
SETTINGS = settings(derandomize=True, deadline=None, max_examples=20)
Tensors = dict[str, Tensor]
Network = Callable[[Tensor], Tensor]


def runner(tensors: Tensors) -> Network:
    """[B, T, 80] → [B, 192] through onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        campplus_onnx(tensors), options, providers=["CPUExecutionProvider"]
    )
    return lambda x: torch.from_numpy(session.run(None, {"feature": x.numpy()})[0])


def torch_reference(w: Tensors, features: Tensor) -> Tensor:
    """The same network in PyTorch, written independently; computes the gate at every frame."""

    def norm(x: Tensor, name: str) -> Tensor:
        mean, var = w[f"{name}.running_mean"], w[f"{name}.running_var"]
        return F.batch_norm(x, mean, var, w.get(f"{name}.weight"), w.get(f"{name}.bias"))

    def conv(x: Tensor, name: str, stride: int = 1, pad: int = 0, dilation: int = 1) -> Tensor:
        weight, bias = w[f"{name}.weight"], w.get(f"{name}.bias")
        if weight.ndim == 3:
            return F.conv1d(x, weight, bias, stride, pad, dilation)
        return F.conv2d(x, weight, bias, (stride, 1), pad, dilation)

    def dense(x: Tensor, name: str, dilation: int) -> Tensor:
        x = conv(norm(x, f"{name}.nonlinear1.batchnorm").relu(), f"{name}.linear1")
        x = norm(x, f"{name}.nonlinear2.batchnorm").relu()
        pieces = torch.split(x, 100, dim=-1)
        means = [piece.mean(-1, keepdim=True).expand_as(piece) for piece in pieces]
        context = x.mean(-1, keepdim=True) + torch.cat(means, -1)
        gate = conv(conv(context, f"{name}.cam_layer.linear1").relu(), f"{name}.cam_layer.linear2")
        local = conv(x, f"{name}.cam_layer.linear_local", pad=dilation, dilation=dilation)
        return local * gate.sigmoid()

    x = norm(conv(features.mT[:, None], "head.conv1", pad=1), "head.bn1").relu()
    for stage in (1, 2):
        for block in (0, 1):
            name, stride = f"head.layer{stage}.{block}", 2 - block
            y = norm(conv(x, f"{name}.conv1", stride, 1), f"{name}.bn1").relu()
            y = norm(conv(y, f"{name}.conv2", 1, 1), f"{name}.bn2")
            if block == 0:
                x = norm(conv(x, f"{name}.shortcut.0", 2), f"{name}.shortcut.1")
            x = (x + y).relu()
    x = norm(conv(x, "head.conv2", 2, 1), "head.bn2").relu().flatten(1, 2)
    x = norm(conv(x, "xvector.tdnn.linear", 2, 2), "xvector.tdnn.nonlinear.batchnorm").relu()
    for number, layers, dilation in ((1, 12, 1), (2, 24, 2), (3, 16, 2)):
        for layer in range(1, layers + 1):
            new = dense(x, f"xvector.block{number}.tdnnd{layer}", dilation)
            x = torch.cat((x, new), 1)
        name = f"xvector.transit{number}"
        x = conv(norm(x, f"{name}.nonlinear.batchnorm").relu(), f"{name}.linear")
    x = norm(x, "xvector.out_nonlinear.batchnorm").relu()
    x = torch.cat((x.mean(-1), x.std(-1, correction=1)), 1)[..., None]
    return norm(conv(x, "xvector.dense.linear"), "xvector.dense.nonlinear.batchnorm")[..., 0]


def features(frames: int, seed: int = 0, batch: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * frames + seed)
    x = 3 * torch.randn(batch, frames, 80, generator=generator)
    return x - x.mean(1, keepdim=True)


def error(found: Tensor, wanted: Tensor) -> float:
    assert found.shape == wanted.shape
    return float((found - wanted).abs().max() / wanted.abs().max())


@pytest.fixture(scope="module")
def golden() -> Tensors:
    return load_file(GOLDEN)


@pytest.fixture(scope="module")
def weights(golden: Tensors) -> Tensors:
    return {name[2:]: value for name, value in golden.items() if name.startswith("w.")}


@pytest.fixture(scope="module")
def network(weights: Tensors) -> Network:
    return runner(weights)


@pytest.mark.parametrize("index", [0, 1])
def test_published_model(golden: Tensors, weights: Tensors, network: Network, index: int) -> None:
    """Graph and PyTorch reference equal the golden vectors to 1e-5, for 430 and 37 frames."""
    x, wanted = golden[f"io.feat{index}"][None], golden[f"io.embedding{index}"][None]
    assert error(network(x), wanted) <= 1e-5
    assert error(torch_reference(weights, x), wanted) <= 1e-5


def test_graph_is_valid_onnx(weights: Tensors) -> None:
    """The graph passes ONNX's checker with shape inference and has the documented names."""
    model = onnx.load_from_string(campplus_onnx(weights))
    onnx.checker.check_model(model, full_check=True)
    sizes = [
        [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    ]
    assert sizes == [["batch", "frames", 80], ["batch", 192]]
    assert weights.keys() <= {constant.name for constant in model.graph.initializer}


# After the stride of two: 2 frames, 1 of 100 more or less, two windows more or less.
@pytest.mark.parametrize("frames", [3, 4, 197, 198, 199, 200, 201, 202, 399, 400, 401])
def test_window_edges(weights: Tensors, network: Network, frames: int) -> None:
    """The last segment is averaged over its true length, and short inputs work."""
    x = features(frames)
    assert error(network(x), torch_reference(weights, x)) <= 1e-5


@SETTINGS
@given(frames=st.integers(MIN_FRAMES, 450), seed=st.integers(0, 5))
def test_any_length(frames: int, seed: int) -> None:
    """The graph accepts any number of frames."""
    x = features(frames, seed)
    assert error(ODD_NETWORK(x), torch_reference(ODD_WEIGHTS, x)) <= 1e-5


# No power of two anywhere, and channel counts that do not halve evenly.
ODD_WEIGHTS = random_campplus(seed=3, growth=3, init=7)
ODD_NETWORK = runner(ODD_WEIGHTS)


def test_batch_axis_is_open(network: Network) -> None:
    """A batch gives the same vectors as single inputs."""
    x = features(60, batch=3)
    together = network(x)
    for row in range(3):
        assert error(together[row : row + 1], network(x[row : row + 1])) <= 1e-6


def test_inventory_is_the_published_one(weights: Tensors) -> None:
    """The shapes equal those of the golden state dict, and the published widths at full size."""
    assert campplus_shapes(4, 16) == {name: tuple(v.shape) for name, v in weights.items()}
    full = campplus_shapes(32, 128)
    transits = [full[f"xvector.transit{n}.linear.weight"] for n in (1, 2, 3)]
    assert transits == [(256, 512, 1), (512, 1024, 1), (512, 1024, 1)]
    assert full["xvector.tdnn.linear.weight"] == (128, 320, 5)
    assert full["xvector.dense.linear.weight"] == (192, 1024, 1)


def test_random_full_size_is_sane() -> None:
    """At the published widths the vector is finite, of realistic size, and depends on the input."""
    run = runner(random_campplus(seed=0))
    first, second = run(features(150, 0)), run(features(150, 1) * torch.linspace(0.2, 2, 80))
    for vector in (first, second):
        assert vector.isfinite().all()
        assert 0.3 < float(vector.std()) < 10
    assert error(first, second) > 0.05


def test_random_values_are_fixed_by_the_seed() -> None:
    """The seed determines the file, and no two tensors are equal."""
    tensors = random_campplus(5, 2, 4)
    assert campplus_onnx(tensors) == campplus_onnx(random_campplus(5, 2, 4))
    other = random_campplus(6, 2, 4)
    assert not any(torch.equal(tensors[name], other[name]) for name in tensors)
    contents = {value.numpy().tobytes() for value in tensors.values()}
    assert len(contents) == len(tensors)
    assert all(bool((v > 0).all()) for n, v in tensors.items() if n.endswith("running_var"))
    assert all(math.isfinite(float(value.sum())) for value in tensors.values())


@SETTINGS
@given(name=st.sampled_from(sorted(ODD_WEIGHTS)))
def test_every_tensor_is_needed(name: str) -> None:
    """A missing or misshaped tensor raises with its name."""
    without = {key: value for key, value in ODD_WEIGHTS.items() if key != name}
    with pytest.raises(faults.MissingTensors, match=name):
        campplus_onnx(without)
    longer = torch.cat((ODD_WEIGHTS[name], ODD_WEIGHTS[name]))
    with pytest.raises(faults.MisshapedTensors):
        campplus_onnx(ODD_WEIGHTS | {name: longer})


def test_unknown_names_raise_but_counters_do_not() -> None:
    """An unknown name raises; PyTorch's batch counters are ignored."""
    with pytest.raises(faults.UnexpectedTensors, match=r"xvector\.block4"):
        campplus_onnx(ODD_WEIGHTS | {"xvector.block4.tdnnd1.linear1.weight": torch.zeros(1)})
    counted = ODD_WEIGHTS | {"head.bn1.num_batches_tracked": torch.tensor(7)}
    assert campplus_onnx(counted) == campplus_onnx(ODD_WEIGHTS)


def test_scalar_where_a_width_is_read() -> None:
    """A scalar where a width is read raises a `CheckpointError`, not an IndexError."""
    with pytest.raises(faults.CheckpointError, match=r"xvector\.tdnn\.linear\.weight"):
        campplus_onnx(ODD_WEIGHTS | {"xvector.tdnn.linear.weight": torch.tensor(1.0)})


def test_half_precision_is_widened() -> None:
    """bf16 weights give a float32 graph of the rounded values."""
    halves = {name: value.bfloat16() for name, value in ODD_WEIGHTS.items()}
    rounded = {name: value.float() for name, value in halves.items()}
    assert campplus_onnx(halves) == campplus_onnx(rounded)


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without onnx the error says what to install."""
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MossliveError, match=r"onnx: pip install 'mosslive\[voice\]'"):
        campplus_onnx(ODD_WEIGHTS)
