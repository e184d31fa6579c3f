"""`python -m mosslive.cli`: the command, where it is not on the path."""

from mosslive.cli import main

main()
