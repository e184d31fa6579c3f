"""The one base class of every error that is the caller's to mend.

The command line prints these as one sentence; anything else is our own bug and keeps its traceback.
Each room derives its own errors from this class, beside the code that raises them.
"""


class MossliveError(Exception):
    """Bad input or an exhausted resource; the message says what, where, and what is allowed."""


def name_list(names: list[str], shown: int = 12) -> str:
    """`a, b, c and 9 more`: long lists of tensor names stay readable in one message."""
    head = ", ".join(names[:shown])
    return head if len(names) <= shown else f"{head} and {len(names) - shown} more"
