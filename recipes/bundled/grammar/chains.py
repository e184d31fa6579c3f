"""Sums of three numbers, which make a small model add instead of memorising sums.

Two numbers have a few hundred sums, which any model can memorise; then it fails on a missing pair.
Three numbers have thousands. The easiest way to answer them is to place numbers on a line and move
along it, and that also answers the missing pairs. (A toy of 0.1 million weights, 1,500 steps, three
seeds: 95 to 100 % of the held-out pairs right with these sums, 5 % without, though it knows what
comes next, before and between.)

No chain contains or passes through a held-out pair; see `_heldout_inside`.
"""

from __future__ import annotations

from recipes.bundled.grammar.number_line import NUMBER, is_heldout
from recipes.bundled.grammar.numbers import pairs, result
from recipes.bundled.grammar.rules import Fact, Topic, one

_SIGNS = ("plus", "minus")
_ALL = {sign: frozenset(pairs(sign)) for sign in _SIGNS}


def _heldout_inside(first: str, a: int, b: int, then: str, d: int) -> bool:
    """Returns whether a chain contains a held-out pair, or reaches one from the left or, if all is
    added, in another order."""
    met = [(first, a, b), (then, result(first, a, b), d), (then, b, d)]
    if first == then == "plus":
        met += [("plus", a, d)]
    return any(is_heldout(*sum_) for sum_ in met)


def _chains() -> tuple[Fact, ...]:
    return tuple(
        Fact(
            {
                "a": NUMBER[a],
                "first": first,
                "b": NUMBER[b],
                "then": then,
                "d": NUMBER[d],
                "e": NUMBER[result(then, result(first, a, b), d)],
            }
        )
        for first in _SIGNS
        for a, b in pairs(first)
        for then in _SIGNS
        for d in range(1, 10)
        if (result(first, a, b), d) in _ALL[then] and not _heldout_inside(first, a, b, then, d)
    )


_SUM = "{a} {first} {b} {then} {d}"

TOPICS: tuple[Topic, ...] = (
    one(
        "long sums", "ask", f"{_SUM} is {{e}}.",
        """what is SUM
        how much is SUM
        SUM
        calculate SUM
        tell me SUM
        SUM is what
        SUM makes what
        SUM is how much
        what does SUM make
        what do you get for SUM
        what is the total of SUM
        give me the total of SUM
        find out what SUM is
        find out how much SUM is
        work out what SUM is
        work out how much SUM makes
        what is the result if I calculate SUM
        give me the result when you calculate SUM""".replace("SUM", _SUM),
        """what is the result of SUM
        work out SUM
        find SUM
        give me the result of SUM""".replace("SUM", _SUM),
        facts=_chains(),
        weight=3,
    ),
)  # fmt: skip
