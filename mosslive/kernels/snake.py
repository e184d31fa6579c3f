"""The anti-aliased SnakeBeta activation: upsample by 2, a periodic nonlinearity, downsample by 2.

    up   = sinc filter of x at twice the rate
    bent = up + sin²(α · up) / (β + 1e-9)          one α and one β per channel
    y    = sinc filter of bent, every second sample

The nonlinearity adds harmonics; at twice the rate those above the band are filtered out before
they alias. Knows nothing of networks or streams. Invariant: sample t of the result depends on
samples t-5 .. t+5 of the input, the ends being continued by their last value, once before each
filter.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

TAPS = 12
SNAKE_REACH_SAMPLES = 5  # on both sides

_UP_EDGE = TAPS // 2 - 1  # continued on both sides before the rate is doubled
_UP_CROP = 2 * _UP_EDGE + (TAPS - 2) // 2  # of the doubled signal: what the continuation made
_DOWN_EDGES = (TAPS // 2 - 1, TAPS // 2)  # an even filter has no centre: one more on the right
_TINY = 1e-9


def anti_aliased_snake(
    x: Tensor,
    alpha: Tensor,
    beta: Tensor,
    up_filter: Tensor,
    down_filter: Tensor,
    *,
    log_scale: bool,
) -> Tensor:
    """x [B, C, T], T ≥ 1; alpha, beta [C], natural logarithms if `log_scale`; filters [1, 1, 12]
    → [B, C, T].

    Half-precision input is widened to float32 and rounded once, at the end.
    """
    channels = x.shape[1]
    wide = x if x.dtype == torch.float64 else x.float()
    alpha, beta = (p.to(wide.dtype)[:, None] for p in (alpha, beta))  # [C, 1]
    if log_scale:
        alpha, beta = alpha.exp(), beta.exp()
    up, down = (f.to(wide.dtype).expand(channels, 1, TAPS) for f in (up_filter, down_filter))
    edged = F.pad(wide, (_UP_EDGE, _UP_EDGE), mode="replicate")
    # Doubling the rate by zeros halves the level, hence the 2.
    doubled = 2 * F.conv_transpose1d(edged, up, stride=2, padding=_UP_CROP, groups=channels)
    bent = doubled + (doubled * alpha).sin().square() / (beta + _TINY)  # [B, C, 2T]
    edged = F.pad(bent, _DOWN_EDGES, mode="replicate")
    return F.conv1d(edged, down, stride=2, groups=channels).to(x.dtype)
