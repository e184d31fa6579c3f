"""Triton's interpreter without two kinds of work that change no result: half of its time.

Knows nothing of our kernels. With a version of Triton that has other parts, nothing is changed.
"""

from dataclasses import replace
from inspect import ismodule
from typing import Any


class _NoChange:
    def restore(self) -> None:
        """Nothing is taken back: the language stays as interpreted kernels need it."""


def speed_up() -> None:
    """Call once, before the first kernel runs."""
    try:
        import triton.language as tl
        from triton.runtime import interpreter
    except ImportError:
        return
    options = interpreter.interpreter_builder.options
    # Integer operations are repeated in 64 bits for an assertion, which is made only to debug.
    if not options.debug and options.sanitize_overflow:
        interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)
    if not hasattr(interpreter, "_LangPatchScope"):
        return
    patch, done = interpreter._patch_lang, set[tuple[bool, bool]]()

    def patch_once(fn: Any) -> _NoChange:
        """Every call of a function within a kernel looks through the whole language again."""
        seen = [value for value in fn.__globals__.values() if ismodule(value)]
        languages = (tl in seen, tl.core in seen)
        if languages not in done:
            patch(fn)
            done.add(languages)
        return _NoChange()

    interpreter._patch_lang = patch_once
