"""`python -m mosslive`: the command, where it is not on the path."""

from mosslive.cli import main

main()
