"""Sums to twenty, sums that continue, and counting; `number_line` has the rest and the held-out
pairs.

The answer says the whole sum ("Three plus four is seven."): the reply is composed of the numbers
heard, so untrained pairs are a fair question. A held-out pair is held out in both orders for plus,
and in every topic, follow-ups included.
"""

from __future__ import annotations

from recipes.bundled.grammar.number_line import NEIGHBORS, NUMBER, TOP, is_heldout
from recipes.bundled.grammar.rules import Fact, Topic, one, step


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
    """Returns a sum and what is then added or subtracted; the follow-up decides whether the fact is
    held out."""
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
        "plus", "ask", "{a} plus {b} is {c}.",
        """what is {a} plus {b}
        how much is {a} plus {b}
        what is the sum of {a} and {b}
        what does {a} plus {b} make
        {a} plus {b}
        what do you get for {a} plus {b}
        add {a} and {b}
        add {a} to {b}
        what is {a} and {b} together
        put {a} and {b} together
        how much is {a} and {b}
        calculate {a} plus {b}
        {a} plus {b} is what
        {a} plus {b} makes what
        if I add {a} to {b} what do I get
        what is the result if I add {a} to {b}
        give me the result when I add {a} and {b}
        what is the total of {a} plus {b}
        give me the total of {a} and {b}
        {a} added to {b} is what
        what is {a} added to {b}
        {a} and {b} make what
        {a} with {b} makes what
        work out the sum of {a} and {b}
        work out how much {a} and {b} is
        find the sum of {a} and {b}
        find out what {a} plus {b} is""",
        """what is the result of {a} plus {b}
        work out {a} plus {b}
        {a} added to {b} makes what
        what is the total of {a} and {b}
        find {a} plus {b}""",
        facts=_sums("plus"),
        weight=9,
    ),
    one(
        "minus", "ask", "{a} minus {b} is {c}.",
        """what is {a} minus {b}
        how much is {a} minus {b}
        what does {a} minus {b} make
        {a} minus {b}
        what do you get for {a} minus {b}
        take {b} from {a}
        subtract {b} from {a}
        take {b} away from {a}
        remove {b} from {a}
        {a} take away {b}
        what is {a} take away {b}
        calculate {a} minus {b}
        {a} minus {b} is what
        {a} minus {b} is how much
        {a} less {b} is what
        how much is {a} less {b}
        if I take {b} from {a} what is left
        how much is left when I take {b} from {a}
        what remains if I remove {b} from {a}
        from {a} remove {b}, how much remains
        what is the result if I take {b} from {a}
        tell me the result of {a} take away {b}
        what is left of {a} minus {b}
        give me the result when I subtract {b} from {a}
        work out {a} take away {b}
        work out how much {a} less {b} is
        start with {a} and take away {b}
        remove {b} from {a} and tell me what is left
        take {b} from {a} and tell me what remains
        if I remove {b} from {a} how much do I have""",
        """what is the result of {a} minus {b}
        work out {a} minus {b}
        remove {b} from {a} and what remains
        {a} less {b} is how much
        how much remains when I take {b} from {a}""",
        facts=_sums("minus"),
        weight=9,
    ),
    Topic(
        "follow-up sums",
        (
            step(
                "ask", "{a} {first} {b} is {c}.",
                """what is {a} {first} {b}
                how much is {a} {first} {b}
                {a} {first} {b}
                calculate {a} {first} {b}
                tell me {a} {first} {b}
                {a} {first} {b} is what
                what does {a} {first} {b} make
                what do you get for {a} {first} {b}""",
                "",
            ),
            step(
                "ask", "{c} {then} {d} is {e}.",
                """and {then} {d}
                and now {then} {d}
                then {then} {d}
                {then} {d}
                and what is that {then} {d}
                what is that {then} {d}
                and that {then} {d}
                make it {then} {d}
                and how much is that {then} {d}
                how much is it {then} {d}
                go on, {then} {d}
                and go on with {then} {d}
                what is the result {then} {d}
                take the result {then} {d}
                take it {then} {d}
                with {then} {d} what is it
                {then} {d} on top of that
                put {then} {d} on top
                and what do I get {then} {d}""",
                """and if you go {then} {d}
                and the result {then} {d}
                and with {then} {d} on top
                take that {then} {d}
                and how much is the result {then} {d}""",
            ),
        ),
        facts=_followed(),
        weight=6.5,
    ),
    one(
        "counting", "do", "{run}.",
        """count from {a} to {b}
        count up from {a} to {b}
        say the numbers from {a} to {b}
        name the numbers from {a} to {b}
        start at {a} and count to {b}
        start with {a} and go on to {b}
        tell me the numbers from {a} to {b}
        give me the numbers {a} to {b}
        count {a} to {b}
        list the numbers from {a} to {b}
        list all numbers from {a} up to {b}
        name all numbers from {a} to {b}
        recite the numbers from {a} to {b}
        recite all numbers from {a} until {b}
        begin at {a} and count up to {b}
        begin with {a} and count to {b}
        begin counting at {a} and end with {b}
        start counting at {a} and stop at {b}
        count from {a} until {b}
        count from {a} and stop at {b}""",
        """list the numbers {a} up to {b}
        recite the numbers {a} up to {b}
        begin with {a} and stop counting at {b}
        name the numbers {a} until {b}
        start with {a} and count up to {b}""",
        facts=tuple(_span(a, b) for a, b in _SPANS),
        weight=2,
    ),
    one(
        "counting", "do", "{run}.",
        """count to {b}
        count up to {b}
        count until {b}
        say the numbers to {b}
        say all numbers up to {b}
        start counting and stop at {b}
        count and stop at {b}
        show me the numbers up to {b}
        show me how you count to {b}
        show that you know the numbers up to {b}
        prove that you can count to {b}
        recite the numbers to {b}
        recite all numbers until {b}
        name the numbers as far as {b}
        tell me the numbers as far as {b}
        list all numbers to {b}
        begin to count and go up to {b}""",
        """show me that you can count as far as {b}
        recite the numbers up to {b}
        count as far as {b}
        say all numbers until {b}""",
        facts=tuple(Fact({"b": NUMBER[b], "run": _run(1, b)}) for b in range(3, 11)),
        weight=0.6,
    ),
    one(
        "counting", "do", "{run}.",
        """count down from {a}
        count backwards from {a}
        count down from {a} to one
        count back from {a}
        count from {a} down to one
        count from {a} back to one
        start at {a} and count down
        start at {a} and go backwards
        count backwards starting at {a}
        say the numbers backwards from {a}
        say the numbers down from {a}
        start a countdown at {a}
        give me a countdown from {a}
        make a countdown from {a} to one
        count in reverse from {a}
        go in reverse from {a}
        name the numbers from {a} back to one""",
        """do a countdown from {a}
        say the numbers in reverse from {a}
        start at {a} and count backwards
        count back from {a} to one""",
        facts=tuple(Fact({"a": NUMBER[a], "run": _run(a, 1)}) for a in range(3, 11)),
        weight=0.6,
    ),
    *NEIGHBORS,
)  # fmt: skip
