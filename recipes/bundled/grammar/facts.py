"""Questions about small tables: colors, opposites, capitals, yes or no."""

from __future__ import annotations

from recipes.bundled.grammar.rules import Fact, Topic, listed, one, table

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
    """Makes the question 'do fish live in water' from 'fish live in water', with a full answer."""
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


# The wordings that a talk may begin with, too.
ASK_COLOR = """what color is {thing}
        which color is {thing}
        what is the color of {thing}
        what color does {thing} have
        which color does {thing} have
        {thing} has what color
        {thing} has which color
        tell me the color of {thing}
        name the color of {thing}
        describe the color of {thing}
        describe {thing} by its color
        how do you call the color of {thing}
        how do you see the color of {thing}
        in what color do you see {thing}
        in which color do we see {thing}
        we find {thing} in what color
        what color can we find on {thing}
        what is the color when you think of {thing}
        think of {thing}, what color is it
        {thing}, what is its color
        name its color, the color of {thing}
        {thing} is of what color
        when you look at {thing} what color is it"""
ASK_CAPITAL = """what is the capital of {x}
        what is the capital city of {x}
        which city is the capital of {x}
        name the capital of {x}
        the capital of {x} is what
        give me the capital of {x}
        what city is the capital of {x}
        what is {x}'s capital
        which city is {x}'s capital
        tell me the capital of {x}
        which capital does {x} have
        {x} has which capital
        {x} has which city as its capital
        which city does {x} have as its capital
        the capital of {x} is which city
        the capital of {x} is called what
        how is the capital of {x} called
        what is the name of the capital of {x}
        what name does the capital of {x} have
        which town is the capital of {x}
        what town is the capital city of {x}
        in which city is {x} governed
        {x} is governed from which city
        from which town is {x} governed
        name the city belonging to {x} as its capital
        which capital is the one belonging to {x}"""

TOPICS: tuple[Topic, ...] = (
    one(
        "colours", "ask", "{thing} is {color}.",
        ASK_COLOR,
        """how would you describe the color of {thing}
        in what color do we find {thing}
        think of {thing} and name its color
        tell me what color {thing} has""",
        facts=tuple(Fact({"thing": thing, "color": color}) for thing, color in COLORS.items()),
    ),
    one(
        "colours", "ask", "{answer}, {thing} is {color}.",
        """is {thing} {asked}
        is the color of {thing} {asked}
        is it true that {thing} is {asked}
        is it right that {thing} is {asked}
        is {thing} {asked} in color
        does {thing} have the color {asked}
        has {thing} the color {asked}
        would you call {thing} {asked}
        would you call the color of {thing} {asked}
        would you say {thing} is {asked}
        would you say that {thing} is {asked}
        {thing} is {asked}, is that true
        {thing} is {asked}, is that right
        {thing} is {asked}, yes or no
        {thing} looks {asked}, is that right
        {thing} looks {asked}, yes or no
        when you look at {thing} is it {asked}
        does {thing} look like it is {asked}
        does {thing} come in {asked}
        am I right that {thing} is {asked}
        {thing} has the color {asked}, is that true""",
        """would you say that {thing} looks {asked}
        does {thing} look {asked}
        is it true that the color of {thing} is {asked}
        {thing} is {asked} in color, yes or no""",
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
        what word is the opposite of {word}
        give me the opposite of {word}
        name the opposite of {word}
        what is not {word} but the opposite
        the opposite of {word} is what
        say the opposite of {word}
        tell me the opposite of {word}
        what is the reverse of {word}
        which word is the reverse of {word}
        give me the reverse of {word}
        what is the contrary of {word}
        name the contrary of {word}
        which word means the contrary of {word}
        what means the opposite of {word}
        {word} is the opposite of what
        {word} is the reverse of which word
        turn {word} into its opposite
        change {word} into its opposite
        turn {word} around
        turn the word {word} around
        if it is not {word} what is it
        what is opposite to {word}""",
        """which word means the reverse of {word}
        {word} is the contrary of what
        turn {word} around into its opposite
        give me the contrary of {word}
        what word means the opposite of {word}""",
        facts=tuple(fact for pair in OPPOSITES for fact in _both_ways(pair)),
        weight=2,
    ),
    one(
        "capitals", "ask", "The capital of {x} is {y}.",
        ASK_CAPITAL,
        """which town does {x} have as its capital
        from which city is {x} governed
        the capital city belonging to {x} is called what
        name the capital city of {x}
        what is the name of {x}'s capital""",
        facts=tuple(Fact({"x": x, "y": y}) for x, y in CAPITALS.items()),
        weight=2,
    ),
    one(
        "capitals", "ask", "{y} is the capital of {x}.",
        """{y} is the capital of which country
        {y} is the capital of what country
        which country has the capital {y}
        of which country is {y} the capital
        what country has {y} as its capital
        what country is {y} the capital of
        {y} is which country's capital
        name the country with the capital {y}
        name the country that has {y} as its capital
        tell me the country with {y} as its capital
        which land has the capital {y}
        of which land is {y} the capital
        {y} is the capital of which land
        which country is governed from {y}
        what country is governed from {y}
        {y} is the capital city of which country
        which country has the capital city {y}
        {y} serves as the capital of which country
        {y} serves which country as its capital
        for which country is {y} the capital""",
        """{y} serves as the capital for which land
        name the country governed from {y}
        which land is governed from {y}
        {y} is the capital city of which land""",
        facts=tuple(Fact({"x": x, "y": y}) for x, y in CAPITALS.items()),
    ),
    one(
        "yes or no", "ask", "{answer}",
        """{asked}
        is it true that {statement}
        is it right that {statement}
        {statement}, is that true
        {statement}, is that right
        {statement}, yes or no
        {statement}, true or false
        is it true or false that {statement}
        right or wrong, {statement}
        is it right or wrong that {statement}
        yes or no, {asked}
        yes or no, {statement}
        {statement}, do you agree
        do we agree that {statement}
        am I right that {statement}
        I say that {statement}, am I right
        I say that {statement}, is it true
        is it true when I say that {statement}
        is it right when people say that {statement}
        would you say that {statement}
        do you think that {statement}
        {statement}, am I right""",
        """would you agree that {statement}
        true or false, {statement}
        am I right when I say that {statement}
        is it right to say that {statement}
        {statement}, right or wrong""",
        facts=tuple(_polar(s, True) for s in YES) + tuple(_polar(s, False) for s in NO),
        weight=2,
    ),
)  # fmt: skip
