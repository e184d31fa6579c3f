"""How slow functions report progress: in stages with a label and a number of units.

Knows no terminal; `cli/console.py` draws the bars.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

# Gets the units done since the last call.
Progress = Callable[[int], None]
# (label, total units) → a context manager that yields a `Progress`.
Stage = Callable[[str, int], AbstractContextManager[Progress]]


def silent(_: str, __: int) -> AbstractContextManager[Progress]:
    """A `Stage` that shows nothing."""
    return nullcontext(lambda _: None)
