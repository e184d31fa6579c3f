"""Counter-based random numbers against the vectors of the Random123 distribution."""

import pytest

from mosslive.kernels.philox import Words, philox, uniform


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers(counter: Words, key: tuple[int, int], words: Words) -> None:
    """The published known-answer vectors of Philox4x32-10."""
    assert philox(counter, key) == words


def test_uniform_is_even_and_depends_on_everything() -> None:
    """In [0, 1), flat, and different for another seed (both halves), step or channel."""
    numbers = [uniform(1, step, 0) for step in range(4000)]
    assert all(0 <= number < 1 for number in numbers)
    for tenth in range(10):
        assert 330 < sum(tenth <= 10 * number < tenth + 1 for number in numbers) < 470
    same = uniform(7, 3, 0)
    assert uniform(7, 3, 0) == same
    others = {uniform(8, 3, 0), uniform(7 + 2**32, 3, 0), uniform(7, 4, 0), uniform(7, 3, 1)}
    assert len(others | {same}) == 5
