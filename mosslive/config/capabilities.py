"""`capabilities.json`: what a model was trained for, as its publishers state it; read strictly.

A folder without the file says nothing: everything is allowed and the context is as long as
`config.json` has positions. Knows no torch and no folder. Invariant: an unknown key is an error,
and every error names the field, its value and what is allowed.
"""

import re
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from mosslive.config.files import ConfigError, refuse

Medium = Literal["speech", "text"]
# Input, then output.
Mode = Literal["speech-to-speech", "speech-to-text", "text-to-speech", "text-to-text"]
LEAST_CONTEXT_ROWS = 64

_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")


@dataclass(frozen=True)
class Capabilities:
    # Rows of a conversation that the model uses well; None: as many as it has positions.
    context_rows: int | None = None
    modes: tuple[Mode, ...] = get_args(Mode)
    languages: tuple[str, ...] = ()  # BCP 47 tags; empty: not stated
    voices: bool = True  # whether replies sound like the voice that is asked for
    transcripts: bool = False  # whether its transcripts are good enough to be shown by default

    def __post_init__(self) -> None:
        rows = self.context_rows
        if rows is not None and (type(rows) is not int or rows < LEAST_CONTEXT_ROWS):
            raise refuse("context_rows", rows, f"{LEAST_CONTEXT_ROWS} rows or more, or null")
        self._check_names("modes", get_args(Mode), ", ".join(get_args(Mode)))
        if not self.modes:
            raise refuse("modes", [], "one or more of " + ", ".join(get_args(Mode)))
        self._check_names("languages", None, 'BCP 47 tags such as "en"')
        for name in ("voices", "transcripts"):
            if not isinstance(getattr(self, name), bool):
                raise refuse(name, getattr(self, name), "true or false")

    def supports(self, heard: Medium, reply: Medium) -> bool:
        return f"{heard}-to-{reply}" in self.modes

    def limit(self, asked: int | None) -> int | None:
        """Returns the limit of a conversation's rows. `asked`: the user's, which counts if there is
        one. None: no limit is set."""
        return self.context_rows if asked is None else asked

    def warnings(self, context_rows: int | None, voice: object) -> list[str]:
        """What the user asks for and the model was not trained for. `context_rows`, `voice`: the
        values of the options, None if not given."""
        found, most = [], self.context_rows
        if context_rows is not None and most is not None and context_rows > most:
            found.append(
                f"--context-rows is {context_rows}; this model was trained for {most}, and its "
                "replies become worse in longer conversations"
            )
        if voice is not None and not self.voices:
            found.append("--voice has no effect: this model speaks with one voice")
        return found

    def replies(self) -> tuple[Medium, ...]:
        """The kinds of output that it has for at least one kind of input."""
        return tuple(
            medium
            for medium in get_args(Medium)
            if any(mode.endswith(f"-to-{medium}") for mode in self.modes)
        )

    def _check_names(self, name: str, known: tuple[str, ...] | None, allowed: str) -> None:
        values = getattr(self, name)
        if not isinstance(values, tuple):
            raise refuse(name, values, f"a list of {allowed}")
        for value in values:
            right = isinstance(value, str) and (
                value in known if known is not None else _LANGUAGE.fullmatch(value)
            )
            if not right:
                raise refuse(name, value, allowed)
        if len(set(values)) != len(values):
            raise refuse(name, list(values), "each value once")


def capabilities_from(raw: dict[str, Any]) -> Capabilities:
    """A parsed `capabilities.json`."""
    known = [one.name for one in fields(Capabilities)]
    for name, value in raw.items():
        if name not in known:
            raise ConfigError(f"{name} is {value!r}, an unknown key; allowed: {', '.join(known)}")
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()
    }
    return Capabilities(**values)
