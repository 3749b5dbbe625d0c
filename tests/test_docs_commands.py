"""Every command that the README and the docs show can be typed; nothing is run here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from docs_world import PAGES, ROOT
from test_docs import COMMANDS

TYPED = re.compile(r"^\s*\$ (?:\w+=\S+ )*(?:python3? -m )?(fastfill .*)$", re.M)
INLINE = re.compile(r"`(fastfill [a-z][^`]*)`")
QUERIES = re.compile(r"[\w-]+\.(jsonl|tsv)")
COMMENT = re.compile(r"\s#\s[^'\"]*$")


def shown(pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """(page, command) of all pages; lines that end in a backslash are joined."""
    texts = {page: re.sub(r"\\\n\s*", "", page.read_text(encoding="utf-8")) for page in PAGES}
    return [
        (str(page.relative_to(ROOT)), COMMENT.sub("", line))
        for page, text in texts.items()
        for line in pattern.findall(text)
    ]


def command_of(words: list[str]) -> tuple[str, list[str]]:
    """The full name of the command that these words begin with, and the rest of them."""
    for length in range(len(words), 0, -1):
        name = " ".join(words[:length])
        if name in COMMANDS:
            return name, words[length:]
    raise AssertionError(f"{' '.join(words[:2])} is no command")


@pytest.mark.parametrize(("page", "line"), shown(TYPED))
def test_a_command_that_is_shown_can_be_typed(
    page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command exists, takes these arguments and options, and has the choices that they name."""
    name, arguments = command_of(shlex.split(line))
    monkeypatch.chdir(tmp_path)
    for file in filter(QUERIES.fullmatch, arguments):  # click looks whether they are there
        Path(file).touch()
    try:
        COMMANDS[name].make_context(name, arguments)
    except click.UsageError as error:
        pytest.fail(f"{page}: {line}\n{error.format_message()}")


@pytest.mark.parametrize(("page", "line"), shown(INLINE))
def test_a_command_in_a_sentence_has_its_options(page: str, line: str) -> None:
    """A sentence may leave out arguments, but names a command, or a group, and its options."""
    words = line.split()
    if any(name.startswith(f"{line} ") for name in COMMANDS):
        return  # a group
    name, rest = command_of(words)
    known = {option for param in COMMANDS[name].params for option in (*param.opts, "--help")}
    known |= {option for param in COMMANDS[name].params for option in param.secondary_opts}
    given = {word.partition("=")[0] for word in rest if re.match("--?[a-z]", word)}
    assert given <= known, f"{page}: {line}"


def test_commands_are_found_at_all() -> None:
    """The README and the reference show commands, one of them on two lines."""
    pages = [page for page, _ in shown(TYPED)]
    assert {"README.md", "docs/reference/commands.md"} <= set(pages)
    assert any("--pairs 2000 " in line and "--old-encoder" in line for _, line in shown(TYPED))
