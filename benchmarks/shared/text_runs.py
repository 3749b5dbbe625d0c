"""Upgrades played through in every way to serve: one file of values per query for each run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cached_property, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared.scenarios import cifar100, clinc150
from benchmarks.shared.text_sets import SETS, judged_set, read_embedded, relevance_of
from fastfill.align import SERVINGS, FitOptions, Serving, check_serving, fit_alignment
from fastfill.evaluate import Refits, SearchVectors, Way, judged_evidence, search_tasks
from fastfill.evaluate.curve_builder import Choices, CurveBuilder
from fastfill.evaluate.simulated_backfill import SimulatedBackfill
from fastfill.evaluate.simulation import as_fractions
from fastfill.features import Array, Distance, Features, Matrix, Pairs, replacing
from fastfill.metrics import Relevance

UPGRADES = (  # old, new
    ("glove", "wordllama"),
    ("wordllama", "minilm"),
    ("wordllama", "e5-small"),
    ("e5-small", "minilm"),
    ("use", "minilm"),
)
CHAIN = ("glove", "wordllama", "minilm")  # the third arrives while the second upgrade is half done
CLASSES = ("CLINC150", "CIFAR-100 A")  # the same code where a class is what is right
JUDGED = ("ndcg@10", "recall@10", "recall@100", "mrr@10")
LABELLED = ("map", "cmc@1")
POINTS = 21
ORDER = "mixed"
SHARE = "5 %"  # of the gallery: pairs unless their number is given


class Run(NamedTuple):
    """One backfill: of which set, between which models, from which pairs."""

    name: str  # of the set
    models: tuple[str, ...]  # old, new; or three for a chain
    pairs: str  # "5 %" or a number
    sample: int  # the seed of pairs, order and fit

    @property
    def key(self) -> str:
        """How it is called in results."""
        return " | ".join([self.name, " → ".join(self.models), self.pairs, str(self.sample)])

    def file(self, folder: Path) -> Path:
        """Where its values are kept."""
        parts = (self.name, *self.models, self.pairs, str(self.sample))
        return folder / ("_".join(parts).replace(" ", "") + ".npz")


def all_runs(samples: Sequence[int], pairs: Sequence[str]) -> list[Run]:
    """What is to be run: all upgrades of a sample before those of the next, 5 % first."""
    judged = [(name, models) for name in SETS for models in UPGRADES]
    others = [(name, CHAIN) for name in SETS] + [(name, ("old", "new")) for name in CLASSES]
    return [
        Run(name, models, number, sample)
        for number in pairs
        for sample in samples
        for name, models in judged + (others if number == SHARE else [])
    ]


@dataclass(frozen=True, eq=False)
class Upgrade:
    """What a backfill is played through on."""

    old: Matrix  # (n, d_old)
    new: Matrix  # (n, d_new)
    labels: Relevance | Array
    distance: Distance
    metrics: tuple[str, ...]
    queries: Matrix | None = None  # (q, d_new); None: the gallery asks itself
    queries_old: Matrix | None = None  # (q, d_old)
    query_labels: Array | None = None


@dataclass(frozen=True, eq=False)
class Played:
    """Values of each query along a backfill, for each way to serve."""

    queries: NDArray[np.int64]  # (k,) their numbers
    values: dict[str, dict[Way, NDArray[np.float32]]]  # metric, way: (k, f)

    @property
    def metrics(self) -> list[str]:
        """In the order in which they were measured: the first decides what serves."""
        return list(self.values)

    @property
    def odd(self) -> NDArray[np.bool_]:
        """The queries that tables are about; the others choose."""
        return np.asarray(self.queries % 2 == 1)

    @cached_property
    def choices(self) -> Choices:
        """What even-numbered queries choose for odd-numbered ones at each point, and vice versa."""
        metric = self.metrics[0]
        return Choices.choose(metric, self._precise(metric), self.queries)

    @property
    def served(self) -> list[Serving]:
        """What serves the odd-numbered queries at each point."""
        return [way.serving for way in self.choices.halves[1]]

    def curves(self, metric: str) -> dict[str, NDArray[np.float64]]:
        """Of the odd-numbered queries in per cent, (f,) by way, with what was chosen as `auto`."""
        ways = self.values[metric]
        means = {
            str(way.serving): 100 * values[self.odd].mean(axis=0, dtype=float)
            for way, values in ways.items()
            if way.keep is None
        }
        return means | {"auto": 100 * self._auto(metric)[self.odd].mean(axis=0)}

    def errors(self) -> NDArray[np.float64]:
        """Standard error of what `auto` gains on the old search, in points, (f,)."""
        metric = self.metrics[0]
        gains = 100 * (self._auto(metric) - self.values[metric][Way("old")])[self.odd]
        return np.asarray(gains.std(axis=0, ddof=1) / np.sqrt(len(gains)))

    def lost(self) -> NDArray[np.float64]:
        """What the best of the three ways has over the chosen one, in points, (f,).

        Both models keep the share of the old score that the even-numbered queries choose.
        """
        metric = self.metrics[0]
        values = self._precise(metric)
        best = [
            self._best({way: each[:, p] for way, each in values.items()}) for p in range(POINTS)
        ]
        return np.asarray(100 * (best - self._auto(metric)[self.odd].mean(axis=0)))

    def _best(self, values: dict[Way, NDArray[np.float64]]) -> float:
        """The best mean of the odd-numbered queries at one point."""
        even = {way: each[~self.odd] for way, each in values.items()}
        _, keep = judged_evidence(self.metrics[0], even)
        ways = (Way("old"), Way("aligned"), Way("both", keep))
        return max(float(values[way][self.odd].mean()) for way in ways)

    def _auto(self, metric: str) -> NDArray[np.float64]:
        """(k, f) of the way that serves each query at each point."""
        return self.choices.values(self._precise(metric), self.queries)

    def _precise(self, metric: str) -> dict[Way, NDArray[np.float64]]:
        return {way: values.astype(np.float64) for way, values in self.values[metric].items()}


def play(run: Run, vectors: Path) -> Played:
    """Play one backfill through, learning again on the way, in every way to serve at once."""
    upgrade = read_upgrade(run, vectors)
    pairs = round(0.05 * len(upgrade.new)) if run.pairs == SHARE else int(run.pairs)
    searched = SearchVectors.of(
        upgrade.new, upgrade.queries, upgrade.distance, upgrade.old, upgrade.queries_old
    )
    [task] = search_tasks(searched, upgrade.metrics, upgrade.labels, upgrade.query_labels)
    builder = CurveBuilder([task], [*SERVINGS, "auto"], as_fractions(POINTS), ORDER)
    SimulatedBackfill(searched, Refits(pairs), ORDER, run.sample).measure(builder)
    values = {
        metric: {way: each.astype(np.float32) for way, each in builder.values(task, metric).items()}
        for metric in upgrade.metrics
    }
    return Played(builder.numbers(task), values)


def read_upgrade(run: Run, vectors: Path) -> Upgrade:
    """Galleries, queries and what is right for them."""
    if run.name == "CIFAR-100 A":
        images = cifar100("A")
        return Upgrade(images.old, images.new, images.labels, "l2", LABELLED)
    if run.name == "CLINC150":
        texts = clinc150(pairs=1)
        return Upgrade(
            texts.old, texts.new, texts.labels, "cosine", LABELLED,
            texts.queries, texts.old_queries, texts.query_labels,
        )  # fmt: skip
    *before, old, new = (read_embedded(vectors, run.name, model) for model in run.models)
    gallery = old.documents
    for oldest in before:
        gallery = half_done(oldest.documents, old.documents, run.sample)
    relevance = relevance_of(judged_set(run.name))
    return Upgrade(
        gallery, new.documents, relevance, "cosine", JUDGED, new.queries, old.queries
    )  # fmt: skip


def half_done(old: Matrix, new: Matrix, seed: int) -> Matrix:
    """A gallery in the middle of an upgrade: a random half is new, the rest aligned by it."""
    rows = np.random.default_rng(seed).permutation(len(old))[: len(old) // 2]
    pairs = Pairs(Features(old[rows]), Features(new[rows]))
    gallery = fit_alignment(pairs, FitOptions(seed=seed), distance="cosine")(old).vectors.copy()
    gallery[rows] = new[rows]
    return gallery


def play_missing(runs: Sequence[Run], folder: Path, vectors: Path, jobs: int) -> None:
    """Play what is not kept yet, some at a time, each kept as soon as it is done."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [run for run in runs if not run.file(folder).exists()]
    work = partial(_play_and_keep, folder=folder, vectors=vectors)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of each process: threads of two hinder another
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for number, job in enumerate(as_completed([pool.submit(work, run) for run in missing]), 1):
            print(f"{number}/{len(missing)}: {job.result()}", file=sys.stderr, flush=True)


def _play_and_keep(run: Run, folder: Path, vectors: Path) -> str:
    if not run.file(folder).exists():  # another process may have been quicker
        played = play(run, vectors)
        arrays: dict[str, Any] = {
            f"{metric}.{way.serving}.{way.keep or ''}": values
            for metric, ways in played.values.items()
            for way, values in ways.items()
        }
        with replacing(run.file(folder)) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, queries=played.queries, **arrays)
    return run.key


def read_played(run: Run, folder: Path) -> Played:
    """What `play_missing` kept."""
    values: dict[str, dict[Way, NDArray[np.float32]]] = {}
    with np.load(run.file(folder)) as arrays:
        for name in arrays:
            metric, _, way = name.partition(".")
            if way:
                serving, _, keep = way.partition(".")
                known = Way(check_serving(serving), float(keep) if keep else None)
                values.setdefault(metric, {})[known] = arrays[name]
        return Played(arrays["queries"], values)
