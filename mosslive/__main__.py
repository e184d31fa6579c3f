"""`python -m mosslive`: the `mosslive` command."""

from mosslive.cli import main

main()
