"""What a benchmark raises instead of printing a time that means nothing. Knows no model."""

from mosslive.errors import MossliveError


class NotVerified(MossliveError):
    """The output was not what the reference says, so no time is printed."""
