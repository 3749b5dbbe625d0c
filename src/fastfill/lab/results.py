"""The result files of the laboratory: one small JSON file for each experiment and seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastfill.errors import FileError, InputError
from fastfill.evaluate import Curve
from fastfill.features import replacing
from fastfill.lab.experiments import EXPERIMENTS, Experiment
from fastfill.lab.systems import BASELINE_NAMES, FASTFILL_NAMES
from fastfill.report import Estimate

FORMAT = 1

Result = dict[str, Any]  # of one seed


@dataclass(frozen=True, eq=False)
class ExperimentResults:
    """One experiment on one data set, one result per seed."""

    experiment: Experiment
    data: str
    per_seed: tuple[Result, ...]

    @property
    def seeds(self) -> list[int]:
        """The seeds, rising."""
        return [result["seed"] for result in self.per_seed]

    @property
    def commands(self) -> list[str]:
        """The commands that made the seeds, each once."""
        return list(dict.fromkeys(result["command"] for result in self.per_seed))

    @property
    def tests(self) -> list[str]:
        """The names of the test sets."""
        return list(self.per_seed[0]["tests"])

    def systems(self, test: str) -> list[str]:
        """The systems that every seed has."""
        measured = [result["tests"][test]["systems"] for result in self.per_seed]
        return [name for name in measured[0] if all(name in systems for systems in measured)]

    def uses(self, test: str, system: str) -> str:
        """Which information a system may use."""
        return str(self.per_seed[0]["tests"][test]["systems"][system]["uses"])

    def curves(self, test: str) -> list[Curve]:
        """The curves of every system, metric of the experiment and seed."""
        return [
            self.curve(result, test, system, metric)
            for metric in self.experiment.shows
            for system in self.systems(test)
            for result in self.per_seed
        ]

    def curve(self, result: Result, test: str, system: str, metric: str) -> Curve:
        """The curve of one seed."""
        plain = result["tests"][test]["systems"][system]["curves"][metric]
        return Curve(metric, plain["fractions"], plain["values"], name=system)

    def areas(self, test: str, system: str, metric: str) -> list[float]:
        """M̃ of each seed; for `old/old` and `new/new` the level."""
        if system in ("old/old", "new/new"):
            return [result["tests"][test]["plain"][system][metric] for result in self.per_seed]
        systems = (result["tests"][test]["systems"][system] for result in self.per_seed)
        return [one["curves"][metric]["area"] for one in systems]

    def starts(self, test: str, system: str, metric: str) -> list[float]:
        """The metric of each seed at 0 %."""
        return [self.curve(result, test, system, metric).start for result in self.per_seed]

    def each(self, measure: Callable[[Result], float]) -> Estimate:
        """A number of every seed's result."""
        return Estimate.of(map(measure, self.per_seed))

    def baseline(self, test: str) -> str | None:
        """FCT in random order, by the name that it has in this table."""
        return next((name for name in BASELINE_NAMES if name in self.systems(test)), None)

    def fastfill(self, test: str) -> str | None:
        """FastFill, by the name that it has in this table."""
        return next((name for name in FASTFILL_NAMES if name in self.systems(test)), None)

    def closed(self, test: str, system: str, metric: str) -> Estimate:
        """The fraction of the gap between FCT-random and new/new that a system closes.

        Nothing where there is no gap to close: at least half a point is needed.
        """
        base = self.baseline(test)
        if base is None:
            return Estimate.of([])
        low, high = self.areas(test, base, metric), self.areas(test, "new/new", metric)
        if any(top - bottom < 0.005 for bottom, top in zip(low, high, strict=True)):
            return Estimate.of([])
        areas = self.areas(test, system, metric)
        return Estimate.of((a - b) / (c - b) for a, b, c in zip(areas, low, high, strict=True))

    def leads(self, test: str, system: str, metric: str) -> tuple[list[float], int]:
        """FastFill's lead over a system in each seed, and in how many it is significant.

        Significant: the 95 % interval of a paired bootstrap over the queries lies on the same
        side of zero as the mean over the seeds.
        """
        comparisons = [
            one
            for result in self.per_seed
            for one in result["tests"][test]["comparisons"]
            if one["b"] == system and one["metric"] == metric
        ]
        leads = [float(one["difference"]) for one in comparisons]
        ahead = sum(leads) > 0
        return leads, sum(one["low"] > 0 if ahead else one["high"] < 0 for one in comparisons)


def read_results(folder: Path) -> list[ExperimentResults]:
    """All results below a folder (`DATA/EXPERIMENT-seedN.json`), in the order of the paper."""
    together: dict[tuple[str, str], list[Result]] = {}
    for path in sorted(folder.glob("*/*-seed*.json")):
        result = _read(path)
        together.setdefault((result["data"], result["experiment"]), []).append(result)
    if not together:
        raise FileError(
            f"{folder}: holds no results. Run an experiment first, such as "
            "'fastfill lab run main --data digits'."
        )
    order = list(EXPERIMENTS)
    keys = sorted(together, key=lambda key: (key[0], order.index(key[1])))
    return [_together(data, name, together[data, name]) for data, name in keys]


def _together(data: str, name: str, results: list[Result]) -> ExperimentResults:
    rising = sorted(results, key=lambda result: int(result["seed"]))
    for result in rising[1:]:
        if _made_by(result) != _made_by(rising[0]):
            raise InputError(
                f"{name} on {data}: seeds {rising[0]['seed']} and {result['seed']} were run with "
                "other models, epochs or maps. Run all seeds with the same options."
            )
    return ExperimentResults(EXPERIMENTS[name], data, tuple(rising))


def _made_by(result: Result) -> tuple[object, ...]:
    """What all seeds of a table must share."""
    models = [(name, m["model"], m["epochs"]) for name, m in result["models"].items()]
    return (*models, *sorted(result["map"].items()), *result["tests"])


def _read(path: Path) -> Result:
    try:
        result: Result = json.loads(path.read_text(encoding="utf-8"))
        if result["format"] != FORMAT or result["experiment"] not in EXPERIMENTS:
            raise ValueError("of another version")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(f"{path}: is no result of the laboratory ({error}). Delete it.") from error
    return result


def data_names(results: Iterable[ExperimentResults]) -> list[str]:
    """The data sets that there are results for."""
    return list(dict.fromkeys(one.data for one in results))


def write_result(path: Path, result: Result) -> None:
    """Write the result of one seed, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as draft:
        draft.write_text(json.dumps(result, ensure_ascii=False) + "\n", encoding="utf-8")
