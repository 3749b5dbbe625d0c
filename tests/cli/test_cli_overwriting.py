"""No command writes over what it reads."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from evaluation_files import write_gallery

from fastfill.cli.main import commands, load_commands
from fastfill.errors import InputError

MAP = "align old.npy new.npy --method ridge -o map.safetensors"


def run(command: str) -> Exception | None:
    """What a command raises, if anything."""
    raised = CliRunner().invoke(commands, shlex.split(command)).exception
    return raised if isinstance(raised, Exception) else None


@pytest.mark.parametrize(
    "command",
    [
        "align old.npy new.npy -o new.npy",
        "align old.npy new.npy -o sub/../old.npy",
        "align old.npy new.npy -o linked.npy",
        "align old.npy new.npy --labels labels.npy -o labels.npy",
        "align old.npy new.npy --side side.npz:a -o side.npz",
        "transform map.safetensors old.npy -o old.npy",
        "transform map.safetensors old.npy -o map.safetensors",
        "transform map.safetensors side.npz:a -o side.npz",
        "order map.safetensors old.npy -o map.safetensors",
        "order map.safetensors old.npy -o ./old.npy",
        "order map.safetensors old.npy --shown labels.npy -o labels.npy",
        "export map.onnx map.onnx",
    ],
)
def test_an_output_that_is_an_input_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """One sentence names both, and every file is as it was."""
    load_commands()
    monkeypatch.chdir(write_gallery(tmp_path))
    assert run(MAP) is None
    Path("sub").mkdir()
    Path("linked.npy").symlink_to("old.npy")
    for name in ("side.npz", "map.onnx"):
        Path(name).write_bytes(b"as it was")
    before = {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    refused = run(command)
    assert isinstance(refused, InputError)
    assert "is what this command reads" in str(refused)
    assert before == {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}


def test_a_file_of_a_former_run_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output that is no input may be there already."""
    load_commands()
    monkeypatch.chdir(write_gallery(tmp_path))
    assert run(MAP) is None
    assert run(MAP) is None
