"""From published tensors to a network of the flow: sizes read from shapes, then a strict load.

Knows names and shapes, not the maths. Invariant: one `MossliveError` names everything that is wrong
with the tensors, before any network runs.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

from torch import Tensor, nn

from mosslive.errors import MossliveError, name_list

Network = TypeVar("Network", bound=nn.Module)


def shape_of(tensors: Mapping[str, Tensor], name: str, axes: int) -> tuple[int, ...]:
    """The shape of a tensor that sizes are read from."""
    if name not in tensors:
        raise MossliveError(f"flow: tensor {name} is absent")
    shape = tuple(tensors[name].shape)
    if len(shape) != axes:
        raise MossliveError(f"flow: tensor {name} has shape {list(shape)}; {axes} axes are needed")
    return shape


def count_of(tensors: Mapping[str, Tensor], prefix: str) -> int:
    """Number of parts `prefix.0.`, `prefix.1.`, ...; `load_strictly` reports gaps."""
    pattern = re.compile(re.escape(prefix) + r"\.(\d+)\.")
    numbers = [int(found[1]) for name in tensors if (found := pattern.match(name))]
    if not numbers:
        raise MossliveError(f"flow: no tensor is named {prefix}.0.*")
    return max(numbers) + 1


def load_strictly(network: Network, tensors: Mapping[str, Tensor]) -> Network:
    """Makes the tensors the network's weights, if names and shapes agree. Float32 tensors are not
    copied; others are converted to float32, which is exact."""
    wanted = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    faults = []
    if absent := sorted(wanted.keys() - tensors.keys()):
        faults.append(f"absent: {name_list(absent)}")
    if unknown := sorted(tensors.keys() - wanted.keys()):
        faults.append(f"unknown: {name_list(unknown)}")
    misshaped = [
        f"{name} {list(tensors[name].shape)}, needed {list(shape)}"
        for name, shape in wanted.items()
        if name in tensors and tuple(tensors[name].shape) != shape
    ]
    if misshaped:
        faults.append(f"wrong shape: {name_list(misshaped, shown=4)}")
    if faults:
        raise MossliveError("flow: the tensors do not fit together; " + "; ".join(faults))
    widened = {name: tensor.float() for name, tensor in tensors.items()}
    network.load_state_dict(widened, strict=True, assign=True)
    return network.requires_grad_(False).eval()
