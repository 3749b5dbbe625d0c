"""What commands print: results or JSON on stdout, tables that fit a narrow screen, versions."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner
from evaluation_files import write_gallery

from fastfill.cli.main import commands, console, load_commands, results

FILES = [  # every command on files, in an order in which each finds what it needs
    "align old.npy new.npy --method ridge -o map.safetensors",
    "inspect map.safetensors",
    "export map.safetensors map.onnx",
    "transform map.safetensors old.npy -o aligned.npz",
    "order map.safetensors old.npy -o order.parquet",
    "curve map.safetensors --old old.npy --new new.npy --labels labels.npy",
    "compare H.npy@random new.npy@random --new new.npy --labels labels.npy",
    "forecast old.npy new.npy --items 240 --labels labels.npy --method ridge",
]
URL = "'lance://db#photos.vector'"
STORE = [  # every verb of a migration, from a look to the end
    f"doctor {URL} --input text --distance l2",
    f"plan {URL} --input text --encoder output_encoder:encode --distance l2",
    f"pairs {URL} --input text --encoder output_encoder:encode --distance l2 -n 40",
    f"start {URL} --pairs 40 --method ridge",
    f"status {URL}",
    f"pause {URL}",
    f"resume {URL}",
    f"verify {URL}",
    f"backfill {URL} --no-throttle",
    f"complete {URL}",
    f"complete {URL} --swap",
    f"swap-back {URL}",
    f"rollback {URL}",
]
SHOWING = {  # commands whose purpose is what they print, and a part of it
    "inspect": "variance explained",
    "curve": "mAP in %",
    "compare": "Gain of area",
    "forecast": "100% backfilled",
    "doctor": "looked at one by one",
    "plan": "items/s measured",
    "status": "by output_encoder:encode",
    "verify": "unsettled rows: 0",
}
ELSEWHERE = {"demo", "lab run", "lab prepare", "lab list", "lab report"}  # tests of their own
ENCODER = """
import numpy as np

def encode(texts):
    return np.array([[len(t), int(t.split()[1]) % 7, int(t.split()[1]) / 9] for t in texts], "f4")
"""


def values_in(text: str) -> list[Any]:
    """The JSON values that a text consists of, one after the other; an error for anything else."""
    decoder, values = json.JSONDecoder(), []
    text = text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        values.append(value)
        text = text[end:].strip()
    return values


def run(command: str) -> Any:
    """Run a command that must succeed."""
    done = CliRunner().invoke(commands, shlex.split(command), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def check_stdout_for_people(command: str) -> None:
    """The result of a command that shows one, and nothing else, is on stdout."""
    done, part = run(command), SHOWING.get(command.split()[0])
    if part is None:
        assert done.stdout == "", command
    else:
        assert part in done.stdout, command
        assert part not in done.stderr, command
        assert "Next: " not in done.stdout, command


def json_commands(group: click.Group, name: str = "") -> Iterator[str]:
    """The names of all commands that take --json."""
    context = click.Context(group)
    for key in group.list_commands(context):
        command = group.get_command(context, key)
        if isinstance(command, click.Group):
            yield from json_commands(command, f"{name}{key} ")
        elif command is not None and any("--json" in each.opts for each in command.params):
            yield f"{name}{key}"


def test_every_command_with_json_is_among_these() -> None:
    """A new command that takes --json is to be added to the lists above."""
    pytest.importorskip("torch", reason="the lab is not installed")
    load_commands()
    covered = {command.split()[0] for command in (*FILES, *STORE)} | ELSEWHERE
    assert set(json_commands(commands)) <= covered


def test_commands_on_files_print_results_or_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --json stdout is one JSON value; without, it is what the command was asked for."""
    pytest.importorskip("onnx", reason="onnx is not installed")
    load_commands()
    monkeypatch.chdir(write_gallery(tmp_path))
    for command in FILES:
        assert len(values_in(run(f"{command} --json").stdout)) == 1, command
        check_stdout_for_people(command)


def test_verbs_of_a_migration_print_results_or_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for a whole migration; while one runs, progress is JSON too."""
    lancedb = pytest.importorskip("lancedb", reason="LanceDB is not installed")
    load_commands()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "output_encoder.py").write_text(ENCODER)
    vectors = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)
    rows = [{"id": n, "text": f"text {n}", "vector": vectors[n]} for n in range(80)]
    lancedb.connect("db").create_table("photos", rows)
    with_json = set(json_commands(commands))
    for command in STORE:
        if command.split()[0] in with_json:
            assert values_in(run(f"{command} --json").stdout), command
        if command.split()[0] in SHOWING or command.split()[0] not in with_json:
            check_stdout_for_people(command)


def test_wide_tables_come_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is wider than the screen, and every number is there."""
    load_commands()
    monkeypatch.chdir(write_gallery(tmp_path))
    monkeypatch.setattr(results, "_width", 60)
    names = "a-method-of-a-long-name=H.npy@random another=new.npy@random"
    shown = run(f"compare {names} --new new.npy --labels labels.npy --metrics cmc@1,map").stdout
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 60
    heads = [line.split() for line in lines if line.strip().startswith("order ")]
    assert len(heads) > 2
    assert "99" in " ".join(word for head in heads for word in head)
    assert "…" not in shown


def test_the_list_of_experiments_fits_a_narrow_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and data sets of all experiments are there in lines of at most 80 signs."""
    pytest.importorskip("torch", reason="the lab is not installed")
    from fastfill.lab.experiments import EXPERIMENTS

    load_commands()
    monkeypatch.setattr(results, "_width", 80)
    shown = run("lab list --results nowhere").stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert all(name in shown for name in EXPERIMENTS)
    assert "…" not in shown


def test_sentences_are_folded_between_words_on_a_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands to be copied stay one line, and so does everything that goes into a file."""
    lancedb = pytest.importorskip("lancedb", reason="LanceDB is not installed")
    load_commands()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "screen_encoder.py").write_text(ENCODER)
    rows = [{"id": n, "text": f"text {n}", "vector": [n, 1.0]} for n in range(80)]
    lancedb.connect("db").create_table("photos", rows)
    for each in (console, results):
        monkeypatch.setattr(each, "_width", 80)
        monkeypatch.setattr(each, "_color_system", None)
    for command in (f"doctor {URL}", f"plan {URL} --encoder screen_encoder:encode"):
        long = run(f"{command} --input text --distance l2").output
        with monkeypatch.context() as screen:
            screen.setattr(console, "_force_terminal", True)
            screen.setattr(results, "_force_terminal", True)
            folded = run(f"{command} --input text --distance l2").output
        lines = [line for line in folded.splitlines() if not line.startswith("Next: ")]
        assert max(map(len, long.splitlines())) > 80
        assert max(map(len, lines)) <= 80
        words = [[word for word in text.split() if word.isalpha()] for text in (folded, long)]
        assert words[0] == words[1]


def every_command(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    """All commands and groups, with their full names."""
    yield name, group
    context = click.Context(group)
    for key in group.list_commands(context):
        command = group.get_command(context, key)
        if isinstance(command, click.Group):
            yield from every_command(command, f"{name} {key}")
        elif command is not None:
            yield f"{name} {key}", command


def test_help_fits_a_screen_of_80_signs() -> None:
    """No line of any help is wider, and lists of commands say a whole sentence of each."""
    pytest.importorskip("torch", reason="the lab is not installed")
    load_commands()
    for name, command in every_command(commands, "fastfill"):
        context = command.make_context(
            name, [], resilient_parsing=True, terminal_width=80, max_content_width=80
        )
        lines = command.get_help(context).splitlines()
        assert max(map(len, lines)) <= 80, name
        if isinstance(command, click.Group):
            listed = lines[lines.index("Commands:") + 1 :]
            assert [line for line in listed if line.endswith("...")] == [], name


def test_shells_can_complete_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Click's own completion knows the commands and their options."""
    from click.shell_completion import ShellComplete

    load_commands()
    complete = ShellComplete(commands, {}, "fastfill", "_FASTFILL_COMPLETE")
    assert "doctor" in [item.value for item in complete.get_completions([], "do")]
    options = complete.get_completions(["doctor"], "--s")
    assert [item.value for item in options] == ["--sample"]


def test_version_names_the_stores_packages() -> None:
    """One line for each package, whether it is installed or not."""
    lines = run("--version").stdout.splitlines()
    assert lines[0].startswith("fastfill ")
    named = [line.split()[0] for line in lines[1:]]
    assert named[:3] == ["lancedb", "psycopg", "qdrant-client"]
    assert {"chromadb", "redis", "sqlite-vec", "pylance"} <= set(named)


def test_version_names_another_sqlite_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package that replaces Python's own SQLite is told of only where it is installed."""
    found = {"pysqlite3-binary": "0.5.4"}

    def version(package: str) -> str:
        if package not in found:
            raise PackageNotFoundError(package)
        return found[package]

    monkeypatch.setattr("fastfill.cli.versions.version", version)
    lines = run("--version").stdout.splitlines()
    assert lines[-1] == "pysqlite3-binary 0.5.4"
    assert all(line.endswith(" (not installed)") for line in lines[1:-1])
    found.clear()
    assert run("--version").stdout.splitlines() == [*lines[:-1]]
