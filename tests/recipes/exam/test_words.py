"""How transcripts are compared: which differences count as errors."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipes.bundled.exam.words import edits, number_words, same_words, word_errors, words


@pytest.mark.parametrize(
    ("heard", "meant"),
    [
        ("4 + 3 = 7", "Four plus three is seven."),
        ("For plus 10 is 14.", "Four plus ten is fourteen."),
        ("18 - 11 is 7", "Eighteen minus eleven is seven."),
        ("OK, I can't see it!", "Okay I can not see it."),
        ("C-A-T", "C, A, T."),
        ("CAT.", "C, A, T."),
        ("789-1011-1213", "Seven eight nine ten eleven twelve thirteen."),
        ("11:12:13, 14", "Eleven twelve thirteen fourteen."),
        ("The bath tub", "The bathtub."),
        ("The 12th month is December", "The twelfth month is December."),
        ("The 3rd day is Wednesday", "The third day is Wednesday."),
        ("A mouse is grey.", "A mouse is gray."),
        ("There are 60 minutes in an hour", "There are sixty minutes in an hour."),
    ],
)
def test_ways_of_writing_are_not_mistakes(heard: str, meant: str) -> None:
    """Ways to write numbers, signs, spelled letters, joined words and homophones are equal."""
    assert same_words(heard, meant)
    assert word_errors(heard, meant)[0] == 0


@pytest.mark.parametrize(
    ("heard", "meant"),
    [
        ("Four plus three is eight.", "Four plus three is seven."),
        ("Your name is John.", "Your name is Sean."),
        ("The hen has four legs.", "The hen has two legs."),
        ("No, a cow can fly.", "No, a cow can not fly."),
        ("C, A, P.", "C, A, T."),
        ("Cat.", "C, A, T."),
        ("Thirteen.", "Thirty."),
        ("", "Yes."),
        ("Eighteen minus eleven is seven seven", "Eighteen minus eleven is seven."),
    ],
)
def test_wrong_words_stay_wrong(heard: str, meant: str) -> None:
    """A wrong number, name, letter or negation is an error."""
    assert not same_words(heard, meant)
    assert word_errors(heard, meant)[0] > 0


def test_errors_are_counted_by_words() -> None:
    """Replaced, missing and added words count one error each."""
    assert word_errors("the big dog ran", "the dog ran home") == (2, 4)
    assert word_errors("", "one two three") == (3, 3)
    assert word_errors("one two three", "one") == (2, 1)


@given(st.integers(0, 99))
@settings(derandomize=True, deadline=None, max_examples=100)
def test_a_number_is_the_same_in_digits_and_words(number: int) -> None:
    """Every number to 99 has the same words in digits and letters, and no two numbers share
    them."""
    assert words(str(number)) == number_words(number)
    assert not same_words(str(number), str((number + 1) % 100))


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_edits_are_a_distance(one: list[str], other: list[str]) -> None:
    """The edit distance is 0 for equal sequences, symmetric, and bounded by the lengths."""
    assert edits(one, one) == 0
    assert edits(one, other) == edits(other, one)
    assert abs(len(one) - len(other)) <= edits(one, other) <= max(len(one), len(other))
