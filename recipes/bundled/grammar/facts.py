"""Days and months, colors, opposites, capitals, yes or no: small tables that are asked about."""

from __future__ import annotations

from recipes.bundled.grammar.rules import Fact, Topic, listed, one, table

DAYS = listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = listed(
    """
    January February March April May June July August September October November December
    """
)
ORDINALS = listed(
    """
    first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth
    """
)

COLORS = table(
    """
    grass: green / the sky: blue / snow: white / coal: black / blood: red / a banana: yellow /
    an orange: orange / milk: white / a lemon: yellow / a frog: green / chocolate: brown / the
    sun: yellow / a strawberry: red / an elephant: gray / a carrot: orange / a cherry: red /
    the sea: blue / a pig: pink / the night: black / a leaf: green / a plum: purple / salt:
    white / an olive: green / a bear: brown / a swan: white / a tomato: red / a pea: green /
    corn: yellow / a mouse: gray
    """
)

OPPOSITES = listed(
    """
    hot cold / big small / up down / left right / fast slow / day night / good bad / happy sad
    / open closed / high low / old young / rich poor / wet dry / full empty / hard soft / light
    dark / long short / strong weak / early late / inside outside / black white / true false /
    clean dirty / thick thin / loud quiet / first last / near far / easy difficult / above
    below / begin end / win lose / love hate / yes no / start stop / summer winter / morning
    evening / push pull / north south / east west / sharp dull / smooth rough / sweet sour /
    brave afraid / give take / buy sell / come go / laugh cry / wide narrow / deep shallow
    """,
    "/",
)

CAPITALS = table(
    """
    France: Paris / England: London / Spain: Madrid / Italy: Rome / Germany: Berlin / Russia:
    Moscow / China: Beijing / Japan: Tokyo / Egypt: Cairo / Greece: Athens / Portugal: Lisbon /
    Austria: Vienna / Poland: Warsaw / Hungary: Budapest / Ireland: Dublin / Norway: Oslo /
    Sweden: Stockholm / Denmark: Copenhagen / Finland: Helsinki / Cuba: Havana / Canada: Ottawa
    / Turkey: Ankara / Peru: Lima / Chile: Santiago / Kenya: Nairobi / Thailand: Bangkok /
    Scotland: Edinburgh / Belgium: Brussels / Mexico: Mexico City / Iran:
    Tehran / Iraq: Baghdad / Romania: Bucharest / Bulgaria: Sofia / Argentina: Buenos Aires /
    Australia: Canberra / Iceland: Reykjavik / Vietnam: Hanoi
    """
)

YES = listed(
    """
    water is wet / ice is cold / fire is hot / the earth is round / the sun is a star / a rose
    is a flower / London is a city / Africa is large / gold is a metal / bread is food / a week
    has seven days / a year has twelve months / a car has wheels / a book has pages / a house
    has a roof / a hand has fingers / a tree has leaves / a triangle has three sides / a square
    has four sides / a clock shows the time / fish live in water / birds have wings / bees make
    honey / cows eat grass / snow falls in winter / plants need light / people need air /
    planes fly / ships sail / dogs bark
    """,
    "/",
)
NO = listed(
    """
    ice is hot / fire is cold / the moon is a star / a stone is soft / milk is black / a potato
    is a flower / Paris is a country / sugar is salty / glass is food / a week has nine days /
    a year has ten months / a fish has legs / a snake has arms / a book has wheels / a house
    has wings / a square has five sides / cows fly / dogs read / trees walk / cats bark /
    stones swim / chairs eat / cars sleep / horses drive / fish sing
    """,
    "/",
)


def _polar(statement: str, true: bool) -> Fact:
    """'fish live in water' asked as 'do fish live in water', answered in full."""
    words = statement.split()
    verb = next(word for word in words[1:] if word in _VERBS)
    at = words.index(verb)
    subject, rest = " ".join(words[:at]), " ".join(words[at + 1 :])
    if verb == "is":
        asked, denied = f"is {subject} {rest}", f"{subject} is not {rest}"
    elif verb in ("has", "shows"):
        base = {"has": "have", "shows": "show"}[verb]
        asked, denied = f"does {subject} {base} {rest}", f"{subject} does not {base} {rest}"
    elif verb == "falls":
        asked, denied = f"does {subject} fall {rest}", f"{subject} does not fall {rest}"
    else:
        asked = f"do {subject} {verb} {rest}".strip()
        denied = f"{subject} do not {verb} {rest}".strip()
    answer = f"Yes, {statement}." if true else f"No, {denied}."
    return Fact({"asked": asked, "statement": statement, "answer": answer})


_VERBS = listed(
    """
    is has live have make shows eat falls need fly sail bark read walk swim sleep drive sing
    """
)


def _both_ways(pair: str) -> list[Fact]:
    a, b = pair.split()
    return [Fact({"word": a, "other": b}), Fact({"word": b, "other": a})]


def _neighbors(ring: tuple[str, ...], shift: int) -> tuple[Fact, ...]:
    size = len(ring)
    return tuple(Fact({"x": ring[i], "y": ring[(i + shift) % size]}) for i in range(size))


def _calendar(ring: tuple[str, ...], noun: str) -> list[Topic]:
    after = one(
        f"{noun}s",
        "ask",
        "After {x} comes {y}.",
        f"""what {noun} comes after {{x}}
        which {noun} comes after {{x}}
        which {noun} follows {{x}}
        what is the {noun} after {{x}}
        what is the next {noun} after {{x}}
        {{x}} comes before which {noun}
        if it is {{x}} what is the next {noun}""",
        f"""{{x}} is followed by which {noun}
        when {{x}} is over which {noun} begins
        name the {noun} right behind {{x}}""",
        facts=_neighbors(ring, 1),
    )
    before = one(
        f"{noun}s",
        "ask",
        "Before {x} comes {y}.",
        f"""what {noun} comes before {{x}}
        which {noun} comes before {{x}}
        which {noun} is before {{x}}
        what is the {noun} before {{x}}
        {{x}} comes after which {noun}
        what {noun} was it before {{x}}""",
        f"""{{x}} is preceded by which {noun}
        which {noun} ends when {{x}} begins""",
        facts=_neighbors(ring, -1),
    )
    whole = "week" if noun == "day" else "year"
    nth = one(
        f"{noun}s",
        "ask",
        f"The {{n}} {noun} is {{x}}.",
        f"""what is the {{n}} {noun}
        what is the {{n}} {noun} of the {whole}
        which {noun} is the {{n}}
        which is the {{n}} {noun} of the {whole}
        name the {{n}} {noun}""",
        f"""what do we call {noun} number {{n}} in a {whole}
        which {noun} of the {whole} comes {{n}}""",
        facts=tuple(Fact({"n": ORDINALS[i], "x": x}) for i, x in enumerate(ring)),
    )
    return [after, before, nth]


TOPICS: tuple[Topic, ...] = (
    *_calendar(DAYS, "day"),
    *_calendar(MONTHS, "month"),
    one(
        "months", "ask", "There are {n} {x} in a {y}.",
        """how many {x} are in a {y}
        how many {x} are there in a {y}
        how many {x} does a {y} have
        how many {x} has a {y}
        what is the number of {x} in a {y}""",
        """a {y} contains how many {x}
        how many {x} make up one {y}""",
        facts=tuple(
            Fact(dict(zip("nxy", row.split(), strict=True)))
            for row in listed(
    "seven days week/twelve months year/sixty minutes hour/sixty seconds minute/four seasons "
    "year/two wheels bicycle/five fingers hand/three sides triangle", "/"
)
        ),
        weight=0.5,
    ),
    one(
        "colours", "ask", "{thing} is {color}.",
        """what color is {thing}
        which color is {thing}
        what is the color of {thing}
        what color does {thing} have
        which color does {thing} have
        {thing} has what color""",
        """how would you describe the color of {thing}
        in what color do we find {thing}
        think of {thing} and name its color""",
        facts=tuple(Fact({"thing": thing, "color": color}) for thing, color in COLORS.items()),
    ),
    one(
        "colours", "ask", "{answer}, {thing} is {color}.",
        """is {thing} {asked}
        is the color of {thing} {asked}
        is it true that {thing} is {asked}
        is {thing} {asked} in color""",
        """would you say that {thing} looks {asked}
        does {thing} look {asked}""",
        facts=tuple(
            Fact({"thing": t, "color": c, "asked": a, "answer": "Yes" if a == c else "No"})
            for t, c in COLORS.items()
            for a in dict.fromkeys((c, "red", "blue", "green", "white"))
        ),
    ),
    one(
        "opposites", "ask", "The opposite of {word} is {other}.",
        """what is the opposite of {word}
        what is the opposite word of {word}
        which word is the opposite of {word}
        give me the opposite of {word}
        name the opposite of {word}
        what is not {word} but the opposite
        the opposite of {word} is what
        say the opposite of {word}""",
        """which word means the reverse of {word}
        {word} is the contrary of what
        turn {word} around into its opposite""",
        facts=tuple(fact for pair in OPPOSITES for fact in _both_ways(pair)),
        weight=2,
    ),
    one(
        "capitals", "ask", "The capital of {x} is {y}.",
        """what is the capital of {x}
        what is the capital city of {x}
        which city is the capital of {x}
        name the capital of {x}
        the capital of {x} is what
        give me the capital of {x}
        what city is the capital of {x}
        what is {x}'s capital""",
        """which town does {x} have as its capital
        from which city is {x} governed
        the capital city belonging to {x} is called what""",
        facts=tuple(Fact({"x": x, "y": y}) for x, y in CAPITALS.items()),
        weight=2,
    ),
    one(
        "capitals", "ask", "{y} is the capital of {x}.",
        """{y} is the capital of which country
        which country has the capital {y}
        of which country is {y} the capital
        what country has {y} as its capital""",
        """{y} serves as the capital for which land
        name the country governed from {y}""",
        facts=tuple(Fact({"x": x, "y": y}) for x, y in CAPITALS.items()),
    ),
    one(
        "yes or no", "ask", "{answer}",
        """{asked}
        is it true that {statement}
        is it right that {statement}
        {statement}, is that true
        {statement}, yes or no""",
        """would you agree that {statement}
        true or false, {statement}
        am I right when I say that {statement}""",
        facts=tuple(_polar(s, True) for s in YES) + tuple(_polar(s, False) for s in NO),
        weight=2,
    ),
)  # fmt: skip
