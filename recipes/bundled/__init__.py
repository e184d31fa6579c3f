"""How the bundled voice was made: texts, speech, training. README.md beside this file begins it."""
