"""The reference documents every command and every option; the site has every page."""

from __future__ import annotations

import importlib
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import fastfill.cli
from fastfill.cli.main import commands

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference" / "commands.md"
JOB = ROOT / "docs" / "how-to" / "kubernetes" / "backfill-job.yaml"


def leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its full name."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for key in command.list_commands(context):
            child = command.get_command(context, key)
            assert child is not None
            yield from leaves(child, f"{name} {key}")
    else:
        yield name, command


def all_commands() -> dict[str, click.Command]:
    """The commands of all modules of the command line, also of those that load on first use."""
    for module in pkgutil.iter_modules(fastfill.cli.__path__):
        importlib.import_module(f"fastfill.cli.{module.name}")
    return dict(leaves(commands, "fastfill"))


def sections() -> dict[str, str]:
    """Text of the reference by the command that its heading names."""
    parts = re.split(r"^## `(.+)`$", REFERENCE.read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


COMMANDS = all_commands()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    """A command has a section of its own, which names each of its options."""
    section = sections().get(name)
    assert section is not None, f"{REFERENCE.name} has no section '## `{name}`'"
    documented = set(re.findall(r"`(--[a-z0-9-]+)`", section))
    options = {
        opt
        for param in COMMANDS[name].params
        if isinstance(param, click.Option) and not param.hidden
        for opt in (*param.opts, *param.secondary_opts)
        if opt.startswith("--")
    }
    assert options - {"--help"} == documented


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    """--help says what a command does, and each option has a help or a default to show."""
    command = COMMANDS[name]
    assert command.help
    for param in command.params:
        if isinstance(param, click.Option):
            assert param.help or param.show_default, f"{name} {param.opts}"


def test_the_site_has_every_page() -> None:
    """Every page of the docs is in the navigation of the site, and nothing that is not there."""
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), flags=re.M)
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    beside = {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/RESULTS.md"}
    assert set(listed) == pages | beside
    assert all((ROOT / name).is_file() for name in beside)


def test_the_job_can_be_typed() -> None:
    """The Kubernetes example runs a command that exists, with options that it has."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    job = yaml.safe_load(JOB.read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    verb, *arguments = container["args"]
    command = COMMANDS[f"fastfill {verb}"]
    context = command.make_context(verb, arguments)
    assert context.params["metrics_port"] == container["ports"][0]["containerPort"]
    (rule, _) = job["spec"]["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["containerName"] == container["name"]


def test_the_image_installs_what_exists() -> None:
    """The Dockerfile names extras, and starts the command, that pyproject.toml has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    for line in re.findall(r"EXTRAS=([\w,-]+)", image):
        assert set(line.split(",")) <= set(project["optional-dependencies"])
    (command,) = re.findall(r'^ENTRYPOINT \["(\w+)"\]$', image, re.M)
    assert command in project["scripts"]
