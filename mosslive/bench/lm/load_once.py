"""Starts an engine once, in a fresh process: folder → weights → pages → graphs → first row.

Run as `python -m mosslive.bench.lm.load_once FOLDER DEVICE`. Prints the seconds of each part as
JSON. Separate from `load`, because a process that has loaded an engine before starts faster.
"""

import json
import sys
import time

_CLOCK = time.perf_counter
_BEGUN = _CLOCK()


def load_once(folder: str, device: str) -> dict[str, float]:
    """Returns seconds by part. Propagates the errors of a damaged folder or a wrong result."""
    import torch

    from mosslive.cache import PageTable
    from mosslive.config import Sampling
    from mosslive.engine.load import load_stepper
    from mosslive.engine.request import Request
    from mosslive.rows import END_OF_TEXT, RowIds

    torch.zeros(1, device=device)
    ready = _CLOCK()
    read = ready

    def progress(_: int) -> None:
        nonlocal read
        read = _CLOCK()

    stepper, tokenizer = load_stepper(folder, device, progress=progress)
    loaded = _CLOCK()
    ids = RowIds.from_config(stepper.config, tokenizer.id_of(END_OF_TEXT))
    prompt, longest = [(ids.sosp, ids.audio_pad)], stepper.config.max_position_embeddings
    table = PageTable(stepper.pool)
    (made,) = stepper.decode([Request(prompt, Sampling(greedy=True), ids, table, longest)])
    if isinstance(made, Exception):
        raise made
    return {
        "imports and device": ready - _BEGUN,
        "bytes read": read - ready,
        "checksums, probe, pages and graphs": loaded - read,
        "first row": _CLOCK() - loaded,
        "rows the pages hold": stepper.pool.total * stepper.pool.page_size,
    }


if __name__ == "__main__":
    print(json.dumps(load_once(*sys.argv[1:])), flush=True)
