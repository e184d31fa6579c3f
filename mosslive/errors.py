"""The base class of every error that the caller can fix.

The command line prints these errors as one line. Any other exception is a bug in this package and
keeps its traceback. Each package derives its own errors next to the code that raises them.
"""


class MossliveError(Exception):
    """Bad input or an exhausted resource. The message says what, where, and what is allowed."""


class NotFinite(MossliveError):
    """A network computed NaN or infinity: its weights, its precision or the device is wrong. Unlike
    other errors of this package it counts as a failure of the part that computed it."""


def is_failure(error: BaseException) -> bool:
    """Whether an error shows that a part does not work. Other mosslive errors are refusals."""
    return isinstance(error, NotFinite) or not isinstance(error, MossliveError)


def name_list(names: list[str], shown: int = 12) -> str:
    """`a, b, c and 9 more`: keeps long lists of names readable in one message."""
    head = ", ".join(names[:shown])
    return head if len(names) <= shown else f"{head} and {len(names) - shown} more"
