"""The result of one check of `mosslive doctor`. Data only."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Check:
    name: str
    state: State  # warning: something optional is missing; error: something needed
    detail: str
    fix: str | None = None  # the command or the step that mends it
