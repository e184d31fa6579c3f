"""Dialogues in which the user states something and later asks for it.

A name, a pet's name, a color, a thing; once with a sum in between. The answer was said only in this
dialogue, so it has to be copied from there.
"""

from __future__ import annotations

import random

from recipes.bundled.grammar import words
from recipes.bundled.grammar.echo import (
    ASK_MY_NAME,
    INTRODUCE,
    NAMES,
    fact,
    open_word,
    sample_name,
)
from recipes.bundled.grammar.number_line import NUMBER, is_heldout
from recipes.bundled.grammar.numbers import pairs, result
from recipes.bundled.grammar.rules import Fact, Pool, Topic, listed, step, vocabulary
from recipes.bundled.grammar.sentences import article

RECALL = step("ask", "Your name is {name}.", *ASK_MY_NAME)
PET_KINDS = listed("dog cat horse rabbit mouse bird fish frog")
FAVORITES = listed(
    """
    red blue green yellow orange purple pink black white brown gray
    """
)


def sample_name_and_sum(rng: random.Random, pool: Pool) -> Fact:
    """Returns a name, and a sum between stating it and asking for it."""
    a, b = rng.choice([pair for pair in pairs("plus") if not is_heldout("plus", *pair)])
    named = sample_name(rng, pool)
    more = {"a": NUMBER[a], "b": NUMBER[b], "c": NUMBER[result("plus", a, b)]}
    return Fact({**named.slots, **more}, named.heldout_by)


def sample_pet(rng: random.Random, pool: Pool) -> Fact:
    named = sample_name(rng, pool)
    return Fact({**named.slots, "pet": rng.choice(PET_KINDS)}, named.heldout_by)


def sample_thing(rng: random.Random, pool: Pool) -> Fact:
    noun = open_word("noun", rng, pool)
    return fact({"noun": noun, "a_noun": article(noun)}, pool)


TOPICS: tuple[Topic, ...] = (
    Topic(
        "talk: my name",
        (INTRODUCE, RECALL),
        sample_fact=sample_name,
        vocabulary=NAMES,
        weight=3,
    ),
    Topic(
        "talk: my name",
        (
            INTRODUCE,
            step(
                "ask", "{a} plus {b} is {c}.",
                """what is {a} plus {b}
                how much is {a} plus {b}
                {a} plus {b}
                what is the sum of {a} and {b}
                add {a} and {b}
                calculate {a} plus {b}
                {a} plus {b} is what
                what do you get for {a} plus {b}""",
                "",
            ),
            RECALL,
        ),
        sample_fact=sample_name_and_sum,
        vocabulary=NAMES | vocabulary(NUMBER),
        weight=1.5,
    ),
    Topic(
        "talk: my pet",
        (
            step(
                "say", "{name} is a nice name for a {pet}.",
                """I have a {pet} called {name}
                my {pet} is called {name}
                my {pet}'s name is {name}
                I have a {pet}, its name is {name}
                {name} is the name of my {pet}
                the name of my {pet} is {name}
                I have a {pet} named {name}
                we have a {pet} called {name}
                our {pet} is called {name}
                I call my {pet} {name}
                we call our {pet} {name}
                I named my {pet} {name}
                my {pet} answers to the name {name}
                our {pet} answers when we call {name}
                there is a {pet} at our house, it is called {name}
                the {pet} at my house is {name}
                {name} is my {pet}""",
                """the {pet} at our house answers to {name}
                we named our {pet} {name}
                my {pet} is named {name}""",
            ),
            step(
                "ask", "Your {pet} is called {name}.",
                """what is my {pet} called
                what is the name of my {pet}
                what is my {pet}'s name
                how is my {pet} called
                do you know the name of my {pet}
                do you remember the name of my {pet}
                do you remember my {pet}'s name
                what do I call my {pet}
                what do we call our {pet}
                how do we call the {pet}
                which name does my {pet} have
                what name does the {pet} have
                which name did I give the {pet}
                what name did I give my {pet}
                tell me the name of my {pet}
                remind me of my {pet}'s name
                remind me what my {pet} is called
                what did I say my {pet} is called
                who is my {pet}""",
                """which name did I give to my {pet}
                remind me how we call the {pet}
                what name does my {pet} have
                do you remember what my {pet} is called""",
            ),
        ),
        sample_fact=sample_pet,
        vocabulary=NAMES | vocabulary(PET_KINDS),
        weight=2,
    ),
    Topic(
        "talk: my color",
        (
            step(
                "say", "{color} is a lovely color.",
                """my favorite color is {color}
                I like {color}
                I like the color {color}
                I like {color} best
                {color} is my favorite color
                {color} is the color I like
                I love {color}
                I love the color {color}
                my color is {color}
                the color I like best is {color}
                I prefer {color}
                I prefer the color {color}
                {color} is prettier than the rest
                no color is prettier than {color}
                nothing is better than {color}
                nothing is as pretty as {color}""",
                """nothing is prettier to me than {color}
                I love {color} best
                the color I prefer is {color}""",
            ),
            step(
                "ask", "Your favorite color is {color}.",
                """what is my favorite color
                which color do I like
                what color do I like best
                do you remember my favorite color
                do you remember which color I like
                do you know my favorite color
                which color is my favorite
                what color is my favorite
                tell me my favorite color
                what color did I say I like
                which color did I say I love
                what was my favorite color
                which of the colors is my favorite
                which of the colors do I prefer
                do you know the color I prefer
                what color do I love most
                what color pleases me
                which color pleases me most""",
                """what color did I say I prefer
                which of the colors pleases me most
                do you remember the color I like
                which color did I say is my favorite""",
            ),
        ),
        facts=tuple(Fact({"color": color}) for color in FAVORITES),
        weight=0.8,
    ),
    Topic(
        "talk: my thing",
        (
            step(
                "say", "What a nice {noun}!",
                """look at my {noun}
                look at my new {noun}
                look, {a_noun}
                I bought a new {noun}
                I bought {a_noun}
                I have a new {noun}
                I have {a_noun}
                I got {a_noun}
                I found {a_noun}
                here is my {noun}
                this is my {noun}
                this {noun} is mine
                this {noun} is new
                somebody gave me {a_noun}
                my friend gave me {a_noun}
                somebody bought me a new {noun}
                my friend got me this {noun}
                I want to show you my {noun}""",
                """somebody gave me this {noun}
                look at this {noun}
                my friend bought me {a_noun}""",
            ),
            step(
                "ask", "You have {a_noun}.",
                """what do I have
                what did I tell you about
                what is it that I have
                what thing do I have
                which thing do I have
                what did I show you
                what thing did I show you
                what did I say I have
                tell me what I have
                what did I talk about
                which object do I have
                what object did I show you
                which thing did I mention
                what did I mention
                which thing were we talking about
                what were we talking about
                what was it that I have
                what was the thing I have
                do you remember what I have
                do you remember my thing""",
                """which object did I mention
                what was I talking about
                do you remember the thing I have
                what object do I have""",
            ),
        ),
        sample_fact=sample_thing,
        vocabulary=vocabulary(words.NOUNS, words.HELDOUT_NOUNS),
        weight=2,
    ),
)  # fmt: skip
