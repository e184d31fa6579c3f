"""The base class of every error that the caller can fix.

The command line prints these errors as one line. Any other exception is a bug in this package and
keeps its traceback. Each package derives its own errors next to the code that raises them.
"""


class MossliveError(Exception):
    """Bad input or an exhausted resource. The message says what, where, and what is allowed."""


def name_list(names: list[str], shown: int = 12) -> str:
    """`a, b, c and 9 more`: keeps long lists of names readable in one message."""
    head = ", ".join(names[:shown])
    return head if len(names) <= shown else f"{head} and {len(names) - shown} more"
