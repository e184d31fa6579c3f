"""Sums to twenty, counting, and what comes next: numbers and pairs of numbers.

The answer says the whole sum ("Three plus four is seven."): the reply is composed of the numbers
heard, so pairs that were never trained are a fair question. A held-out pair is held out in both
orders for plus, and in every topic, follow-ups included.
"""

from __future__ import annotations

import zlib

from recipes.bundled.grammar.rules import Fact, Topic, listed, one, step

NUMBER = listed(
    """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
    fifteen sixteen seventeen eighteen nineteen twenty
    """
)
TOP = 20


def is_heldout(sign: str, a: int, b: int) -> bool:
    """About one pair in eight, spread by a checksum so that no row or column is missing."""
    low, high = sorted((a, b)) if sign == "plus" else (a, b)
    return zlib.crc32(f"{sign} {low} {high}".encode()) % 8 == 3


def result(sign: str, a: int, b: int) -> int:
    return a + b if sign == "plus" else a - b


def pairs(sign: str) -> list[tuple[int, int]]:
    every = [(a, b) for a in range(1, TOP + 1) for b in range(1, TOP + 1)]
    return [(a, b) for a, b in every if 0 <= result(sign, a, b) <= TOP]


def _sums(sign: str) -> tuple[Fact, ...]:
    return tuple(
        Fact(
            {"a": NUMBER[a], "b": NUMBER[b], "c": NUMBER[result(sign, a, b)]},
            "pair" if is_heldout(sign, a, b) else "",
        )
        for a, b in pairs(sign)
    )


def _followed() -> tuple[Fact, ...]:
    """A sum and what is then added or taken; the follow-up decides whether the fact is held out."""
    facts = []
    for first in ("plus", "minus"):
        for a, b in pairs(first):
            if is_heldout(first, a, b):
                continue
            c = result(first, a, b)
            for then in ("plus", "minus"):
                for d in range(1, 10):
                    if (c, d) in _ALL[then]:
                        facts.append(_follow(first, a, b, then, d))
    return tuple(facts)


def _follow(first: str, a: int, b: int, then: str, d: int) -> Fact:
    c = result(first, a, b)
    slots = {
        "a": NUMBER[a],
        "first": first,
        "b": NUMBER[b],
        "c": NUMBER[c],
        "then": then,
        "d": NUMBER[d],
        "e": NUMBER[result(then, c, d)],
    }
    return Fact(slots, "pair" if is_heldout(then, c, d) else "")


_ALL = {sign: frozenset(pairs(sign)) for sign in ("plus", "minus")}
_SPANS = [(a, b) for a in range(1, TOP) for b in range(a + 2, min(a + 8, TOP) + 1)]


def _run(a: int, b: int) -> str:
    way = 1 if b >= a else -1
    return " ".join(NUMBER[n] for n in range(a, b + way, way))


def _span(a: int, b: int) -> Fact:
    slots = {"a": NUMBER[a], "b": NUMBER[b], "run": _run(a, b)}
    return Fact(slots, "pair" if is_heldout("count", a, b) else "")


TOPICS: tuple[Topic, ...] = (
    one(
        "plus",
        "ask",
        "{a} plus {b} is {c}.",
        """what is {a} plus {b}
        how much is {a} plus {b}
        what is the sum of {a} and {b}
        what does {a} plus {b} make
        {a} plus {b}
        what do you get for {a} plus {b}
        add {a} and {b}
        what is {a} and {b} together
        how much is {a} and {b}
        calculate {a} plus {b}
        {a} plus {b} is what
        if I add {b} to {a} what do I get""",
        """what is the result of {a} plus {b}
        work out {a} plus {b}
        {a} added to {b} makes what
        what is the total of {a} and {b}""",
        facts=_sums("plus"),
        weight=5,
    ),
    one(
        "minus",
        "ask",
        "{a} minus {b} is {c}.",
        """what is {a} minus {b}
        how much is {a} minus {b}
        what does {a} minus {b} make
        {a} minus {b}
        what do you get for {a} minus {b}
        take {b} from {a}
        subtract {b} from {a}
        {a} take away {b}
        what is {a} take away {b}
        calculate {a} minus {b}
        {a} minus {b} is what
        if I take {b} from {a} what is left""",
        """what is the result of {a} minus {b}
        work out {a} minus {b}
        remove {b} from {a} and what remains
        {a} less {b} is how much""",
        facts=_sums("minus"),
        weight=5,
    ),
    Topic(
        "follow-up sums",
        (
            step(
                "ask",
                "{a} {first} {b} is {c}.",
                "what is {a} {first} {b}\nhow much is {a} {first} {b}\n"
                "{a} {first} {b}\ncalculate {a} {first} {b}",
                "",
            ),
            step(
                "ask",
                "{c} {then} {d} is {e}.",
                """and {then} {d}
                and now {then} {d}
                then {then} {d}
                {then} {d}
                and what is that {then} {d}
                what is that {then} {d}""",
                """and if you go {then} {d}
                and the result {then} {d}
                and with {then} {d} on top""",
            ),
        ),
        facts=_followed(),
        weight=3,
    ),
    one(
        "counting",
        "do",
        "{run}.",
        """count from {a} to {b}
        count up from {a} to {b}
        say the numbers from {a} to {b}
        name the numbers from {a} to {b}
        start at {a} and count to {b}
        tell me the numbers from {a} to {b}
        give me the numbers {a} to {b}
        count {a} to {b}""",
        """list the numbers between {a} and {b}
        recite the numbers {a} up to {b}
        begin with {a} and stop counting at {b}""",
        facts=tuple(_span(a, b) for a, b in _SPANS),
        weight=2,
    ),
    one(
        "counting",
        "do",
        "{run}.",
        """count to {b}
        count up to {b}
        count until {b}
        say the numbers to {b}
        start counting and stop at {b}""",
        """show me that you can count as far as {b}
        recite the numbers up to {b}""",
        facts=tuple(Fact({"b": NUMBER[b], "run": _run(1, b)}) for b in range(3, 11)),
        weight=0.5,
    ),
    one(
        "counting",
        "do",
        "{run}.",
        """count down from {a}
        count backwards from {a}
        count down from {a} to one
        count back from {a}
        start at {a} and count down""",
        """do a countdown from {a}
        say the numbers in reverse from {a}""",
        facts=tuple(Fact({"a": NUMBER[a], "run": _run(a, 1)}) for a in range(3, 11)),
        weight=0.5,
    ),
    one(
        "next number",
        "ask",
        "After {a} comes {b}.",
        """what comes after {a}
        which number comes after {a}
        what number follows {a}
        what is the number after {a}
        what is the next number after {a}
        what follows {a}""",
        """which number do I say once I have said {a}
        {a} is followed by which number""",
        facts=tuple(Fact({"a": NUMBER[n], "b": NUMBER[n + 1]}) for n in range(TOP)),
    ),
    one(
        "next number",
        "ask",
        "Before {a} comes {b}.",
        """what comes before {a}
        which number comes before {a}
        what number is before {a}
        what is the number before {a}""",
        """which number leads up to {a}
        {a} is preceded by which number""",
        facts=tuple(Fact({"a": NUMBER[n], "b": NUMBER[n - 1]}) for n in range(1, TOP + 1)),
    ),
    one(
        "more or less",
        "ask",
        "{c}, {a} is {d} than {b}.",
        """is {a} more than {b}
        is {a} bigger than {b}
        is {a} larger than {b}
        is {a} a bigger number than {b}""",
        """does {a} exceed {b}
        is {a} higher up than {b}""",
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
)
