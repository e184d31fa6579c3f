"""Damage of files, and what every format must do with it: refuse it, or work.

A `Subject` is some files of the product and a function that uses them. Knows no format: a use that
returns has computed something finite, and a refusal is a `MossliveError`.
"""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mosslive.errors import MossliveError

LONG = bool(os.environ.get("LONG_TESTS"))
_TEXT = (".json", ".yaml")
_KINDS = ("flip", "set", "zero", "cut", "grow", "swap")


@dataclass(frozen=True)
class Damage:
    """`where`: 0 to 1, of the file. `seed`: of everything else."""

    kind: str
    where: float
    seed: int

    def of(self, data: bytes, is_text: bool = False) -> bytes:
        if not data:
            return b"x"
        choose, at = random.Random(self.seed), min(int(self.where * len(data)), len(data) - 1)
        match self.kind:
            case "flip":
                return data[:at] + bytes([data[at] ^ 1 << choose.randrange(8)]) + data[at + 1 :]
            case "set":  # texts stay texts, so that the damage reaches values
                byte = choose.choice(b'0123456789eE+-."{}[]:, \nx') if is_text else 0xFF
                return data[:at] + bytes([byte]) + data[at + 1 :]
            case "zero":
                count = choose.choice((1, 8, 64, 4096))
                return data[:at] + bytes(len(data[at : at + count])) + data[at + count :]
            case "cut":
                return data[:at]
            case "grow":
                return data[:at] + choose.randbytes(choose.choice((1, 8, 512))) + data[at:]
            case _:  # two blocks change their places
                count = choose.choice((1, 16, 512))
                first, second = data[at : at + count], data[at + count : at + 2 * count]
                return data[:at] + second + first + data[at + 2 * count :]


damages = st.builds(
    Damage, st.sampled_from(_KINDS), st.floats(0, 1, exclude_max=True), st.integers(0, 2**32)
)


def many(examples: int) -> settings:
    """So many places, always the same ones; fifty times as many, and others, with LONG_TESTS=1."""
    return settings(
        max_examples=50 * examples if LONG else examples,
        deadline=None,
        derandomize=not LONG,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@dataclass(frozen=True)
class Subject:
    files: list[Path]  # copies, to be damaged
    use: Callable[[Path], object]  # gets the damaged file; raises MossliveError if it refuses it

    def outcome(self, file: Path, damage: Damage) -> str:
        """ "same", "used", or the refusal. Raises what is neither."""
        whole = file.read_bytes()
        broken = damage.of(whole, file.suffix in _TEXT)
        if broken == whole:
            return "same"
        file.write_bytes(broken)
        try:
            self.use(file)
        except MossliveError as refusal:
            return str(refusal)
        finally:
            file.write_bytes(whole)
        return "used"

    def sweep(self, examples: int, may_be_used: Callable[[Path], bool] = lambda _: True) -> None:
        """Damages the files at many places. `may_be_used`: whether damage of a file may go
        unnoticed, if what is computed with it is valid."""

        @many(examples)
        @given(st.sampled_from(self.files), damages)
        def property_holds(file: Path, damage: Damage) -> None:
            outcome = self.outcome(file, damage)
            assert outcome, "a refusal says why"
            assert outcome != "used" or may_be_used(file)

        property_holds()
