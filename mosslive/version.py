"""The version, in its own file so that packaging reads it without other imports."""

__version__ = "0.1.0"
