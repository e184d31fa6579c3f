"""The pool of pages: none is lost, none is given out twice, and its memory has the stated size."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive.codec.flow_pages import FlowPagePool, PageForm, Pages, PageStore, PoolFull


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 5), max_size=60))
def test_pool_accounting(choices: list[int]) -> None:
    """A page is free exactly when no stream holds it, and none is held twice by
    streams that did not share it."""
    pool = FlowPagePool(6, "test")
    streams = [Pages(pool)]
    for step, choice in enumerate(choices):
        stream = streams[step % len(streams)]
        if choice <= 1:
            try:
                stream.append()
            except PoolFull:
                assert pool.used == 6
        elif choice == 2:
            streams.append(stream.fork())
        elif choice == 3:
            stream.drop_before(len(stream.held) - 1)
        elif choice == 4:
            stream.cut(len(stream.held) // 2)
        else:
            stream.close()
        held = {page for each in streams for page in each.held} - {0}
        assert pool.used == len(held)
    for stream in streams:
        stream.close()
    assert pool.used == 0


def test_store_has_the_promised_size() -> None:
    """Keys, values and tails of all pages, the zero page and the scratch page; both begin zero."""
    form = PageForm(3, 2, 2, 4, 8, 10, torch.bfloat16)
    store = PageStore(form, 5, torch.device("cpu"))
    held = sum(layer.nbytes for layer in store.layers) + store.tails.nbytes
    assert held == (5 + 2) * form.page_bytes
    assert not any(layer[:, :2].any() for layer in store.layers)
    assert not store.tails[:2].any()
