"""The numbers to twenty, which pairs of them are held out, and questions about their order.

A small model can answer an unseen sum only if it knows the order of numbers and not just a list of
sums. So the neighbours of a held-out pair are trained: the rule is a lattice, no two held-out pairs
are adjacent, and pairs at the edge, where a number has few sums, are never held out. Questions
about next, before and between teach the order of every number.
"""

from __future__ import annotations

from recipes.bundled.grammar.rules import Fact, Topic, listed, one

NUMBER = listed(
    """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
    fifteen sixteen seventeen eighteen nineteen twenty
    """
)
TOP = 20
# One pair in eight of the grid of pairs is held out; without the edge, about one in ten of all.
_STEP, _PLACE = 8, {"plus": 7, "minus": 6, "count": 5, "more": 3}
_EDGE = 15  # in a sum: a larger number has fewer than six sums


def is_heldout(sign: str, a: int, b: int) -> bool:
    """Plus and more are held out in both orders, because one implies the other. Counting from one
    is never held out: "count to six" says the same."""
    low, high = sorted((a, b)) if sign in ("plus", "more") else (a, b)
    edge = {
        "plus": high > _EDGE or low < 2,
        "minus": a - b < 1 or a < TOP - _EDGE or b > _EDGE or b < 2,
        "count": a == 1,
        "more": False,
    }
    return not edge[sign] and (low + 2 * high) % _STEP == _PLACE[sign]


NEIGHBORS: tuple[Topic, ...] = (
    one(
        "next number", "ask", "After {a} comes {b}.",
        """what comes after {a}
        which number comes after {a}
        what number follows {a}
        what is the number after {a}
        what is the next number after {a}
        what follows {a}
        which number follows {a}
        after {a} comes what
        after {a} comes which number
        name the number after {a}
        name the number that comes after {a}
        tell me the number that comes next after {a}
        which number is next after {a}
        {a} comes before which number
        what number do I say after {a}
        I have said {a}, what do I say next
        once I have said {a} what follows
        once I said {a} which number is next
        which number is {a} followed by
        by which number is {a} followed
        name the number that {a} is followed by
        what is one more than {a}
        what number is one more than {a}""",
        """which number do I say once I have said {a}
        {a} is followed by which number
        which number is one more than {a}
        name the number that follows {a}""",
        facts=tuple(Fact({"a": NUMBER[n], "b": NUMBER[n + 1]}) for n in range(TOP)),
        weight=1.5,
    ),
    one(
        "next number", "ask", "Before {a} comes {b}.",
        """what comes before {a}
        which number comes before {a}
        what number is before {a}
        what is the number before {a}
        which number is before {a}
        before {a} comes what
        before {a} comes which number
        name the number before {a}
        tell me the number before {a}
        which number do I say before {a}
        when I count what do I say before {a}
        {a} comes after which number
        by which number is {a} preceded
        which number is {a} preceded by
        name the number that {a} is preceded by
        {a} follows which number
        what leads up to {a}
        what number leads up to {a}
        what is one less than {a}
        what number is one less than {a}""",
        """which number leads up to {a}
        {a} is preceded by which number
        which number is one less than {a}
        what number do I say before {a}""",
        facts=tuple(Fact({"a": NUMBER[n], "b": NUMBER[n - 1]}) for n in range(1, TOP + 1)),
        weight=1.5,
    ),
    one(
        "next number", "ask", "Between {a} and {c} comes {b}.",
        """which number is between {a} and {c}
        what number is between {a} and {c}
        what is between {a} and {c}
        what comes between {a} and {c}
        which number comes between {a} and {c}
        name the number between {a} and {c}
        tell me the number between {a} and {c}
        the number between {a} and {c} is what
        between {a} and {c} comes what
        what number lies between {a} and {c}
        what lies between {a} and {c}
        what comes after {a} and before {c}
        after {a} and before {c} comes what
        which number is after {a} and before {c}""",
        """between {a} and {c} is which number
        what number comes between {a} and {c}
        after {a} and before {c} comes which number
        which number lies between {a} and {c}""",
        facts=tuple(
            Fact({"a": NUMBER[n - 1], "b": NUMBER[n], "c": NUMBER[n + 1]}) for n in range(1, TOP)
        ),
        weight=0.8,
    ),
    one(
        "more or less", "ask", "{c}, {a} is {d} than {b}.",
        """is {a} more than {b}
        is {a} bigger than {b}
        is {a} larger than {b}
        is {a} a bigger number than {b}
        is {a} a larger number than {b}
        is {a} greater than {b}
        is {a} higher than {b}
        is the number {a} higher than {b}
        is {a} further up than {b}
        does {a} come further up than {b}
        does {a} come after {b}
        is it true that {a} is more than {b}
        is it true that {a} is larger than {b}
        {a} is more than {b}, is that true
        {a} is greater than {b}, is that true
        {a} is bigger than {b}, yes or no
        would you say {a} is more than {b}
        can {a} exceed {b}
        will the number {a} exceed {b}""",
        """does {a} exceed {b}
        is {a} higher up than {b}
        is {a} a greater number than {b}
        is it true that {a} is bigger than {b}""",
        facts=tuple(
            Fact(
                {
                    "a": NUMBER[a],
                    "b": NUMBER[b],
                    "c": "Yes" if a > b else "No",
                    "d": "more" if a > b else "less",
                },
                "pair" if is_heldout("more", a, b) else "",
            )
            for a in range(1, TOP + 1)
            for b in range(1, TOP + 1)
            if a != b
        ),
        weight=2,
    ),
)  # fmt: skip
