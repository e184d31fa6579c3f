"""Several stream states as the rows of one, so that streams at the same point share one pass.

States can be joined if all their shapes agree: `shape_key` is equal for exactly those. Knows
states, not the network. Invariant: a row of a joined state advances as it would alone.
"""

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from mosslive.codec.bigvgan.graph import FullState, Shapes, full_state
from mosslive.codec.bigvgan.step import BigVganState
from mosslive.kernels.dispatch import AUTO, Dispatch


def shape_key(state: BigVganState) -> Hashable:
    """Equal for states that can be joined."""
    frames = state.frames if isinstance(state, FullState) else None
    return frames, tuple(part.shape[1:] for part in state.kept)


def join_states(states: Sequence[BigVganState], dispatch: Dispatch = AUTO) -> BigVganState:
    """The rows of all states, in order. The states must have the same `shape_key`.

    A full state gets rows of zeros up to a power of two, so that few sizes are recorded.
    """
    first = states[0]
    if len(states) == 1:
        return first
    if isinstance(first, FullState):
        packed = torch.cat([_packed(state) for state in states])
        rows = 1 << (len(packed) - 1).bit_length()
        packed = torch.cat((packed, packed.new_zeros(rows - len(packed), packed.shape[1])))
        return full_state(packed, _with_rows(first.shapes, rows), first.frames, 0)
    parts = zip(*(state.kept for state in states), strict=True)
    joined = [torch.cat(rows) for rows in parts]
    return BigVganState(tuple(dispatch(part).signal_layout(part) for part in joined))


def split_state(
    joined: BigVganState, rows: Sequence[int], samples: Sequence[int]
) -> list[BigVganState]:
    """The reverse: one state for each number of `rows`, with its own count of `samples`.

    Rows beyond the last state are dropped. Copies, so that no state keeps the others in memory.
    """
    states: list[BigVganState] = []
    first = 0
    for count, computed in zip(rows, samples, strict=True):
        own = slice(first, first + count)
        first += count
        if isinstance(joined, FullState):
            shapes = _with_rows(joined.shapes, count)
            packed = _packed(joined)[own].clone()
            states.append(full_state(packed, shapes, joined.frames, computed))
        else:
            states.append(BigVganState(tuple(part[own].clone() for part in joined.kept), computed))
    return states


def _packed(state: BigVganState) -> Tensor:
    assert isinstance(state, FullState)
    assert state.packed is not None
    return state.packed


def _with_rows(shapes: Shapes, rows: int) -> Shapes:
    return tuple(torch.Size((rows, channels, count)) for _, channels, count in shapes)
