"""Builds an ONNX graph of the speaker network CAM++ from a state dict with the published names.

Used for random checkpoints in the published layout, whose speaker encoder is an ONNX file, and for
tests. The published file itself is only read. Does not know files or how to run a graph. Invariant:
all widths follow from two numbers, `growth` and `init`. A state dict that contradicts
`campplus_shapes` raises before the first node is built, so every written graph runs.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mosslive.checkpoint import faults
from mosslive.checkpoint.layout import Shape
from mosslive.errors import MossliveError

BANDS = 80
VECTOR_WIDTH = 192
MIN_FRAMES = 3  # the standard deviation needs two frames after the stride of two

_HEAD_CHANNELS = 32
_HEAD_WIDTH = _HEAD_CHANNELS * BANDS // 8  # three strides of two over the bands
_BLOCKS = ((12, 1), (24, 2), (16, 2))  # layers, dilation
_SEGMENT_FRAMES = 100
_EPS = 1e-5
_OPSET, _IR_VERSION = 17, 8  # old enough for any onnxruntime since 1.12
_NORM_PARTS = ("weight", "bias", "running_mean", "running_var")
_BLOCK_PREFIX, _TDNN = "xvector.block{}.tdnnd{}", "xvector.tdnn"


def campplus_shapes(growth: int, init: int) -> dict[str, Shape]:
    """Shapes of every tensor of a CAM++ with `growth` channels per dense layer and `init` channels
    before the first. Published: 32 and 128."""
    shapes: dict[str, Shape] = {}

    def norm(name: str, width: int, parts: tuple[str, ...] = _NORM_PARTS) -> None:
        shapes.update({f"{name}.{part}": (width,) for part in parts})

    def conv(name: str, outputs: int, inputs: int, *kernel: int, bias: bool = False) -> None:
        shapes[f"{name}.weight"] = (outputs, inputs, *kernel)
        if bias:
            shapes[f"{name}.bias"] = (outputs,)

    def head_conv(name: str, norm_name: str, inputs: int = _HEAD_CHANNELS, kernel: int = 3) -> None:
        conv(name, _HEAD_CHANNELS, inputs, kernel, kernel)
        norm(norm_name, _HEAD_CHANNELS)

    head_conv("head.conv1", "head.bn1", inputs=1)
    for stage in (1, 2):
        for block in (0, 1):
            prefix = f"head.layer{stage}.{block}"
            for n in (1, 2):
                head_conv(f"{prefix}.conv{n}", f"{prefix}.bn{n}")
            if block == 0:
                head_conv(f"{prefix}.shortcut.0", f"{prefix}.shortcut.1", kernel=1)
    head_conv("head.conv2", "head.bn2")
    conv(f"{_TDNN}.linear", init, _HEAD_WIDTH, 5)
    norm(f"{_TDNN}.nonlinear.batchnorm", init)
    channels, inner = init, 4 * growth
    for number, (layers, _) in enumerate(_BLOCKS, 1):
        for layer in range(1, layers + 1):
            prefix = _BLOCK_PREFIX.format(number, layer)
            norm(f"{prefix}.nonlinear1.batchnorm", channels)
            conv(f"{prefix}.linear1", inner, channels, 1)
            norm(f"{prefix}.nonlinear2.batchnorm", inner)
            conv(f"{prefix}.cam_layer.linear_local", growth, inner, 3)
            conv(f"{prefix}.cam_layer.linear1", inner // 2, inner, 1, bias=True)
            conv(f"{prefix}.cam_layer.linear2", growth, inner // 2, 1, bias=True)
            channels += growth
        norm(f"xvector.transit{number}.nonlinear.batchnorm", channels)
        conv(f"xvector.transit{number}.linear", channels // 2, channels, 1)
        channels //= 2
    norm("xvector.out_nonlinear.batchnorm", channels)
    conv("xvector.dense.linear", VECTOR_WIDTH, 2 * channels, 1)
    norm("xvector.dense.nonlinear.batchnorm", VECTOR_WIDTH, ("running_mean", "running_var"))
    return shapes


def random_campplus(seed: int, growth: int = 32, init: int = 128) -> dict[str, Tensor]:
    """float32 values that depend only on (seed, name, shape). Activations keep their scale through
    the network, and no two tensors are equal, so tests notice a missing or swapped one."""
    return {
        name: _random_tensor(name, shape, seed)
        for name, shape in campplus_shapes(growth, init).items()
    }


def _random_tensor(name: str, shape: Shape, seed: int) -> Tensor:
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
    values = torch.randn(shape, generator=generator)
    if len(shape) > 1:
        return values * math.sqrt(2 / math.prod(shape[1:]))  # ReLU zeroes half of the inputs
    if name.endswith("running_var"):
        return (0.2 * values).exp()
    return 1 + 0.2 * values if name.endswith("weight") else 0.1 * values


def campplus_onnx(tensors: Mapping[str, Tensor]) -> bytes:
    """The bytes of a graph float32 [batch, frames, 80] → [batch, 192], frames ≥ 3. The caller
    removes the features' mean over time; the returned vector is not normalised."""
    try:
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        need = "writing a speaker network needs the package onnx: pip install 'mosslive[voice]'"
        raise MossliveError(need) from error
    _require_campplus(tensors)
    graph = _Graph(tensors)
    vector = graph.campplus("feature")
    graph.nodes.append(_Node("Identity", (vector,), "embedding", {}))
    nodes = [helper.make_node(n.kind, n.inputs, [n.output], **n.attributes) for n in graph.nodes]
    constants = [numpy_helper.from_array(v, name) for name, v in graph.constants.items()]
    made, floats = helper.make_tensor_value_info, TensorProto.FLOAT
    feature = made("feature", floats, ["batch", "frames", BANDS])
    embedding = made("embedding", floats, ["batch", VECTOR_WIDTH])
    model = helper.make_model(
        helper.make_graph(nodes, "campplus", [feature], [embedding], constants),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        producer_name="mosslive",
    )
    content: bytes = model.SerializeToString()
    return content


def _require_campplus(tensors: Mapping[str, Tensor]) -> None:
    """Compares the state dict with the shapes that follow from its own two widths."""
    first_layer = _BLOCK_PREFIX.format(1, 1)
    leading = (f"{first_layer}.cam_layer.linear_local.weight", f"{_TDNN}.linear.weight")
    if absent := [name for name in leading if name not in tensors or not tensors[name].ndim]:
        raise faults.MissingTensors(absent, "they determine the widths of the network")
    expected = campplus_shapes(*(tensors[name].shape[0] for name in leading))
    if missing := [name for name in expected if name not in tensors]:
        raise faults.MissingTensors(missing)
    counters = "num_batches_tracked"  # of PyTorch's batch norms; unused in inference
    if odd := [name for name in tensors if name not in expected and not name.endswith(counters)]:
        raise faults.UnexpectedTensors(odd)
    if wrong := [name for name, shape in expected.items() if tensors[name].shape != shape]:
        shown = [f"{n} {list(tensors[n].shape)} instead of {list(expected[n])}" for n in wrong]
        raise faults.MisshapedTensors(wrong, shown=shown)


class _Node(NamedTuple):
    kind: str  # the ONNX operator
    inputs: tuple[str, ...]
    output: str
    attributes: dict[str, Any]


class _Graph:
    """Nodes in order of computation. Values are identified by name; weights keep their names."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors
        self.nodes: list[_Node] = []
        self.constants: dict[str, np.ndarray[Any, Any]] = {}

    def campplus(self, features: str) -> str:
        """features [B, T, 80] → vector [B, 192]."""
        x = self._op("Transpose", features, perm=[0, 2, 1])
        x = self._head(self._op("Unsqueeze", x, self._ints([1])))  # [B, 32, 10, T]
        x = self._op("Reshape", x, self._ints([0, _HEAD_WIDTH, -1]))  # channel · 10 + band
        x = self._conv(x, f"{_TDNN}.linear", strides=[2], pads=[2, 2])
        x = self._norm_relu(x, f"{_TDNN}.nonlinear.batchnorm")  # [B, init, T/2]
        frames = self._op("Squeeze", self._op("Shape", x, start=2))
        every = self._op("Range", self._ints(0), frames, self._ints(1))
        segments = self._op("Div", every, self._ints(_SEGMENT_FRAMES))  # segment of every frame
        for number, (layers, dilation) in enumerate(_BLOCKS, 1):
            for layer in range(1, layers + 1):
                prefix = _BLOCK_PREFIX.format(number, layer)
                x = self._op("Concat", x, self._dense(x, prefix, dilation, segments), axis=1)
            transit = f"xvector.transit{number}"
            x = self._norm_relu(x, f"{transit}.nonlinear.batchnorm")
            x = self._conv(x, f"{transit}.linear")
        x = self._statistics(self._norm_relu(x, "xvector.out_nonlinear.batchnorm"), frames)
        x = self._conv(x, "xvector.dense.linear")
        x = self._norm(x, "xvector.dense.nonlinear.batchnorm")
        return self._op("Squeeze", x, self._ints([2]))

    def _head(self, x: str) -> str:
        """[B, 1, 80, T] → [B, 32, 10, T]. Strides apply to the bands, never to time."""
        x = self._norm_relu(self._conv(x, "head.conv1", pads=[1] * 4), "head.bn1")
        for stage in (1, 2):
            for block, stride in ((0, [2, 1]), (1, [1, 1])):
                prefix, past = f"head.layer{stage}.{block}", x
                x = self._conv(x, f"{prefix}.conv1", strides=stride, pads=[1] * 4)
                x = self._conv(self._norm_relu(x, f"{prefix}.bn1"), f"{prefix}.conv2", pads=[1] * 4)
                x = self._norm(x, f"{prefix}.bn2")
                if block == 0:
                    past = self._conv(past, f"{prefix}.shortcut.0", strides=stride)
                    past = self._norm(past, f"{prefix}.shortcut.1")
                x = self._op("Relu", self._op("Add", x, past))
        x = self._conv(x, "head.conv2", strides=[2, 1], pads=[1] * 4)
        return self._norm_relu(x, "head.bn2")

    def _dense(self, x: str, prefix: str, dilation: int, segments: str) -> str:
        """[B, C, T] → `growth` new channels, gated by the context of each frame."""
        x = self._norm_relu(x, f"{prefix}.nonlinear1.batchnorm")
        x = self._norm_relu(self._conv(x, f"{prefix}.linear1"), f"{prefix}.nonlinear2.batchnorm")
        cam = f"{prefix}.cam_layer"
        local = self._conv(x, f"{cam}.linear_local", pads=[dilation] * 2, dilations=[dilation])
        # With ceil_mode, an incomplete last window is averaged over its own frames.
        window = [_SEGMENT_FRAMES]
        means = self._op("AveragePool", x, kernel_shape=window, strides=window, ceil_mode=1)
        context = self._op("Add", means, self._op("ReduceMean", x, axes=[2]))
        # All frames of a segment share one gate: compute it once per segment, then gather.
        hidden = self._op("Relu", self._conv(context, f"{cam}.linear1"))
        gate = self._op("Sigmoid", self._conv(hidden, f"{cam}.linear2"))
        return self._op("Mul", local, self._op("Gather", gate, segments, axis=2))

    def _statistics(self, x: str, frames: str) -> str:
        """[B, C, T] → [B, 2C, 1]: mean, then unbiased standard deviation over time."""
        mean = self._op("ReduceMean", x, axes=[2])
        centred = self._op("Sub", x, mean)
        square = self._op("ReduceSum", self._op("Mul", centred, centred), self._ints([2]))
        freedom = self._op("CastLike", self._op("Sub", frames, self._ints(1)), x)
        deviation = self._op("Sqrt", self._op("Div", square, freedom))
        return self._op("Concat", mean, deviation, axis=1)

    def _conv(self, x: str, name: str, **attributes: list[int]) -> str:
        held = [n for n in (f"{name}.weight", f"{name}.bias") if n in self.tensors]
        return self._op("Conv", x, *map(self._weight, held), **attributes)

    def _norm_relu(self, x: str, name: str) -> str:
        return self._op("Relu", self._norm(x, name))

    def _norm(self, x: str, name: str) -> str:
        mean, variance = (self._weight(f"{name}.{part}") for part in _NORM_PARTS[2:])
        if f"{name}.weight" in self.tensors:
            scale, shift = (self._weight(f"{name}.{part}") for part in _NORM_PARTS[:2])
        else:  # the last norm has neither, but the operator requires both
            width = self.tensors[f"{name}.running_mean"].shape
            scale, shift = (self._constant(np.full(width, v, np.float32)) for v in (1, 0))
        return self._op("BatchNormalization", x, scale, shift, mean, variance, epsilon=_EPS)

    def _weight(self, name: str) -> str:
        self.constants[name] = self.tensors[name].detach().float().cpu().numpy()
        return name

    def _ints(self, values: int | list[int]) -> str:
        return self._constant(np.array(values, np.int64))

    def _constant(self, values: np.ndarray[Any, Any]) -> str:
        name = f"constant{len(self.constants)}"
        self.constants[name] = values
        return name

    def _op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        output = f"value{len(self.nodes)}"
        self.nodes.append(_Node(kind, inputs, output, attributes))
        return output
