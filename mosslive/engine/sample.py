"""The definition of sampling: from the logits of one request's last row to its next row.

The order (mask, penalty, temperature, top-k, top-p, sample) is that of the published generation
loop. Knows nothing of pages or batches.
"""

import torch
from torch import Tensor

from mosslive.engine.request import Request
from mosslive.kernels import check_logits, greedy, penalise, sample_token, uniform
from mosslive.rows import CHANNELS, Channel, Row


def sample_row(request: Request, logits: dict[Channel, Tensor]) -> Row:
    """`logits`: float32 [V] for each channel of `request.channels`, after `begin_step`. Raises
    `NonFiniteLogits`; the request is then unchanged."""
    audio, text = (
        _sample(request, channel, logits[channel]) if channel in logits else None
        for channel in ("audio", "text")
    )
    return request.accept(text, audio)


def _sample(request: Request, channel: Channel, given: Tensor) -> int:
    sampling, legal = request.sampling, request.legal(channel)
    logits = given[:legal]
    check_logits(logits)
    if sampling.repetition_penalty != 1:
        seen = _seen(request, channel, given)[:legal]
        logits = penalise(logits, seen, sampling.repetition_penalty)
    if sampling.greedy:
        return greedy(logits)
    number = uniform(sampling.seed, request.row_number, CHANNELS.index(channel))
    return sample_token(logits, sampling.temperature, sampling.top_k, sampling.top_p, number)


def _seen(request: Request, channel: Channel, given: Tensor) -> Tensor:
    """Returns which ids the channel's history contains, bool [V]. Reads the rows once per reply."""
    if channel not in request.seen:
        index = CHANNELS.index(channel)
        seen = torch.zeros(given.shape, dtype=torch.bool, device=given.device)
        seen[[row[index] for row in (*request.table.rows, *request.pending)]] = True
        request.seen[channel] = seen
    return request.seen[channel]
