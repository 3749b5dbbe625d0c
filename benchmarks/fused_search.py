"""python -m benchmarks.fused_search --vectors FOLDER

What a search by both models costs. A gallery of 100,000 rows, 256 → 384 dimensions, is half done,
in LanceDB without and with an index and in PostgreSQL with HNSW on both columns. In every round a
new reader process asks in turns: ten answers from the added column, and ten answers fused from
both. The factors are those of each round, which other work on the machine slows as a whole, and the
median of the rounds is told. Then readers of either kind are started in turns, and their memory is
compared after the same number of searches.

With a folder of vectors of the judged text sets (`SET-ENCODER.npz`, arrays `corpus` and `queries`;
option --vectors, or $FASTFILL_TEXT_VECTORS) it also measures what choosing from ten candidates for
each answer loses against scoring every document, in recall@10. A third of the documents are pairs
or new, the others aligned by ridge. With --store (`none`: no store) the other lines stay as they
were.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shared.half_done import fill_lance, fill_postgres, make_items
from benchmarks.shared.paths import DATA

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

TITLE = "A search by both models"
KEPT = DATA / "fused_search.json"
FOLDER = "FASTFILL_TEXT_VECTORS"
STORES = ("LanceDB", "LanceDB, indexed", "PostgreSQL, HNSW")
K, WARM_UP = 10, 10
ROUNDS = 5  # of which each is a process of its own
SETTLING = 150  # searches of a reader: the heaps of Lance's threads grow slowly, and unevenly
SAMPLES = 3  # of pairs
SETS = ("cranfield", "cacm", "nfcorpus", "cosqa", "wikiqa")
UPGRADES = (
    ("glove", "wordllama"),
    ("wordllama", "minilm"),
    ("wordllama", "e5-small"),
    ("e5-small", "minilm"),
    ("use", "minilm"),
)


# --- in processes of their own -------------------------------------------------------------------


def ask(url: str, count: int) -> None:
    """Search in both ways by turns; prints the seconds of each, (2, count)."""
    works = searches(url)
    spent: list[list[float]] = [[], []]
    for number in range(WARM_UP + count):
        for kind in (0, 1) if number % 2 else (1, 0):
            began = time.perf_counter()
            works[kind](number)
            if number >= WARM_UP:
                spent[kind].append(time.perf_counter() - began)
    print(json.dumps(spent))


def weigh(url: str, fused: bool) -> None:
    """Search in one way; prints the memory of the process in MB."""
    work = searches(url)[fused]
    for number in range(SETTLING):
        work(number)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    print(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)


def searches(url: str) -> tuple[Callable[[int], Any], Callable[[int], Any]]:
    """A search of the added column alone, and one by both models."""
    from fastfill.wiring import connect

    gallery, queries = connect(url), make_items(10**7, 500)

    def one(number: int) -> Any:
        return gallery.search(new=queries.new[number % 500], k=K, serving="aligned")

    def both(number: int) -> Any:
        old, new = queries.old[number % 500], queries.new[number % 500]
        return gallery.search(old=old, new=new, k=K)

    return one, both


# --- the cost ------------------------------------------------------------------------------------


@contextmanager
def gallery_at(store: str, rows: int) -> Iterator[str]:
    """The URL of a half-done gallery."""
    if store.startswith("LanceDB"):
        with tempfile.TemporaryDirectory(prefix="fused-") as folder:
            lance = fill_lance(folder, rows)
            if "indexed" in store:
                lance.build_index("old", "l2")
                lance.build_index("new", "l2")
            yield f"lance://{folder}#items.vector"
        return
    from benchmarks.shared.postgres_server import PostgresServer

    server = PostgresServer()
    try:
        postgres = fill_postgres(server.uri, rows)
        postgres.build_index("old", "l2")
        postgres.build_index("new", "l2")
        postgres.close()
        yield f"{server.uri}#items.vector"
    finally:
        server.close()


def measure(store: str, rows: int, queries: int, readers: int) -> list[str]:
    """The lines of one store in the table, from `queries` of each kind in all rounds together."""
    with gallery_at(store, rows) as url:
        print(f"{store}: {rows:,} rows are ready", file=sys.stderr, flush=True)
        rounds, load = [], []
        for _ in range(ROUNDS):
            asked = json.loads(child("--ask", url, -(-queries // ROUNDS)))
            rounds.append(1e3 * np.array(asked))  # (2, n) ms
            load.append(os.getloadavg()[0])
        memory = [
            [float(child("--weigh", url, kind)) for kind in (0, 1)] for _ in range(readers)
        ]  # (readers, 2) MB
    one, both = np.median(memory, axis=0)
    typical, tail = (cells(np.percentile(rounds, q, axis=2)) for q in (50, 95))
    return [
        f"| {store} | {typical} | {tail} | {one:.0f} | {both - one:+.0f} | "
        f"{sum(each.shape[1] for each in rounds)} | {np.mean(load):.1f} |"
    ]


def cells(times: Any) -> str:
    """`one | both | ×` from (rounds, 2) times: the medians of the rounds, and of their factors."""
    one, both = np.median(times, axis=0)
    return f"{one:.1f} | {both:.1f} | {np.median(times[:, 1] / times[:, 0]):.2f}"


def child(*arguments: object) -> str:
    """What this benchmark prints in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.fused_search", *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


# --- what few candidates lose --------------------------------------------------------------------


def candidate_lines(folder: Path) -> list[str]:
    """A table of recall@10, from all documents and from the candidates, for every upgrade."""
    lines = [
        "| recall@10, all scored | " + " | ".join(SETS) + " |",
        "| --- |" + " ---: |" * len(SETS),
    ]
    for old, new in UPGRADES:
        cells = [recalls(folder, name, old, new) for name in SETS]
        lines.append(f"| {old} → {new} | " + " | ".join(cells) + " |")
    return lines


def recalls(folder: Path, name: str, old: str, new: str) -> str:
    """`recall (loss)` of one upgrade of one set, in points: means of the samples of pairs."""
    galleries = (TextGallery(folder, name, old, new, sample) for sample in range(SAMPLES))
    whole, part = np.mean([both_recalls(gallery) for gallery in galleries], axis=0)
    return f"{whole:.1f} ({part - whole:+.1f})"


def both_recalls(gallery: TextGallery) -> tuple[float, float]:
    """With every document scored, and with the candidates alone, in per cent."""
    from fastfill.align.fusion import similarities
    from fastfill.gallery import candidates_for

    by_old = similarities(gallery.asked_old, gallery.old, "cosine")
    by_new = similarities(gallery.asked_new, gallery.added, "cosine")
    all_scored: list[float] = []
    chosen: list[float] = []
    for query, right in enumerate(gallery.right):
        scale = gallery.fusion.scale(gallery.asked_old[query], gallery.asked_new[query])
        scores = gallery.fusion.combine(scale, by_old[query], by_new[query], gallery.is_new)
        lists = [highest(side[query], candidates_for(K)) for side in (by_old, by_new)]
        candidates = np.unique(np.concatenate(lists))
        best = candidates[highest(scores[candidates], K)]
        for answers, recall in ((highest(scores, K), all_scored), (best, chosen)):
            recall.append(len(right & set(answers.tolist())) / len(right))
    return 100 * float(np.mean(all_scored)), 100 * float(np.mean(chosen))


def highest(values: Any, count: int) -> Any:
    """Where the highest values are, in no order."""
    return np.argpartition(-values, min(count, len(values)) - 1)[:count]


class TextGallery:
    """A judged set of whose documents a third is new, by their rows."""

    def __init__(self, folder: Path, name: str, old: str, new: str, sample: int) -> None:
        from fastfill.align import Alignment
        from fastfill.features import Features, Pairs

        self.old, self.asked_old = read_vectors(folder / f"{name}-{old}.npz")
        vectors, self.asked_new = read_vectors(folder / f"{name}-{new}.npz")
        order = np.random.default_rng(sample).permutation(len(vectors))
        pairs = order[: min(1_000, len(order) // 3)]
        alignment = Alignment.fit(
            Pairs(Features(self.old[pairs]), Features(vectors[pairs])),
            method="ridge",
            distance="cosine",
        )
        assert alignment.fusion is not None
        self.fusion = alignment.fusion
        self.is_new = np.zeros(len(vectors), dtype=bool)
        self.is_new[order[: len(order) // 3]] = True
        self.added = np.where(self.is_new[:, None], vectors, alignment(self.old).vectors)
        self.right = judgements(name)


def read_vectors(path: Path) -> tuple[Any, Any]:
    """Documents and queries; a text without a direction gets one, far from most queries."""
    if not path.exists():
        sys.exit(f"{path}: no such file. Give the folder of the text sets' vectors as --vectors.")
    with np.load(path) as arrays:
        both = [arrays[key].astype(np.float32) for key in ("corpus", "queries")]
    empty = [~vectors.any(axis=1, keepdims=True) for vectors in both]
    documents, queries = (
        np.where(none, np.float32(1e-3), vectors) for none, vectors in zip(empty, both, strict=True)
    )
    return documents, queries


def judgements(name: str) -> list[set[int]]:
    """For each query that has any, the rows of the documents that are right."""
    folder = Path(os.environ["FASTFILL_DATA"]) / "text" / name
    rows = {key: row for row, key in enumerate(ids_in(folder / "corpus.jsonl"))}
    right: dict[str, set[int]] = {key: set() for key in ids_in(folder / "queries.jsonl")}
    for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines():
        query, document, grade = line.split("\t")
        if float(grade) > 0:
            right[query].add(rows[document])
    return [documents for documents in right.values() if documents]


def ids_in(path: Path) -> list[str]:
    """The ids of a file of BEIR's kind, in order."""
    return [json.loads(line)["id"] for line in path.read_text(encoding="utf-8").splitlines()]


# --- the whole -----------------------------------------------------------------------------------


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:2] == ["--ask"]:
        ask(sys.argv[2], int(sys.argv[3]))
        return
    if sys.argv[1:2] == ["--weigh"]:
        weigh(sys.argv[2], bool(int(sys.argv[3])))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", action="append", choices=[*STORES, "none"])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--readers", type=int, default=3, help="of each kind, for their memory")
    parser.add_argument("--vectors", type=Path, default=os.environ.get(FOLDER))
    parser.add_argument("--no-write", dest="write", action="store_false", help="only print")
    options = parser.parse_args()
    parts = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for store in options.store or STORES:
        if store != "none":
            parts[store] = measure(store, options.rows, options.queries, options.readers)
            keep(parts, options.write)
    if options.vectors:
        parts["candidates"] = candidate_lines(Path(options.vectors))
        keep(parts, options.write)
    print(table(parts, options.rows))
    if options.write:
        from benchmarks.shared.sections import write_section

        command = "python -m benchmarks.fused_search --vectors FOLDER"
        write_section(TITLE, command, table(parts, options.rows))


def keep(parts: dict[str, list[str]], write: bool) -> None:
    """So that stores can be measured one at a time."""
    if write:
        KEPT.write_text(json.dumps(parts, indent=1, ensure_ascii=False) + "\n")


def table(parts: dict[str, list[str]], rows: int) -> str:
    """All that is known, as text."""
    lines = [
        "| store | one, ms | both, ms | × | one, p95 | both, p95 | × | reader, MB | both, MB | "
        "queries | load |",
        "| --- |" + " ---: |" * 10,
        *(line for store in STORES for line in parts.get(store, [])),
        "",
        f"{K} answers from {rows:,} rows, half of them new; so many queries of each kind, by turns "
        f"in {ROUNDS} processes one after the other. one: a search of the added column; both: two "
        "searches and the fusion; times and factors are medians of those of the processes. reader: "
        f"memory of a process after {SETTLING} searches in one way, and how much more for both. "
        f"load: the machine's load average meanwhile, on {os.cpu_count()} cores.",
    ]
    if "candidates" in parts:
        lines += ["", *parts["candidates"], ""]
        lines += [
            f"Means of {SAMPLES} samples of pairs. In brackets: what it changes to choose from ten "
            "candidates per answer and model."
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
