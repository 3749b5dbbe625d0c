"""What `curve` and `compare` share: the gallery's options, and how sources are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fastfill.cli.main import say
from fastfill.cli.options import bundled
from fastfill.features import DISTANCES, Distance

if TYPE_CHECKING:
    from fastfill.align import Aligned, Alignment
    from fastfill.evaluate import Candidate, Setting
    from fastfill.features import Array, Features, Matrix
    from fastfill.metrics import Relevance
    from fastfill.order import Order


@dataclass(frozen=True)
class EvaluationOptions:
    """On what a curve is measured, and where it goes: the options below, by their names."""

    new: str
    old: str | None
    labels: str | None
    query_new: str | None
    query_labels: str | None
    query_old: str | None
    qrels: str | None
    judged: str | None
    groups: str | None
    query_groups: str | None
    head: str | None
    pairs_old: str | None
    shown: str | None
    side: str | None
    serving: str | None
    metrics: str | None
    points: int
    seeds: int
    distance: Distance | None
    takes: tuple[float, str] | None
    title: str | None
    device: str | None
    output: Path | None
    as_json: bool


_OPTIONS = [
    click.option("--new", metavar="FILE", default="", help="Gallery under the new model."),
    click.option("--old", metavar="FILE", help="Gallery under the old model, row by row."),
    click.option("--labels", metavar="FILE", help="One label per item of the gallery."),
    click.option("--query-new", metavar="FILE", help="Queries under the new model, where they "
                 "are not the gallery itself."),
    click.option("--query-labels", metavar="FILE", help="One label per query."),
    click.option("--query-old", metavar="FILE", help="Queries under the old model, for old/old "
                 "and for --serving."),
    click.option("--qrels", metavar="FILE", help="Relevance judgements (TREC or BEIR) instead of "
                 "labels, by the ids of the vectors (Parquet, or 'ids' in an .npz), else by "
                 "their rows from 0."),
    click.option("--judged", metavar="FOLDER", help="A judged set (corpus.jsonl, queries.jsonl, "
                 "qrels) instead of labels; the vectors are in the order of its files, or Parquet "
                 "files with ids."),
    click.option("--groups", metavar="FILE", help="One group per item of the gallery: quality by "
                 "group, the gap, who is served first."),
    click.option("--query-groups", metavar="FILE", help="One group per query."),
    click.option("--head", metavar="FILE", help="The new model's classifier, one row per class "
                 "(entropy, margin, least-confidence, oracle)."),
    click.option("--pairs-old", metavar="FILE", help="Old vectors of the pairs the map was learned "
                 "from (novelty)."),
    click.option("--shown", metavar="FILE", help="How often each item is shown (traffic:POLICY)."),
    click.option("--side", metavar="FILE", help="Side-information of the gallery, for alignments "
                 "that were learned with it."),
    click.option("--serving", metavar="A,B", help="How queries are answered: old, aligned, both, "
                 "auto (what measures best).  [default: auto with --query-old, else aligned]"),
    click.option("--metrics", metavar="A,B", help="Such as cmc@1,map,recall@10,ndcg@10,mrr,"
                 "agreement@10.  [default: cmc@1,cmc@5,map; without labels agreement@10]"),
    click.option("--points", type=click.IntRange(2), default=21, show_default=True,
                 help="Evenly spaced fractions from 0 to 1."),
    click.option("--seeds", type=click.IntRange(1), default=1, show_default=True,
                 help="How many times a random order is drawn."),
    click.option("--distance", type=click.Choice(DISTANCES), help="[default: the alignment's, "
                 "or l2]"),
    click.option("--takes", nargs=2, type=(float, str), metavar="NUMBER UNIT",
                 help="What a whole backfill takes, such as 30 days or 1200 €: adds a timeline."),
    click.option("--title", help="Title of the report."),
    click.option("--device", metavar="NAME", help="Where ranks are counted, such as cuda."),
    click.option("-o", "--output", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
                 help="Folder for report.html, tables, figures and numbers."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout."),
]  # fmt: skip


evaluation_options = bundled(EvaluationOptions, "options", _OPTIONS)


def read_setting(options: EvaluationOptions, distance: Distance) -> Setting:
    """The gallery and its queries, read and checked."""
    from fastfill.evaluate import Setting
    from fastfill.metrics import as_metrics

    _check_together(options)
    new = read_vectors(options.new, distance)
    queries = None if options.query_new is None else read_vectors(options.query_new, distance)
    labels, query_labels = _relevant(options, new, queries)
    default = "agreement@10" if labels is None else "cmc@1,cmc@5,map"
    return Setting(
        new=new,
        labels=labels,
        old=None if options.old is None else rows_like(new, options.old, distance),
        queries=queries,
        query_labels=query_labels,
        query_old=_query_old(options, queries, distance),
        groups=column(options.groups, "group", len(new), new.groups),
        query_groups=_query_groups(options, queries),
        metrics=tuple(metric.name for metric in as_metrics(options.metrics or default)),
        points=options.points,
        seeds=options.seeds,
        distance=distance,
        device=options.device,
    )


def _check_together(options: EvaluationOptions) -> None:
    """Refuse options that make no sense without, or beside, each other."""
    if not options.new:
        raise click.UsageError("Give --new, the gallery under the new model.")
    for name in ("query_labels", "query_old", "query_groups", "qrels", "judged"):
        if getattr(options, name) and not options.query_new:
            raise click.UsageError(f"{_flag(name)} needs --query-new: the queries it belongs to.")
    if options.qrels and options.judged:
        raise click.UsageError("Give --qrels or --judged, not both: a folder has its own.")
    for name in ("qrels", "judged"):
        if getattr(options, name) and (options.labels or options.query_labels):
            raise click.UsageError(
                f"Give {_flag(name)} or labels, not both: they say the same thing."
            )
    if options.query_old and not options.old:
        raise click.UsageError("--query-old needs --old: old queries search the old gallery.")
    if options.takes and not options.old:
        raise click.UsageError("--takes needs --old: the timeline shows the old model before.")
    if options.takes and options.query_new and not options.query_old:
        raise click.UsageError(
            "--takes needs --query-old: the timeline shows the old model before."
        )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _relevant(
    options: EvaluationOptions, new: Features, queries: Features | None
) -> tuple[Array | Relevance | None, Array | None]:
    """What is relevant: judgements, or the labels of both sides, or nothing that is known."""
    files = (options.new, options.query_new or options.new)
    if options.qrels and queries is not None:
        from fastfill.cli.judged import file_relevance

        return file_relevance(options.qrels, new, queries, files), None
    if options.judged and queries is not None:
        from fastfill.cli.judged import folder_relevance

        return folder_relevance(options.judged, new, queries, files), None
    labels = column(options.labels, "label", len(new), new.labels)
    if queries is None:
        return labels, None
    asked = column(options.query_labels, "label", len(queries), queries.labels)
    if (labels is None) != (asked is None):
        missing = "--labels" if labels is None else "--query-labels"
        raise click.UsageError(f"{missing} is missing: gallery and queries both need labels.")
    return labels, asked


def _query_old(
    options: EvaluationOptions, queries: Features | None, distance: Distance
) -> Features | None:
    if queries is None or not options.query_old:
        return None
    return rows_like(queries, options.query_old, distance)


def _query_groups(options: EvaluationOptions, queries: Features | None) -> Array | None:
    if queries is None:
        return None
    return column(options.query_groups, "group", len(queries), queries.groups)


def read_vectors(source: str, distance: Distance) -> Features:
    """Vectors of a file; under cosine, zero rows are turned away from all others, and told."""
    from fastfill.errors import some
    from fastfill.features import give_directions, read_features

    read = read_features(source)
    if distance != "cosine":
        return read
    vectors, zero = give_directions(read.vectors)
    if len(zero):
        say(f"{source}: {len(zero):,} zero vectors have no direction and match nothing, in rows "
            f"{some(zero)}.")  # fmt: skip
    return read.with_vectors(vectors) if len(zero) else read


def rows_like(items: Features, source: str, distance: Distance) -> Features:
    """Vectors of the same items: matched by id where both files have ids, else row by row."""
    from fastfill.features import Pairs, check_rows

    read = read_vectors(source, distance)
    if read.ids_given and items.ids_given:
        return Pairs.match(items, read).new
    check_rows(len(read), len(items), source)
    return read


def column(source: str | None, name: str, rows: int, default: Array | None = None) -> Array | None:
    """One entry per row from a file, or what the vectors' own file holds."""
    from fastfill.features import as_column, read_column

    return default if source is None else as_column(read_column(source, name), rows, source)


def numbers(source: str, name: str, rows: int) -> Array:
    """One finite number per row that is not negative: variances, counts."""
    import numpy as np

    from fastfill.errors import NonFiniteError, ShapeError, some
    from fastfill.features import read_column

    values = np.asarray(read_column(source, name))
    if values.dtype.kind not in "fiub" or values.shape != (rows,):
        raise ShapeError(
            f"{source}: expected {rows:,} numbers, one per item of the gallery, got "
            f"{values.dtype} of shape {values.shape}."
        )
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(bad):
        raise NonFiniteError(f"{source}: rows {some(bad)} are negative, NaN or infinite.")
    return values


def matrix(source: str | None) -> Matrix | None:
    """A matrix that stands for itself, such as a head."""
    from fastfill.features import read_matrix

    return None if source is None else read_matrix(source)


def policies(text: str) -> list[str]:
    """Names of policies with commas between them."""
    return [name for name in (part.strip() for part in text.split(",")) if name]


def check_policies(names: Sequence[str], predicts: bool) -> None:
    """Refuse policies that are unknown, or that need a variance which is not there."""
    from fastfill.order import check_policy

    for name in names:
        if check_policy(name) == "sigma" and not predicts:
            raise click.UsageError(f"The policy {name!r} needs --variance: it sorts by it.")


def own_aligned(
    source: str, variance: str | None, new: Features, distance: Distance
) -> tuple[Aligned, bool]:
    """Vectors that somebody else has aligned, and whether their error is predicted."""
    import numpy as np

    from fastfill.align import Aligned

    vectors = rows_like(new, source, distance).vectors
    if variance is None:
        return Aligned(vectors, np.zeros(len(vectors), dtype=np.float32)), False
    errors = numbers(variance, "variance", len(vectors))
    return Aligned(vectors, errors.astype(np.float32)), True


def candidates(
    aligned: Aligned,
    orders: Sequence[str | Order],
    names: Sequence[str],
    options: EvaluationOptions,
    alignment: Alignment | None = None,
    label: str = "",
    *,
    predicts: bool = True,
) -> list[Candidate]:
    """The orders of one aligned gallery, with all that their policies may look at."""
    from fastfill.evaluate import Candidate

    head = matrix(options.head)
    if head is None and alignment is not None:
        head = alignment.head
    pairs_old = matrix(options.pairs_old)
    shown = options.shown
    counts = None if shown is None else numbers(shown, "shown", len(aligned.vectors))
    return [
        Candidate(
            name, aligned, order, label, head, pairs_old, counts, predicts,
            reference=None if alignment is None else alignment.reference,
        )
        for order, name in zip(orders, names, strict=True)
    ]  # fmt: skip
