"""`Curve`: a metric as a function of the backfilled fraction, and its area."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align import Aligned, Fusion, Serving, ServingOption, check_serving
from fastfill.errors import FileError, InputError, ShapeError
from fastfill.features import Distance, Features, Source, replacing
from fastfill.metrics import LabelSets, Relevance, as_metric
from fastfill.order import Order, PolicyInput


@dataclass(frozen=True, eq=False)
class Curve:
    """M(G_{π,α}, Q) at the fractions α of one order π.

    >>> curve = Curve("map", [0.0, 0.5, 1.0], [0.4, 0.6, 0.7], name="sigma")
    >>> round(curve.area, 3), round(curve.mean, 3)
    (0.575, 0.567)
    """

    metric: str
    fractions: NDArray[np.float64]  # (f,) rising, within 0 … 1
    values: NDArray[np.float64]  # (f,) between 0 and 1
    name: str = ""
    per_query: NDArray[np.float32] | None = None  # (k, f), for flips, groups and the bootstrap
    queries: NDArray[np.int64] | None = None  # (k,) rows of the query set that per_query holds
    excluded: int = 0  # queries left out because nothing in the gallery is relevant to them
    serving: tuple[Serving, ...] | None = None  # (f,) what served, or would, at each fraction

    def __post_init__(self) -> None:
        kinds = {
            "fractions": np.float64,
            "values": np.float64,
            "per_query": np.float32,
            "queries": np.int64,
        }
        for field, kind in kinds.items():
            if getattr(self, field) is not None:
                array = np.array(getattr(self, field), dtype=kind)
                array.flags.writeable = False
                object.__setattr__(self, field, array)
        if self.serving is not None:
            object.__setattr__(self, "serving", tuple(map(check_serving, self.serving)))
        self._check()

    def _check(self) -> None:
        as_metric(self.metric)
        points = len(self.fractions)
        if self.fractions.ndim != 1 or not points or self.values.shape != self.fractions.shape:
            raise ShapeError(
                f"A curve has one value for each fraction, got {self.values.shape} values for "
                f"{self.fractions.shape} fractions."
            )
        check_fractions(self.fractions)
        if self.per_query is not None and self.per_query.shape[1:] != (points,):
            raise ShapeError(
                f"per_query is {self.per_query.shape}, expected (queries, {points}): one value "
                "for each query and fraction."
            )
        if self.queries is not None and (
            self.per_query is None or len(self.queries) != len(self.per_query)
        ):
            raise ShapeError("queries names the rows of per_query: give one for each of them.")
        if self.serving is not None and len(self.serving) != points:
            raise ShapeError(
                f"A curve has one way to serve for each fraction, got {len(self.serving)} for "
                f"{points}."
            )

    def __repr__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        return f"Curve({name}{self.metric} {self.start:.4f} → {self.end:.4f}, area {self.area:.4f})"

    @property
    def area(self) -> float:
        """M̃, the area under the curve: the trapezoid integral."""
        if len(self.fractions) == 1:
            return float(self.values[0])
        width = self.fractions[-1] - self.fractions[0]
        return float(np.trapezoid(self.values, self.fractions) / width)

    @property
    def mean(self) -> float:
        """M̃ as the authors' code has it: the mean of evenly spaced points."""
        return float(self.values.mean())

    @property
    def start(self) -> float:
        """Value of the first fraction: nothing is backfilled."""
        return float(self.values[0])

    @property
    def end(self) -> float:
        """Value of the last fraction: everything is backfilled."""
        return float(self.values[-1])

    @property
    def quality(self) -> NDArray[np.float64]:
        """The values divided by that of the whole gallery new, (f,): what an operator watches."""
        if self.end <= 0:
            raise InputError(
                f"{self.metric} is {self.end} when all is new: no quality to divide by."
            )
        return np.asarray(self.values / self.end)

    @property
    def served_by(self) -> str:
        """What answered, and from which fraction on; empty where that is not known.

        >>> ways = ("both", "both", "aligned")
        >>> Curve("map", [0.0, 0.5, 1.0], [0.4, 0.6, 0.7], serving=ways).served_by
        'both, from 100 % on aligned'
        """
        ways = self.serving or ()
        turns = [i for i in range(1, len(ways)) if ways[i] != ways[i - 1]]
        later = [f"from {self.fractions[i]:.0%} on {ways[i]}".replace("%", " %") for i in turns]
        return ", ".join([*ways[:1], *later])

    def at(self, fraction: float) -> float:
        """Value at a budget, such as 0.1; between two points of the curve on a straight line.

        >>> Curve("map", [0.0, 0.5, 1.0], [0.4, 0.6, 0.7]).at(0.25)
        0.5
        """
        low, high = self.fractions[0], self.fractions[-1]
        if not low <= fraction <= high:
            raise InputError(f"The fraction {fraction} is outside the curve, {low} to {high}.")
        return float(np.interp(fraction, self.fractions, self.values))

    def fraction_at(self, share: float, of: float | None = None) -> float:
        """From which fraction on the curve is never below `share` of its end value again.

        `of` is another value to reach a share of, such as that of the new model alone. Points are
        joined by straight lines.

        >>> round(Curve("map", [0.0, 0.5, 1.0], [0.4, 0.6, 0.7]).fraction_at(0.95), 3)
        0.825
        >>> Curve("map", [0.0, 0.25, 0.5, 1.0], [0.25, 1.0, 0.5, 1.0]).fraction_at(0.75)
        0.75
        """
        whole = self.end if of is None else of
        crossing = last_crossing(self.fractions, self.values, share * whole)
        if crossing is None:
            name = "its end value" if of is None else "the value"
            raise InputError(
                f"The curve never reaches {share:.0%} of {name} {whole:.4f} for good: it ends at "
                f"{self.end:.4f}."
            )
        return crossing

    def summary(self) -> dict[str, float | str | int]:
        """The figures that tables show: ends, both areas, budgets and the fractions to 95/99 %."""
        return {
            "name": self.name,
            "metric": self.metric,
            "start": self.start,
            "end": self.end,
            "area": self.area,
            "mean": self.mean,
            **{f"at_{budget:.0%}": self.at(budget) for budget in BUDGETS if self._covers(budget)},
            **{f"fraction_at_{share:.0%}": self.fraction_at(share) for share in (0.95, 0.99)},
            "excluded": self.excluded,
        }

    def _covers(self, fraction: float) -> bool:
        return bool(self.fractions[0] <= fraction <= self.fractions[-1])

    def to_dict(self, *, per_query: bool = False) -> dict[str, Any]:
        """Plain lists and numbers; the values of each query only where they are asked for."""
        plain: dict[str, Any] = {
            "metric": self.metric,
            "name": self.name,
            "fractions": self.fractions.tolist(),
            "values": self.values.tolist(),
            "excluded": self.excluded,
            "serving": None if self.serving is None else list(self.serving),
        }
        if per_query and self.per_query is not None:
            plain["per_query"] = self.per_query.tolist()
            plain["queries"] = None if self.queries is None else self.queries.tolist()
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Curve:
        """The inverse of `to_dict`.

        >>> Curve.from_dict(Curve("map", [0, 1], [0.5, 0.75], name="a").to_dict())
        Curve(a: map 0.5000 → 0.7500, area 0.6250)
        """
        fields = (
            "metric", "fractions", "values", "name", "per_query", "queries", "excluded", "serving",
        )  # fmt: skip
        return cls(**{field: plain[field] for field in fields if field in plain})

    @classmethod
    def simulate(
        cls,
        aligned: Aligned,
        new: Features | ArrayLike,
        labels: Relevance | ArrayLike | LabelSets | None = None,
        *,
        policy: str | Order = "sigma",
        metric: str = "map",
        queries: Features | ArrayLike | None = None,
        query_labels: ArrayLike | LabelSets | None = None,
        points: int = 21,
        distance: Distance = "l2",
        serving: ServingOption = "aligned",
        old: Features | ArrayLike | None = None,
        queries_old: Features | ArrayLike | None = None,
        fusion: Fusion | None = None,
        known: PolicyInput | None = None,
        seed: int | None = None,
        device: str | None = None,
        progress: bool = False,
    ) -> Curve:
        """The curve of one metric, from features alone: see `backfill_curves` for several.

        >>> from fastfill.align import Aligned
        >>> rng = np.random.default_rng(0); new = rng.normal(size=(60, 8)).astype(np.float32)
        >>> labels = np.arange(60) % 4; new += 3 * np.eye(8, dtype=np.float32)[labels]
        >>> error = rng.normal(size=new.shape).astype(np.float32)
        >>> aligned = Aligned(new + error, (error**2).sum(axis=1))
        >>> curve = Curve.simulate(aligned, new, labels, policy="sigma", metric="map")
        >>> curve.start < curve.area < curve.end
        True
        """
        from fastfill.evaluate.simulation import backfill_curves

        return backfill_curves(
            aligned,
            new,
            labels,
            policy=policy,
            metrics=[metric],
            queries=queries,
            query_labels=query_labels,
            points=points,
            distance=distance,
            serving=serving,
            old=old,
            queries_old=queries_old,
            fusion=fusion,
            known=known,
            seed=seed,
            device=device,
            progress=progress,
        )[as_metric(metric).name]


BUDGETS = (0.05, 0.1, 0.25)  # fixed budgets of the paper's second scenario


def check_fractions(fractions: NDArray[np.float64]) -> None:
    """Refuse fractions that do not rise within 0 … 1."""
    inside = np.isfinite(fractions).all() and fractions[0] >= 0 and fractions[-1] <= 1
    if not inside or (np.diff(fractions) <= 0).any():
        raise InputError(
            "The fractions of a curve must rise from 0 towards 1, got "
            f"{np.array2string(fractions, threshold=8, precision=4)}."
        )


def last_crossing(
    fractions: NDArray[np.float64], values: NDArray[np.float64], target: float
) -> float | None:
    """From which fraction on the values are never below the target again, on straight lines.

    None: they end below it.

    >>> last_crossing(np.array([0.0, 0.5, 1.0]), np.array([0.5, 0.0, 1.0]), 0.5)
    0.75
    """
    below = np.flatnonzero(values < target)
    if not len(below):
        return float(fractions[0])
    i = int(below[-1])
    if i == len(fractions) - 1:
        return None
    (a, b), (x, y) = fractions[i : i + 2], values[i : i + 2]
    return float(a + (b - a) * (target - x) / (y - x))


def write_curves(curves: Mapping[str, Curve] | list[Curve], path: Source) -> None:
    """Write curves as JSON, the values of each query left out.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "curves.json"
    >>> write_curves([Curve("map", [0, 1], [0.5, 0.75], name="sigma")], file)
    >>> read_curves(file)
    [Curve(sigma: map 0.5000 → 0.7500, area 0.6250)]
    """
    listed = list(curves.values()) if isinstance(curves, Mapping) else curves
    text = json.dumps({"curves": [curve.to_dict() for curve in listed]}, indent=1)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_curves(path: Source) -> list[Curve]:
    """Read what `write_curves` wrote."""
    try:
        plain = json.loads(Path(path).read_text(encoding="utf-8"))
        return [Curve.from_dict(curve) for curve in plain["curves"]]
    except FileNotFoundError:
        raise FileError(f"{path}: no such file. Check the path.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(f"{path}: is not a file of curves ({error}).") from None
