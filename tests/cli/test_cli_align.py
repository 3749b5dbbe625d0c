"""`fastfill align`, `transform` and `inspect`: files in, files out, JSON, errors, memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fastfill
from fastfill.align import METHODS, Alignment
from fastfill.align.streaming import ROWS, transform_file
from fastfill.cli.main import commands, load_commands
from fastfill.errors import FastFillError, FileError, NonFiniteError, ShapeError, ZeroVectorError
from fastfill.features import Features, Pairs

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(fastfill.__file__).parents[1])}


def call(*args: object) -> subprocess.CompletedProcess[str]:
    """The real command, in a process of its own."""
    command = [sys.executable, "-m", "fastfill", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=120)


def invoke(*args: object) -> Result:
    """The command in this process."""
    load_commands()
    return CliRunner().invoke(commands, [*map(str, args)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """old.npy and new.npy of the same 200 items, labels, a head, side-information, a gallery."""
    rng = np.random.default_rng(0)
    old, side = rng.normal(size=(200, 8)), rng.normal(size=(200, 3))
    new = old @ rng.normal(size=(8, 5)) + 0.2 * rng.normal(size=(200, 5))
    arrays = {"old": old, "new": new, "side": side, "labels": rng.integers(0, 4, 200),
              "head": rng.normal(size=(4, 5)), "gallery": rng.normal(size=(500, 8))}  # fmt: skip
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


@pytest.fixture
def ridge(folder: Path) -> Path:
    """A saved alignment beside its files."""
    pairs = Pairs(Features(np.load(folder / "old.npy")), Features(np.load(folder / "new.npy")))
    Alignment.fit(pairs, method="ridge").save(folder / "a.safetensors")
    return folder / "a.safetensors"


def test_align_transform_inspect_in_real_processes(folder: Path) -> None:
    """The three commands work one after the other; stdout is one JSON object and nothing else."""
    made = call("align", folder / "old.npy", folder / "new.npy", "-o", folder / "a.safetensors",
                "--method", "ridge", "--old-name", "clip-1", "--json")  # fmt: skip
    assert made.returncode == 0, made.stderr
    facts = json.loads(made.stdout)
    assert (facts["method"], facts["old_dim"], facts["new_dim"]) == ("ridge", 8, 5)
    assert facts["models"] == {"old": "clip-1", "new": "new"}
    assert "Next: fastfill transform" in made.stderr
    mapped = call("transform", folder / "a.safetensors", folder / "gallery.npy",
                  "-o", folder / "aligned.npz", "--json")  # fmt: skip
    assert mapped.returncode == 0, mapped.stderr
    assert json.loads(mapped.stdout)["rows"] == 500
    expected = Alignment.load(folder / "a.safetensors")(np.load(folder / "gallery.npy"))
    with np.load(folder / "aligned.npz") as found:
        assert sorted(found.files) == ["variance", "vectors"]
        np.testing.assert_array_equal(found["vectors"], expected.vectors)
        np.testing.assert_array_equal(found["variance"], expected.variance)
    looked = call("inspect", folder / "a.safetensors", "--json")
    assert json.loads(looked.stdout) == facts
    quiet = call("inspect", folder / "a.safetensors")
    assert "clip-1 (8) → new (5)" in quiet.stdout
    assert quiet.stderr == ""


def test_transform_writes_what_is_served_or_the_estimates(folder: Path) -> None:
    """Penalised vectors are not the estimates; --estimates writes those, and says less."""
    old, new = (np.load(folder / f"{name}.npy") for name in ("old", "new"))
    wider = np.hstack([new, np.zeros((len(new), 1))])  # a direction that the new model leaves free
    Alignment.fit(Pairs(Features(old), Features(wider)), method="ridge").save(folder / "b.st")
    served, h = (folder / name for name in ("served.npz", "h.npz"))
    first = invoke("transform", folder / "b.st", folder / "gallery.npy", "-o", served)
    second = invoke("transform", folder / "b.st", folder / "gallery.npy", "-o", h, "--estimates")
    assert "with their distance penalty" in first.output
    assert "penalty" not in second.output
    expected = Alignment.load(folder / "b.st")(np.load(folder / "gallery.npy"))
    np.testing.assert_array_equal(np.load(served)["vectors"], expected.vectors)
    np.testing.assert_array_equal(np.load(h)["vectors"], expected.h)
    assert not np.array_equal(expected.h, expected.vectors)


def test_every_option_reaches_the_map(folder: Path) -> None:
    """Labels, head, side-information, loss, distance, epochs and seed are in the artefact."""
    result = invoke(
        "align", folder / "old.npy", folder / "new.npy", "-o", folder / "a.safetensors",
        "--labels", folder / "labels.npy", "--head", folder / "head.npy",
        "--side", folder / "side.npy", "--method", "residual", "--loss", "l2+disc",
        "--discriminative", "arcface", "--distance", "cosine", "--epochs", 2, "--seed", 7,
        "--device", "cpu", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    alignment = Alignment.load(folder / "a.safetensors")
    assert (alignment.method, alignment.distance, alignment.side_dim) == ("residual", "cosine", 3)
    assert (alignment.facts["loss"], alignment.facts["seed"]) == ("l2+disc", 7)
    assert alignment.facts["training"]["epochs"] == 2
    assert alignment.head is not None
    assert alignment.head.shape == (4, 5)
    assert json.loads(result.stdout)["fingerprint"] == alignment.fingerprint


def test_auto_is_the_default_and_shows_its_comparison(folder: Path) -> None:
    """Without a method all of auto's candidates are compared, for people and in the JSON."""
    result = invoke("align", folder / "old.npy", folder / "new.npy", "--epochs", 1,
                    "-o", folder / "a.safetensors", "--json")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert set(json.loads(result.stdout)["compared"]) == {"ridge", "procrustes", "kernel"}
    choices = commands.commands["align"].params
    (method,) = [option for option in choices if option.name == "method"]
    assert list(method.type.choices) == ["auto", *METHODS]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["--penalty", "--setback"])
def test_the_penalty_has_a_former_name(folder: Path, name: str) -> None:
    """A command line that was written for version 0.1.0 still works."""
    np.save(folder / "wide.npy", np.pad(np.load(folder / "new.npy"), ((0, 0), (0, 2))))
    result = invoke("align", folder / "old.npy", folder / "wide.npy", "--method", "ridge",
                    name, 0.4, "-o", folder / "a.safetensors")  # fmt: skip
    assert result.exit_code == 0, result.output
    penalty = Alignment.load(folder / "a.safetensors").penalty
    assert penalty is not None
    assert penalty.share == 0.4


def test_names_in_brackets_are_shown_as_they_are(folder: Path, ridge: Path) -> None:
    """A file called [red].safetensors is not taken for markup."""
    odd = ridge.rename(folder / "[red].safetensors")
    assert "[red].safetensors" in call("inspect", odd).stdout
    assert "[bold].npz" in call("transform", odd, folder / "gallery.npy", "-o",
                                folder / "[bold].npz").stderr  # fmt: skip


ERRORS: dict[str, tuple[list[str], list[str]]] = {
    "missing file": (["align", "no.npy", "new.npy", "-o", "x.safetensors"], ["no.npy", "no such"]),
    "row counts": (
        ["align", "gallery.npy", "new.npy", "-o", "x.safetensors"], ["500 rows", "has 200"],
    ),
    "labels outside": (
        ["align", "old.npy", "new.npy", "-o", "x.safetensors", "--labels", "labels.npy", "--head",
         "small.npy"], ["labels 2, 3 are outside", "0 to 1"],
    ),
    "no head": (
        ["align", "old.npy", "new.npy", "-o", "x.safetensors", "--loss", "disc"], ["head"],
    ),
    "no folder, known before anything is read": (
        ["align", "no.npy", "new.npy", "-o", "no/x.safetensors"], ["does not exist"],
    ),
    "other dimension": (
        ["transform", "a.safetensors", "new.npy", "-o", "x.npz"], ["new.npy", "5 dim", "8"],
    ),
    "not npz": (["transform", "a.safetensors", "old.npy", "-o", "x.npy"], ["x.npy", "OUT.npz"]),
    "not an alignment": (["inspect", "old.npy"], ["old.npy", "not an alignment"]),
    "side unwanted": (
        ["transform", "a.safetensors", "old.npy", "-o", "x.npz", "--side", "side.npy"],
        ["without side-information"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_one_sentence_and_leave_nothing(case: str, folder: Path, ridge: Path) -> None:
    """A wrong input is one line on stderr with exit code 1, no traceback, no output file."""
    np.save(folder / "small.npy", np.ones((2, 5)))
    args, said = ERRORS[case]
    before = sorted(folder.iterdir())
    result = call(*(folder / a if "." in a else a for a in args))
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1, result.stderr
    assert "Traceback" not in result.stderr
    for part in said:
        assert part in result.stderr
    assert sorted(folder.iterdir()) == before


def test_wrong_usage_is_exit_code_two(folder: Path) -> None:
    """Options that do not exist are explained by the command line itself."""
    result = call("align", folder / "old.npy", folder / "new.npy", "--method", "magic", "-o", "x")
    assert result.returncode == 2
    assert "magic" in result.stderr
    assert result.stdout == ""


def test_ctrl_c_leaves_nothing_half_written(folder: Path) -> None:
    """Interrupted in training, the command ends with 130 and has written nothing."""
    before = sorted(folder.iterdir())
    process = subprocess.Popen(
        [sys.executable, "-m", "fastfill", "align", str(folder / "old.npy"),
         str(folder / "new.npy"), "-o", str(folder / "a.safetensors"), "--method", "paper",
         "--epochs", "100000"],
        stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, preexec_fn=listen_to_ctrl_c,
    )  # fmt: skip
    assert wait_for_torch(process)
    process.send_signal(signal.SIGINT)
    try:
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    # CPython dies of the signal itself, which a shell shows as 130 too, where it met code in exec()
    assert process.returncode in (130, -signal.SIGINT), said
    assert "Stopped. Nothing was half-written." in said
    assert "Traceback" not in said
    assert sorted(folder.iterdir()) == before


def listen_to_ctrl_c() -> None:
    """A shell's background jobs ignore SIGINT, and so would what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for_torch(process: subprocess.Popen[str]) -> bool:
    """Whether the process has loaded torch and goes on working."""
    for _ in range(600):
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        if "libtorch_cpu" in maps:
            time.sleep(2)
            return process.poll() is None
        time.sleep(0.1)
    return False


# --- streaming ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["npy", "npz", "parquet"])
def test_streaming_equals_mapping_in_memory(kind: str, folder: Path, ridge: Path) -> None:
    """More rows than a block, from every format, come out as they do in memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    vectors = np.random.default_rng(1).normal(size=(2 * ROWS + 5, 8)).astype(np.float32)
    source = folder / f"many.{kind}"
    if kind == "npy":
        np.save(source, vectors)
    elif kind == "npz":
        np.savez_compressed(source, vectors)
    else:
        pq.write_table(
            pa.table({"vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 8)}),
            source,
        )
    ticks: list[tuple[int, int]] = []
    alignment = Alignment.load(ridge)
    rows = transform_file(alignment, source, folder / "out.npz", tick=lambda *t: ticks.append(t))
    expected = alignment(vectors)
    assert rows == len(vectors)
    assert ticks == [(ROWS, rows), (2 * ROWS, rows), (rows, rows)]
    with np.load(folder / "out.npz") as found:
        np.testing.assert_array_equal(found["vectors"], expected.vectors)
        np.testing.assert_array_equal(found["variance"], expected.variance)


def test_streaming_takes_side_information_along(folder: Path) -> None:
    """Each block meets the side-information of its own rows."""
    rng = np.random.default_rng(0)
    old, side = rng.normal(size=(ROWS + 50, 4)), rng.normal(size=(ROWS + 50, 2)).astype(np.float32)
    pairs = Pairs(Features(old), Features(np.hstack([old[:, :2], side])), side)
    alignment = Alignment.fit(pairs.take(np.arange(100)), method="ridge")
    np.save(folder / "o.npy", old)
    np.save(folder / "s.npy", side)
    transform_file(alignment, folder / "o.npy", folder / "out.npz", side=folder / "s.npy")
    with np.load(folder / "out.npz") as found:
        np.testing.assert_array_equal(found["vectors"], alignment(old, side).vectors)
    np.save(folder / "short.npy", side[:-1])
    with pytest.raises(ShapeError, match=r"short\.npy has 16,433 rows and .*o\.npy has 16,434"):
        transform_file(alignment, folder / "o.npy", folder / "x.npz", side=folder / "short.npy")
    assert not (folder / "x.npz").exists()


@pytest.mark.parametrize(
    ("bad", "distance", "kind"), [(np.nan, "l2", NonFiniteError), (0.0, "cosine", ZeroVectorError)]
)
def test_a_bad_row_late_in_the_file_is_named(
    bad: float, distance: Any, kind: type[FastFillError], folder: Path
) -> None:
    """An error in a late block names the file and the row in it, and no output appears."""
    pairs = Pairs(Features(np.load(folder / "old.npy")), Features(np.load(folder / "new.npy")))
    alignment = Alignment.fit(pairs, method="ridge", distance=distance)
    vectors = np.ones((ROWS + 3000, 8), dtype=np.float32)
    vectors[ROWS + 2500] = bad
    np.save(folder / "late.npy", vectors)
    before = {*folder.iterdir()}
    with pytest.raises(kind, match=rf"late\.npy: .* rows {ROWS + 2500}\."):
        transform_file(alignment, folder / "late.npy", folder / "out.npz")
    assert {*folder.iterdir()} == before


def test_the_target_is_checked(folder: Path, ridge: Path) -> None:
    """The aligned vectors go to an .npz in a folder that exists."""
    alignment = Alignment.load(ridge)
    with pytest.raises(FileError, match=r"out\.npy: .* written as \.npz"):
        transform_file(alignment, folder / "old.npy", folder / "out.npy")
    with pytest.raises(FileError, match="does not exist"):
        transform_file(alignment, folder / "old.npy", folder / "none" / "out.npz")


PEAK = """
import sys
from pathlib import Path
from fastfill.cli import main
sys.argv = ["fastfill", *sys.argv[1:]]
main()
lines = Path("/proc/self/status").read_text().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))  # peak, KiB
"""


@pytest.mark.parametrize("kind", ["npy", "npz", "compressed", "parquet", "one group"])
def test_memory_does_not_grow_with_the_rows(kind: str, folder: Path) -> None:
    """Five times the rows take the same memory, from every format."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    old = rng.normal(size=(100, 64)).astype(np.float32)
    Alignment.fit(Pairs(Features(old), Features(old[:, :48] * 2)), method="ridge").save(
        folder / "a.safetensors"
    )
    peaks = []
    for rows in (40_000, 200_000):
        vectors = rng.normal(size=(rows, 64)).astype(np.float32)
        if kind == "compressed":  # random numbers take long to compress
            vectors = np.resize(old, (rows, 64))
        suffix = {"compressed": "npz", "one group": "parquet"}.get(kind, kind)
        source = folder / f"{rows}.{suffix}"
        if kind == "npy":
            np.save(source, vectors)
        elif suffix == "parquet":
            lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 64)
            group = 20_000 if kind == "parquet" else rows
            pq.write_table(pa.table({"vector": lists}), source, row_group_size=group)
        else:
            (np.savez if kind == "npz" else np.savez_compressed)(source, vectors)
        result = subprocess.run(
            [sys.executable, "-c", PEAK, "transform", str(folder / "a.safetensors"), str(source),
             "-o", str(folder / "out.npz")],
            capture_output=True, text=True, env=ENVIRONMENT, timeout=120, check=True,
        )  # fmt: skip
        peaks.append(int(result.stdout) / 1024)
    growth = peaks[1] - peaks[0]  # MiB; the larger file has 39 MiB more to read, 30 to write
    assert growth < 15, peaks


def test_views_are_arrays_of_three_dimensions(folder: Path) -> None:
    """A map is learned from all views in .npy and .npz files; inspect says how many there were."""
    rng = np.random.default_rng(1)
    old, new = np.load(folder / "old.npy"), np.load(folder / "new.npy")
    np.save(folder / "views.npy", old + 0.1 * rng.normal(size=(4, *old.shape)))
    np.savez(folder / "both.npz", new=new + 0.1 * rng.normal(size=(4, *new.shape)))
    files = folder / "views.npy", f"{folder / 'both.npz'}:new"
    made = invoke("align", *files, "-o", folder / "v.safetensors", "--method", "ridge")
    assert made.exit_code == 0, made.output
    assert Alignment.load(folder / "v.safetensors").facts["views"] == 4
    assert "200 with 4 views each" in " ".join(
        invoke("inspect", folder / "v.safetensors").output.split()
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("three", "new", "three.npy holds views"),
        ("three", "two", "3 views of 200 rows and"),
        ("four", "four", "got shape (2, 2, 200, 8)"),
    ],
)
def test_views_that_do_not_fit_are_named(folder: Path, old: str, new: str, said: str) -> None:
    """Views on one side only, another number of them, and one dimension too many."""
    for name, shape in (("three", (3, 200, 8)), ("two", (2, 200, 5)), ("four", (2, 2, 200, 8))):
        np.save(folder / f"{name}.npy", np.ones(shape))
    args = (folder / f"{old}.npy", folder / f"{new}.npy", "-o", folder / "x.safetensors")
    load_commands()
    with pytest.raises(ShapeError) as caught:
        commands.main(["align", *map(str, args)], standalone_mode=False)
    assert said in str(caught.value)


def test_pairs_without_a_direction_are_left_out_and_told(folder: Path) -> None:
    """Under cosine an empty text teaches nothing: the map is that of the other pairs."""
    old, new = np.load(folder / "old.npy"), np.load(folder / "new.npy")
    old[[3, 9]] = 0
    np.save(folder / "holes.npy", old)
    kept = np.setdiff1d(np.arange(200), [3, 9])
    np.save(folder / "old-kept.npy", old[kept])
    np.save(folder / "new-kept.npy", new[kept])
    options = ("--method", "ridge", "--distance", "cosine", "-o")
    told = invoke(
        "align", folder / "holes.npy", folder / "new.npy", *options, folder / "a.safetensors"
    )
    invoke(
        "align",
        folder / "old-kept.npy",
        folder / "new-kept.npy",
        *options,
        folder / "b.safetensors",
    )
    assert "2 pairs have a zero vector" in told.stderr
    assert "rows 3, 9" in told.stderr
    one, other = (Alignment.load(folder / f"{name}.safetensors") for name in "ab")
    np.testing.assert_array_equal(
        one(new[:, :1] * old[kept][0]).vectors, other(new[:, :1] * old[kept][0]).vectors
    )
