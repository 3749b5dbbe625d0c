"""What mkdocs runs beside its own: commands are registered, examples of docstrings are fenced."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

from fastfill.cli.main import load_commands

EXAMPLE = re.compile(r"(?:^>>> .*\n(?:.+\n?)*)+", re.M)  # up to the next empty line


def on_config(config: Any) -> Any:
    """Called once, with the settings of mkdocs.yml: commands must be loaded to be listed."""
    load_commands()
    return config


class FencedExamples(Extension):
    """Shows `>>>` as code; Markdown would take its brackets for links."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Called with every object that has been read."""
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = EXAMPLE.sub(
                lambda code: f"```pycon\n{code[0].strip()}\n```\n", text
            )
