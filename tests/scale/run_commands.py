"""python run_commands.py JSON: run several commands in one process, and print their errors.

Ray and Daft leave pipes open and fork where Lance does not like it, which is fine in a process of
their own, and no part of what the tests look at.
"""

from __future__ import annotations

import json
import sys

from fastfill.cli.main import commands, load_commands
from fastfill.errors import FastFillError


def main() -> None:
    """One line of JSON: for each command null, or what its error says."""
    load_commands()
    said: list[str | None] = []
    for words in json.loads(sys.argv[1]):
        try:
            commands.main(words, standalone_mode=False)
            said.append(None)
        except FastFillError as error:
            said.append(str(error))
    print(json.dumps(said))


if __name__ == "__main__":
    main()
