"""The plain generation loop: every request gets one row per step, until it stops.

This is the definition any faster engine must equal. It knows neither deadlines nor priorities.
"""

from collections.abc import Generator
from typing import Literal, get_args

import torch

from mosslive.cache import OutOfPages
from mosslive.config import refuse
from mosslive.engine.request import Request
from mosslive.engine.runner import Runner
from mosslive.rows import CHANNELS, Row

# "lazy": a tail runs only when its logits are wanted, and first catches up from the trunk's stored
# output. "both": both tails on every step. The rows are the same; lazy does less.
Tails = Literal["lazy", "both"]


def check_tails(tails: str) -> None:
    if tails not in get_args(Tails):
        raise refuse("tails", tails, " or ".join(get_args(Tails)))


def generate_rows(
    runner: Runner, requests: list[Request], tails: Tails
) -> Generator[tuple[int, Row], None, None]:
    """(request number, new row), in lockstep. A request that finds no page ends with stop "pages"
    and hurts no other. However this ends, every page is given back."""
    try:
        running = list(enumerate(requests))
        while running:
            running = [(n, request) for n, request in running if _admit(runner, request)]
            if not running:
                return
            rows = step(runner, [request for _, request in running], tails)
            for (number, request), row in zip(running, rows, strict=True):
                if request.stop:
                    request.table.free()
                yield number, row
            running = [(n, request) for n, request in running if not request.stop]
    finally:
        for request in requests:
            request.table.free()


@torch.inference_mode()  # no gradients, and a leaner path through PyTorch for every small operation
def step(runner: Runner, requests: list[Request], tails: Tails) -> list[Row]:
    """One new row for each request, whose latest rows have their pages already."""
    fresh = runner.trunk([(request.table, request.computed) for request in requests])
    for request in requests:
        request.computed = len(request.table)
        request.begin_step()
    wanted = {c: [r for r in requests if c in r.channels] for c in CHANNELS}
    logits = {
        channel: dict(
            zip(
                map(id, some),
                runner.tail_logits(channel, [request.table for request in some], fresh),
                strict=True,
            )
        )
        for channel, some in wanted.items()
        if some
    }
    if tails == "both":
        for channel in CHANNELS:
            runner.tail(channel, [request.table for request in requests])
    longest = runner.decoder.config.max_position_embeddings
    return [
        request.finish_step({c: logits[c][id(request)] for c in request.channels}, longest)
        for request in requests
    ]


def _admit(runner: Runner, request: Request) -> bool:
    try:
        table = request.table
        if not len(table):
            request.computed = table.adopt(request.rows)
        runner.reserve(table, request.rows[len(table) :])
        return True
    except OutOfPages as refusal:
        request.stop, request.refusal = "pages", refusal
        request.table.free()
        return False
