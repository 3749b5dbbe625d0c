"""Curves from what each way to serve measured: of one way, or of what the evidence chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfill.align import KEEPS, SERVINGS, Serving, ServingOption
from fastfill.errors import InputError, unknown_choice
from fastfill.evaluate.curves import Curve
from fastfill.evaluate.evidence import choose_serving
from fastfill.evaluate.search_tasks import SearchTask, sampled_task
from fastfill.evaluate.ways import Way, judged_evidence
from fastfill.features import Ints
from fastfill.metrics import QueryScores

PerWay = Mapping[Way, NDArray[np.float64]]  # (k, f) each: queries, points


def ways_of(serving: ServingOption) -> tuple[Serving, ...]:
    """The ways that must be measured for a curve of this serving.

    >>> ways_of("both"), ways_of("auto")
    (('both',), ('old', 'aligned', 'both'))
    """
    if serving == "auto":
        return SERVINGS
    if serving not in SERVINGS:
        raise InputError(unknown_choice("way to serve", serving, [*SERVINGS, "auto"]))
    return (serving,)


@dataclass(frozen=True, eq=False)
class Choices:
    """What serves at each point.

    Choices are cross-fitted: even-numbered queries are served by what odd-numbered ones chose, and
    the other way round, so that the values of a query never rest on a choice it took part in.
    """

    halves: tuple[tuple[Way, ...], tuple[Way, ...]]  # (f,) of even and of odd queries
    whole: tuple[Way, ...]  # (f,) what all queries together would choose

    @classmethod
    def always(cls, serving: Serving, points: int) -> Choices:
        """The same at every point, whatever was measured."""
        every = (Way(serving),) * points
        return cls((every, every), every)

    @classmethod
    def choose(cls, metric: str, values: PerWay, queries: Ints) -> Choices:
        """From the evidence of each half; `queries` are the numbers of the queries, (k,)."""
        odd = queries % 2 == 1
        even_served, odd_served, whole = (
            _choices(metric, values, rows) for rows in (odd, ~odd, np.full(len(odd), True))
        )
        return cls((even_served, odd_served), whole)

    def values(self, values: PerWay, queries: Ints) -> NDArray[np.float64]:
        """Those of the way that serves each query at each point, (k, f)."""
        served = np.empty(next(iter(values.values())).shape)
        for half, choices in enumerate(self.halves):
            rows = np.flatnonzero(queries % 2 == half)
            for point, way in enumerate(choices):
                served[rows, point] = values[way][rows, point]
        return served


def _choices(metric: str, values: PerWay, rows: NDArray[np.bool_]) -> tuple[Way, ...]:
    points = next(iter(values.values())).shape[1]
    return tuple(
        _choice(metric, {way: each[rows, point] for way, each in values.items()})
        for point in range(points)
    )


def _choice(metric: str, measured: Mapping[Way, NDArray[np.float64]]) -> Way:
    """At one point: first the share of the old score, then the way to serve."""
    evidence, keep = judged_evidence(metric, measured)
    serving = choose_serving(evidence)
    return Way(serving, keep if serving == "both" else None)


class CurveBuilder:
    """Gathers what tasks measured at each point, way by way, and makes curves of it.

    With `auto` the first metric is the evidence; where nothing is judged, the agreement with the
    new model among a sample of items. Judged queries also choose which of the shares `keeps` of the
    old score both models together keep.
    """

    def __init__(
        self,
        tasks: Sequence[SearchTask],
        servings: Sequence[ServingOption],
        fractions: NDArray[np.float64],
        name: str,
        keeps: Sequence[float] = KEEPS,
    ) -> None:
        self.fractions, self._name, self._tasks = fractions, name, list(tasks)
        self.servings = tuple(dict.fromkeys(way for one in servings for way in ways_of(one)))
        self.ways = [Way(serving) for serving in self.servings]
        self._evidence: SearchTask | None = None
        if "auto" in servings:
            judged = tasks[0].metrics[0].family != "agreement"
            self._evidence = tasks[0] if judged else sampled_task(tasks[0].vectors)
            self.ways += [Way("both", keep) for keep in keeps if judged]
        self._scores: dict[tuple[SearchTask, Way], list[QueryScores]] = {}

    @property
    def measured(self) -> list[tuple[SearchTask, Way]]:
        """What has to be added at each point; once is enough for the old search."""
        tasks = dict.fromkeys([*self._tasks, self._evidence or self._tasks[0]])
        return [(task, way) for task in tasks for way in self.ways]

    def add(self, task: SearchTask, way: Way, scores: QueryScores) -> None:
        """What one task measured at one or more points, after those before."""
        self._scores.setdefault((task, way), []).append(scores)

    def curves(self, serving: ServingOption) -> dict[str, Curve]:
        """One for each metric, by its name."""
        choices = self._choices(serving)
        return {
            metric.name: self._curve(task, metric.name, choices)
            for task in self._tasks
            for metric in task.metrics
        }

    def _choices(self, serving: ServingOption) -> Choices:
        task = self._evidence
        if serving != "auto" or task is None:
            [only] = ways_of(serving)
            return Choices.always(only, len(self.fractions))
        metric = task.metrics[0].name
        return Choices.choose(metric, self.values(task, metric), self.numbers(task))

    def _curve(self, task: SearchTask, metric: str, choices: Choices) -> Curve:
        scores = self._scores[task, self.ways[0]][0]
        per_query = choices.values(self.values(task, metric), self.numbers(task))
        return Curve(
            metric, self.fractions, per_query.mean(axis=0), self._name, per_query.astype("f"),
            scores.queries, scores.excluded, tuple(way.serving for way in choices.whole),
        )  # fmt: skip

    def numbers(self, task: SearchTask) -> Ints:
        """What the queries are called that were measured, (k,)."""
        return task.numbers(self._scores[task, self.ways[0]][0].queries)

    def values(self, task: SearchTask, metric: str) -> PerWay:
        """Of each query at each point, by way; what was measured once does not change."""
        values = {}
        for way in self.ways:
            parts = [scores.values[metric] for scores in self._scores[task, way]]
            columns = np.concatenate(parts, axis=1)
            values[way] = np.broadcast_to(columns, (len(columns), len(self.fractions)))
        return values
