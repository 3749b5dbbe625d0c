"""python -m benchmarks.text_search [--embed] [--vectors DIR] [--runs DIR] [--samples 3] [--jobs 2]
                                [--pairs "5 %"|500]

Document search with judged relevance along a backfill, served by the old model, by the new one on
aligned vectors, by both, or by what the evidence chooses. Five judged sets, five upgrades, and a
chain of two; then classes with the same code. `--embed` makes the vectors that are missing, with
encoders that are set up as benchmarks/shared/text_encoders.py says; every other run reads them.

Each backfill is kept in DIR as soon as it is played through, as values of each query; `--tables`
writes the tables of those that are there, and of others as benchmarks/results keeps them. Choices
are made on even-numbered queries, tables are about odd-numbered ones.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.shared.paths import DATA
from benchmarks.shared.sections import write_section
from benchmarks.shared.text_encoders import ENCODERS, text_folder
from benchmarks.shared.text_runs import (
    CHAIN,
    CLASSES,
    JUDGED,
    SHARE,
    UPGRADES,
    Run,
    all_runs,
    play_missing,
    read_played,
)
from benchmarks.shared.text_sets import (
    SETS,
    embed_missing,
    judged_set,
    read_embedded,
    relevance_of,
)
from benchmarks.shared.text_tables import (
    check_table,
    downgrades,
    encoder_table,
    mean_table,
    summarise,
    upgrade_table,
)
from fastfill.features import replacing
from fastfill.metrics import as_metrics, gallery_scores

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ("text", "features", "clinc150")

COMMAND = "python -m benchmarks.text_search"
KEPT = DATA / "text_search.json"
PAIRS = (SHARE, "500")


def main() -> None:
    """Embed, or play what is missing and write the tables of all that is there."""
    given = parse()
    if given.embed:
        embed_missing(given.vectors, SETS, list(ENCODERS))
        return
    encoders = {name: encoder_scores(name, given.vectors) for name in SETS}
    runs = all_runs(range(given.samples), PAIRS)
    if not given.tables:
        wanted = [run for run in runs if given.pairs in (None, run.pairs)]
        play_missing(wanted, given.runs, given.vectors, given.jobs)
    summaries = all_summaries(runs, given.runs)
    print(f"{len(summaries)} of {len(runs)} runs are there.", file=sys.stderr)
    keep(encoders, summaries)
    write_tables(encoders, summaries)


def parse() -> argparse.Namespace:
    """The options."""
    folder = text_folder()
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--embed", action="store_true", help="make the vectors that are missing")
    parser.add_argument("--tables", action="store_true", help="play nothing, write the tables")
    parser.add_argument("--vectors", type=Path, default=folder / "vectors", metavar="DIR")
    parser.add_argument("--runs", type=Path, default=folder / "runs", metavar="DIR")
    parser.add_argument("--samples", type=int, default=3, help="samples of pairs")
    parser.add_argument("--pairs", choices=PAIRS, help="play these alone (default: both)")
    parser.add_argument("--jobs", type=int, default=2, help="backfills at a time")
    return parser.parse_args()


def encoder_scores(name: str, vectors: Path) -> dict[str, dict[str, float]]:
    """Every metric of each encoder alone on one set, all queries, in per cent."""
    relevance, scores = relevance_of(judged_set(name)), {}
    for encoder in ENCODERS:
        given = read_embedded(vectors, name, encoder)
        values = gallery_scores(
            given.queries, given.documents, relevance, as_metrics(JUDGED), distance="cosine"
        ).values
        scores[encoder] = {
            metric: round(100 * float(values[metric].mean()), 2) for metric in JUDGED
        }
    return scores


def all_summaries(runs: Sequence[Run], folder: Path) -> dict[Run, Any]:
    """Of the runs in the folder, and of others as they were kept with the results."""
    kept = json.loads(KEPT.read_text())["runs"] if KEPT.exists() else {}
    return {
        run: summarise(read_played(run, folder)) if run.file(folder).exists() else kept[run.key]
        for run in runs
        if run.file(folder).exists() or run.key in kept
    }


def keep(encoders: Mapping[str, Any], summaries: Mapping[Run, Any]) -> None:
    """Results as data: benchmarks/results/text_search.json."""
    plain = {"encoders": encoders, "runs": {run.key: each for run, each in summaries.items()}}
    with replacing(KEPT) as temporary:
        temporary.write_text(json.dumps(plain, indent=None, separators=(",", ":")) + "\n")


def write_tables(encoders: Mapping[str, Any], summaries: Mapping[Run, Any]) -> None:
    """A section for each table."""
    worse = "; ".join(downgrades(encoders, UPGRADES)) or "none"
    write_section(
        "Document search: encoders alone",
        COMMAND,
        f"{encoder_table(encoders)}\n\nAll queries, per cent. Upgrades that are down-grades by "
        f"nDCG@10: {worse}.\n\n{remarks()}",
    )
    for pairs in PAIRS:
        judged = {r: s for r, s in summaries.items() if r.pairs == pairs and r.name in SETS}
        upgrades = {r: s for r, s in judged.items() if r.models != CHAIN}
        if upgrades:
            what = f"{pairs} of the gallery" if pairs == SHARE else f"{pairs} pairs"
            write_along(f"Document search along a backfill, {what}", upgrades)
        chain = {r: s for r, s in judged.items() if r.models == CHAIN}
        if chain:
            write_chain(chain)
    classes = {r: s for r, s in summaries.items() if r.name in CLASSES}
    if classes:
        write_section(
            "Classes served in the same ways",
            COMMAND,
            f"mAP in per cent, odd-numbered queries, pairs {SHARE} of the gallery, "
            f"{samples(classes)}.\n\n{upgrade_table(classes)}\n\n{check_table(classes)}",
        )


def write_along(title: str, runs: Mapping[Run, Any]) -> None:
    """One number of pairs: means, checks, and every upgrade."""
    write_section(
        title,
        COMMAND,
        "nDCG@10 in per cent of odd-numbered queries; what `auto` serves was chosen on the others "
        "at each point. Pairs are random rows, the order is `mixed`, the map and the fusion are "
        "learned again whenever the pairs have grown by a quarter; the fusion sees the vectors of "
        f"all queries, no judgement. {samples(runs).capitalize()}.\n\n{mean_table(runs)}\n\n"
        "What `auto` promises, point by point; ± is a standard error over the queries.\n\n"
        f"{check_table(runs)}\n\n{upgrade_table(runs)}",
    )


def write_chain(runs: Mapping[Run, Any]) -> None:
    """A second upgrade that begins while the first is half done."""
    write_section(
        "Document search: a chain of two upgrades",
        COMMAND,
        f"{' → '.join(CHAIN)}: when the third model arrives a random half of the gallery has been "
        "embedded by the second, and the rest is aligned; that gallery, asked by the second model, "
        f"is `old`. nDCG@10 in per cent, odd-numbered queries, pairs {SHARE} of the gallery, "
        f"{samples(runs)}.\n\n{upgrade_table(runs)}\n\n{check_table(runs)}",
    )


def samples(runs: Mapping[Run, Any]) -> str:
    """How many runs and samples of pairs there are, in words."""
    return f"{len(runs)} runs, samples of pairs: {len({run.sample for run in runs})}"


def remarks() -> str:
    """What is odd about the sets."""
    return " ".join(one for name in SETS for one in judged_set(name).remarks())


if __name__ == "__main__":
    main()
