"""`python -m fastfill`: the same as the command `fastfill`."""

from fastfill.cli import main

main()
