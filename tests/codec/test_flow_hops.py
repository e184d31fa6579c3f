"""When the flow live may go on: which codes a hop takes, what of a prompt is settled, who waits."""

import pytest

from mosslive.codec.flow_hops import leads_in, needed_codes, next_hop, settled_prompt


@pytest.mark.parametrize(
    ("prompt", "hop", "needed", "samples"),
    [
        (244, 6, 9, 7680),
        (245, 5, 8, 5760),
        (342, 8, 11, 11520),
        (452, 8, 11, 11520),
        (0, 5, 8, 5760),
    ],
)
def test_first_hop_table(prompt: int, hop: int, needed: int, samples: int) -> None:
    """The first hop aligns the prompt, and needs three more codes."""
    assert next_hop(needed, 0, prompt, 5) == hop
    assert next_hop(needed - 1, 0, prompt, 5) is None
    assert 1920 * hop - 3840 == samples


def test_later_hops() -> None:
    """After the first hop every hop is one chunk, also when the codes are complete and fewer
    than another first hop are left."""
    first = next_hop(12, 0, 11, 5)
    assert first == 9
    assert next_hop(9 + 7, 9, 11, 5) is None
    assert next_hop(9 + 8, 9, 11, 5) == 5
    assert next_hop(9 + 100, 9, 11, 5) == 5


@pytest.mark.parametrize("chunk", [5, 25])
@pytest.mark.parametrize("prompt", [0, 4, 25, 26])
@pytest.mark.parametrize("cursor", [0, 50])
def test_a_hop_takes_what_it_says_it_needs(cursor: int, prompt: int, chunk: int) -> None:
    """The number of codes it returns is enough for the next hop, and one fewer is not."""
    needed = needed_codes(cursor, prompt, chunk)
    assert next_hop(cursor + needed, cursor, prompt, chunk) == needed - 3
    assert next_hop(cursor + needed - 1, cursor, prompt, chunk) is None


@pytest.mark.parametrize(
    ("prompt", "chunk", "settled"),
    [(0, 5, 0), (2, 5, 0), (7, 5, 0), (8, 5, 5), (12, 5, 5), (13, 5, 10), (342, 25, 325)],
)
def test_settled_prompt(prompt: int, chunk: int, settled: int) -> None:
    """Only chunks whose look-ahead lies in the prompt can be computed with the voice."""
    assert settled_prompt(prompt, chunk) == settled


@pytest.mark.parametrize(
    ("available", "cursor", "prompt", "leads"),
    [(3, 0, 50, True), (7, 0, 5, True), (2, 0, 50, False), (3, 5, 50, False), (3, 0, 51, False),
     (3, 0, 0, False), (3, 0, 4, False)],
)  # fmt: skip
def test_when_the_end_of_the_prompt_can_be_computed(
    available: int, cursor: int, prompt: int, leads: bool
) -> None:
    """Three codes, before the first hop, after a prompt of whole chunks."""
    assert leads_in(available, cursor, prompt, 5) == leads
