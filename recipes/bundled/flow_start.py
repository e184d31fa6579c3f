"""Initialises the flow's estimator as the straight line from its noise to its condition.

The target velocity is mel minus noise. A small network with random weights learns the mel within
minutes and needs hours to learn to subtract the noise, band by band; until then its mel contains
all the noise. So it starts as `mu - x`, which is right at time 0, expressed in its own weights.
Knows the estimator's layers, not training. Invariant: same tensors and names as any other
estimator.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from mosslive.codec.estimator import Estimator
from mosslive.codec.flow_past import Whole

_SIGNAL = 0.3  # inner scale of the linear path
_ANCHOR = 4.0  # of the spare channels before the last norm: far above the signal, so that its
# length hardly changes and the norm is nearly linear; they also keep the mean that it subtracts
_LIFT = 3.0  # where Mish is nearly linear
_FAINT = 0.1  # scale of all other weights
_SPREAD, _MEAN = 2.6, 5.0  # of mu - x
_LEAST_SHARE = 0.5
_PROBE_ROWS, _PROBE_FRAMES = 4, 32


def can_begin_straight(estimator: Estimator) -> bool:
    """Returns whether there is a channel for each band and two more."""
    return estimator.dims.channels >= estimator.dims.bands + 2


@torch.no_grad()
def begin_straight(estimator: Estimator) -> None:
    """Sets a new estimator to velocity ≈ mu - x."""
    width, bands = estimator.dims.channels, estimator.dims.bands
    spare = (width - bands) // 2 * 2
    band, channel = torch.arange(bands), torch.arange(width)
    for stage in (estimator.down, *estimator.middle, estimator.up):
        stage.resnet.block2.norm.weight.fill_(_FAINT)
        for block in stage.blocks:
            block.attn1.out.weight.mul_(_FAINT)
            block.ff.second.weight.mul_(_FAINT)
    first, second = estimator.down.resnet.res_conv, estimator.up.resnet.res_conv
    convs = (first, second, estimator.up.conv, estimator.final_block.conv)
    for conv in convs:
        conv.weight.mul_(_FAINT)
        conv.weight[:bands] = 0
        _bias(conv).zero_()
    first.weight[band, band, 0] = -_SIGNAL
    first.weight[band, bands + band, 0] = _SIGNAL
    # The skip connection's channels come after those of the middle stages.
    second.weight[channel, width + channel, 0] = 1
    for conv in convs[2:]:
        conv.weight[band, band, 2] = 1  # the last tap is the current frame
    anchors = torch.zeros(width - bands)
    anchors[:spare:2], anchors[1:spare:2] = _ANCHOR, -_ANCHOR
    _bias(estimator.final_block.conv)[bands:] = anchors
    estimator.final_block.norm.bias.fill_(_LIFT)
    length = math.sqrt(
        anchors.square().sum().item() / width
        + (_SIGNAL * _SPREAD) ** 2 * bands / width
        + (_SIGNAL * _MEAN) ** 2 * bands * (width - bands) / width**2
    )
    gain = length / _SIGNAL / _slope_of_mish(_LIFT)
    last = estimator.final_proj
    last.weight.zero_()
    last.weight[band, band, 0] = gain
    last.weight[:, bands : bands + spare, 0] = -gain / spare
    at_rest = F.mish(_LIFT + anchors[:spare] / length).mean() - F.mish(torch.tensor(_LIFT))
    _bias(last).fill_(gain * at_rest.item())


def _slope_of_mish(at: float) -> float:
    x = torch.tensor(at, requires_grad=True)
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(F.mish(x), x)
    return float(slope)


def _bias(conv: torch.nn.Conv1d) -> Tensor:
    assert conv.bias is not None
    return conv.bias


@torch.no_grad()
def subtracted_noise_share(estimator: Estimator) -> float:
    """Returns the share of the noise that an estimator subtracts at time 0; 1 is all of it."""
    dims, like = estimator.dims, _bias(estimator.final_proj)
    generator = torch.Generator().manual_seed(0)
    shape = (2, _PROBE_ROWS, dims.bands, _PROBE_FRAMES)
    one, other = torch.randn(shape, generator=generator).to(like)
    rows = like.new_zeros(2 * _PROBE_ROWS, dims.inputs, _PROBE_FRAMES)
    rows[:, : dims.bands] = torch.cat((one, other))
    rows[:, dims.bands : 2 * dims.bands] = -_MEAN
    past = Whole(_PROBE_FRAMES, None, like)
    first, second = estimator(rows, like.new_zeros(1), past).chunk(2)
    moved, seen = first - second, one - other
    return float(-(moved * seen).sum() / seen.square().sum())


@torch.no_grad()
def restart_if_noise_stays(estimator: Estimator) -> bool:
    """Replaces a carried estimator that leaves the noise in. Returns whether it did."""
    if not can_begin_straight(estimator) or subtracted_noise_share(estimator) >= _LEAST_SHARE:
        return False
    fresh = Estimator(estimator.dims)
    begin_straight(fresh)
    estimator.load_state_dict(fresh.state_dict())
    return True
