"""The error that a benchmark raises instead of printing an unverified time. Knows no model."""

from mosslive.errors import MossliveError


class NotVerified(MossliveError):
    """The output differs from the reference, so no time is printed."""
