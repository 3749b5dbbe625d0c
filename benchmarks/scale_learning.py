"""python -m benchmarks.scale_learning --rows 5000000 --items 1000000

Learning and measuring over pieces, against the same in memory. A ridge map is learned from Parquet
files of pairs × 256 → 256 at two sizes, the second five times the first, and from two folders whose
rows lie in another order, matched by id. On a part that fits into memory its weights are compared
with those of the fit there. The curve of 2,000 queries is counted over the pieces of a gallery and
in memory. Every line is a process of its own, whose time, CPU seconds and largest process are
measured with all that it starts. Files are in a folder for temporary ones: 5,000,000 pairs need
20 GB of it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shared.live_tables import DIM, vectors
from benchmarks.shared.process_tree import TreeUse, run_measured

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

PIECE = 50_000  # rows of a file, at most
PART = 200_000  # pairs that are learned from in memory too, at most
QUERIES, PER_CLASS, POINTS = 2_000, 10, 11
METRICS = "cmc@1,map"
ROUNDING = 1e-4  # of the largest weight


# --- made data -----------------------------------------------------------------------------------


def new_vectors(old: Any, first: int) -> Any:
    """What another model makes of the same items: nearly linear, and noisy."""
    mix = np.random.default_rng(1).standard_normal((DIM, DIM)).astype(np.float32) / 16
    noise = np.random.default_rng([2, first]).standard_normal(old.shape).astype(np.float32)
    return np.tanh(old @ mix) + np.float32(0.3) * noise


def write(path: Path, **columns: Any) -> None:
    """A file of one piece; matrices become vectors."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fastfill.scale.operations import vector_array

    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {n: vector_array(c) if c.ndim == 2 else pa.array(c) for n, c in columns.items()}
    pq.write_table(pa.table(arrays), path, row_group_size=PIECE)


def fill_pairs(place: Path, rows: int) -> None:
    """All pairs in `pairs-ROWS`, and the first of them in folders of the other sizes."""
    piece = min(PIECE, rows // 10)
    small = {rows, rows // 5, min(PART, rows // 5)}
    folders = {size: place / f"pairs-{size}" for size in small}
    for first in range(0, rows, piece):
        file = folders[rows] / f"part-{first:09d}.parquet"
        old = vectors(first, min(piece, rows - first))
        write(file, old=old, new=new_vectors(old, first))
        for size, folder in folders.items():
            if first < size < rows:
                folder.mkdir(exist_ok=True)
                os.link(file, folder / file.name)


def fill_halves(place: Path, rows: int, piece: int) -> None:
    """The same vectors as the first `rows` pairs in two folders, the new ones in another order."""
    for number, first in enumerate(range(0, rows, piece)):
        old = vectors(first, piece)
        ids = np.arange(first, first + piece)
        mixed = np.random.default_rng([3, first]).permutation(piece)
        last = rows // piece - 1 - number
        write(place / f"old/part-{number:06d}.parquet", id=ids, vector=old)
        new = new_vectors(old, first)[mixed]
        write(place / f"new/part-{last:06d}.parquet", id=ids[mixed], vector=new)


def fill_gallery(place: Path, items: int) -> None:
    """Aligned and new vectors, ranks and labels of a gallery; and queries of some classes."""
    classes, piece = max(items // PER_CLASS, 1), min(PIECE, items // 10)
    centres = np.random.default_rng(4).standard_normal((classes, DIM)).astype(np.float32)
    ranks = np.random.default_rng(5).permutation(items)
    for first in range(0, items, piece):
        rows = np.arange(first, min(first + piece, items))
        noise = vectors(first, len(rows))
        new = centres[rows % classes] + 2 * noise
        aligned = new + 2 * noise[::-1]
        write(
            place / f"gallery/part-{first:09d}.parquet", vector_aligned=aligned, vector_new=new,
            vector_rank=ranks[rows], label=rows % classes,
        )  # fmt: skip
    asked = np.random.default_rng(6).permutation(classes)[:QUERIES]
    noise = np.random.default_rng(7).standard_normal((len(asked), DIM)).astype(np.float32)
    np.savez(place / "queries.npz", vectors=centres[asked] + np.float32(1.5) * noise, labels=asked)


# --- one process each ----------------------------------------------------------------------------


def engine() -> Any:
    """Two processes."""
    from fastfill.scale import open_engine

    return open_engine("local", workers=2)


def columns_of(folder: Path, names: list[str]) -> list[Any]:
    """Columns of a whole folder in memory; vectors become matrices."""
    import pyarrow.parquet as pq

    table = pq.read_table(folder, columns=names).combine_chunks()
    arrays = [table[name].combine_chunks() for name in names]
    return [
        each.flatten().to_numpy().reshape(len(each), -1)
        if hasattr(each.type, "value_type")
        else each.to_numpy()
        for each in arrays
    ]


def fit_pieces(place: Path, size: str) -> None:
    """A map from the pairs of a folder."""
    from fastfill.scale import PairColumns, ParquetFolder, fit_over_pieces

    pairs = PairColumns(ParquetFolder(str(place / f"pairs-{size}")))
    fit_over_pieces(pairs, engine=engine()).save(place / f"pieces-{size}.safetensors")


def fit_matched(place: Path, size: str) -> None:
    """A map from two folders."""
    from fastfill.scale import fit_over_pieces, matched_pairs

    old, new, work = (str(place / name) for name in ("old", "new", "work"))
    pairs = matched_pairs(old, new, work, engine=engine())
    fit_over_pieces(pairs, engine=engine()).save(place / f"matched-{size}.safetensors")


def fit_memory(place: Path, size: str) -> None:
    """A map from pairs in memory."""
    from fastfill.align import Alignment
    from fastfill.features import Features, Pairs

    old, new = columns_of(place / f"pairs-{size}", ["old", "new"])
    pairs = Pairs(Features(old), Features(new))
    Alignment.fit(pairs, method="ridge").save(place / f"memory-{size}.safetensors")


def curve_pieces(place: Path, _: str) -> None:
    """The curves of a gallery in pieces."""
    from fastfill.scale import GalleryColumns, ParquetFolder, curves_over_pieces

    asked, gallery = np.load(place / "queries.npz"), ParquetFolder(str(place / "gallery"))
    curves = curves_over_pieces(
        GalleryColumns(gallery), asked["vectors"], asked["labels"], metrics=METRICS.split(","),
        points=POINTS, engine=engine(),
    )  # fmt: skip
    np.save(place / "pieces.npy", np.stack([curve.values for curve in curves.values()]))


def curve_memory(place: Path, _: str) -> None:
    """The same in memory."""
    from fastfill.align import Aligned
    from fastfill.evaluate import backfill_curves
    from fastfill.order import Order

    asked = np.load(place / "queries.npz")
    names = ["vector_aligned", "vector_new", "vector_rank", "label"]
    before, after, ranks, labels = columns_of(place / "gallery", names)
    curves = backfill_curves(
        Aligned(before, np.zeros(len(ranks), dtype=np.float32)), after, labels,
        policy=Order(np.argsort(ranks)), queries=asked["vectors"], query_labels=asked["labels"],
        metrics=METRICS, points=POINTS,
    )  # fmt: skip
    np.save(place / "memory.npy", np.stack([curve.values for curve in curves.values()]))


STEPS: dict[str, Callable[[Path, str], None]] = {
    "fit-pieces": fit_pieces,
    "fit-matched": fit_matched,
    "fit-memory": fit_memory,
    "curve-pieces": curve_pieces,
    "curve-memory": curve_memory,
}


# --- what is compared ----------------------------------------------------------------------------


def weights_off(place: Path, size: int) -> float:
    """The largest difference of the weights over pieces and in memory, of the largest weight.

    Both are learned in the same units: `fit_over_pieces` takes those of a sample.
    """
    from fastfill.align.linear import fit_ridge
    from fastfill.align.scaling import Scaling
    from fastfill.features import Features, Pairs
    from fastfill.scale import PairColumns, ParquetFolder
    from fastfill.scale.pair_sums import SumWork, fit_ridge_over_pieces

    folder = place / f"pairs-{size}"
    old, new = columns_of(folder, ["old", "new"])
    scaling = Scaling.of(Pairs(Features(old), Features(new)), "l2")
    expected = fit_ridge(scaling.inputs(old, None), scaling.targets(new))
    work = SumWork(PairColumns(ParquetFolder(str(folder))), scaling)
    found, _ = fit_ridge_over_pieces(work, work.pairs.source.pieces(), engine())
    assert found.facts["lambda"] == expected.facts["lambda"]
    return float(np.abs(found.weight - expected.weight).max() / np.abs(expected.weight).max())


def maps_off(place: Path, one: str, other: str) -> float:
    """The largest difference of what two maps make of the same vectors, of the largest number."""
    from fastfill.align import Alignment

    old = vectors(10**9, 1_000)
    made = [Alignment.load(place / f"{name}.safetensors")(old).h for name in (one, other)]
    return float(np.abs(made[0] - made[1]).max() / np.abs(made[1]).max())


def line(what: str, size: int, use: TreeUse) -> str:
    """A row of the table."""
    found = f"{use.seconds:.1f} | {use.cpu:.1f} | {use.largest:,.0f}"
    return f"| {what} | {size:,} | {found} |"


def measure(place: Path, rows: int, items: int) -> str:
    """The whole section."""
    lines = ["| what | rows | seconds | CPU s | largest process, MB |",
             "| --- | ---: | ---: | ---: | ---: |"]  # fmt: skip

    def step(name: str, what: str, size: int) -> None:
        command = [sys.executable, "-m", "benchmarks.scale_learning", "--one", name]
        lines.append(line(what, size, run_measured([*command, str(place), str(size)])))
        print(lines[-1], flush=True)

    part, some = min(PART, rows // 5), rows // 5
    fill_pairs(place, rows)
    step("fit-memory", "ridge in memory", part)
    for size in dict.fromkeys((part, some, rows)):
        step("fit-pieces", "ridge over pieces", size)
    off = weights_off(place, part)
    fill_halves(place, some, min(PIECE, rows // 10))
    step("fit-matched", "ridge over two folders, matched by id", some)
    moved = maps_off(place, f"matched-{some}", f"pieces-{some}")
    fill_gallery(place, items)
    step("curve-memory", "curve in memory", items)
    step("curve-pieces", "curve over pieces", items)
    curves = [np.load(place / f"{kind}.npy") for kind in ("pieces", "memory")]
    assert off < ROUNDING, f"other weights than in memory: {off}"
    assert np.array_equal(*curves), "another curve than in memory"
    return "\n".join(lines) + (
        f"\n\nVectors of {DIM} numbers under both models, files of {min(PIECE, rows // 10):,} "
        f"pairs and {min(PIECE, items // 10):,} items, two workers. The weights over pieces are "
        f"those in memory to {off:.0e} of the largest weight ({part:,} pairs in the same units); "
        "the two folders' map differs from that of their pairs in one folder by "
        f"{moved:.0e} of the largest number, as its units come from another sample. The curves of "
        f"{METRICS.replace(',', ' and ')} at {POINTS} points, by "
        f"{min(QUERIES, items // PER_CLASS):,} queries, are equal to the last bit."
    )


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:2] == ["--one"]:
        STEPS[sys.argv[2]](Path(sys.argv[3]), sys.argv[4])
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=5_000_000, help="pairs")
    parser.add_argument("--items", type=int, default=1_000_000, help="of the gallery")
    parser.add_argument("--no-write", dest="write", action="store_false", help="only print")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scale-learning-") as folder:
        body = measure(Path(folder), options.rows, options.items)
    print(body)
    if options.write:
        from benchmarks.shared.sections import write_section

        said = " ".join(["python -m benchmarks.scale_learning", *sys.argv[1:]])
        write_section("Learning and measuring over pieces", said, body)


if __name__ == "__main__":
    main()
