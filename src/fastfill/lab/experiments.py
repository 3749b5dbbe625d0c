"""The paper's experiments as data; `EXPERIMENTS` holds them by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastfill.errors import InputError
from fastfill.lab import systems
from fastfill.lab.model_updates import MODEL_UPDATES, ModelUpdate, halved
from fastfill.lab.systems import System


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper, or of what goes beyond it."""

    name: str
    title: str
    source: str  # where in the paper
    updates: tuple[str, ...]  # the first of these that the data set has
    systems: tuple[System, ...]
    shows: tuple[str, ...] = ("cmc@1", "map")
    measures: tuple[str, ...] = ()  # beside curves: keys of `measurements.MEASURES`


EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        Experiment(
            "main", "Backfilling curves", "Tables 1 to 3", ("half", "faces"), systems.MAIN,
            ("cmc@1", "cmc@5", "map"),
        ),
        Experiment(
            "architecture", "Another architecture", "Table 4", ("architecture",), systems.MAIN
        ),
        Experiment("ablation", "Losses and orders", "Tables 5 and 6", ("half",), systems.ABLATION),
        Experiment("unseen", "Classes never seen", "Table 7", ("unseen",), systems.UNSEEN),
        Experiment(
            "side-information", "With side-information", "Appendix B.2", ("half",), systems.SIDE,
            ("cmc@1", "cmc@5", "map"),
        ),
        Experiment(
            "bias", "Repairing a biased model", "Section 5.3, Appendix F", ("biased",),
            systems.BIAS, measures=("groups",),
        ),
        Experiment("faces", "ArcFace, disjoint identities", "Table 2, Appendix C.4", ("faces",),
                   systems.FACES),
        Experiment("flips", "Positive and negative flips", "Appendix D", ("half", "faces"),
                   (systems.FCT, systems.FASTFILL), ("cmc@1", "cmc@5"), ("flips",)),
        Experiment("sigma", "What σ² predicts", "Appendix E", ("half", "faces"), systems.SIGMA,
                   measures=("kendall", "scatter")),
        Experiment("top5", "Top-5 retrieval", "Appendix B.3", ("half", "faces"), systems.MAIN,
                   ("cmc@5",)),
        Experiment("best", "A map that learns from the backfill", "not in the paper", ("half",),
                   systems.BEST),
    )
}  # fmt: skip


def find_experiment(name: str) -> Experiment:
    """The experiment of that name, or an error that lists them.

    >>> find_experiment("flips").title
    'Positive and negative flips'
    """
    if name not in EXPERIMENTS:
        raise InputError(f"Unknown experiment {name!r}: use one of {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]


def choose_experiments(names: Sequence[str], data: str) -> list[Experiment]:
    """The experiments of these names; for 'all', every one that the data set has.

    >>> [experiment.name for experiment in choose_experiments(["all"], "places365")]
    ['main', 'ablation', 'flips', 'sigma', 'top5', 'best']
    """
    return available(data) if "all" in names else [find_experiment(name) for name in names]


def update_of(experiment: Experiment, data: str, classes: int) -> ModelUpdate:
    """The model update that an experiment studies on a data set of so many classes."""
    updates = MODEL_UPDATES.get(data) or halved(classes)
    update = _first(experiment, updates)
    if update is None:
        raise InputError(
            f"The experiment {experiment.name!r} has no protocol for {data!r}, which has "
            f"{', '.join(updates)}. Use another data set."
        )
    return update


def available(data: str) -> list[Experiment]:
    """The experiments that a data set has a protocol for, the most important first."""
    return [e for e in EXPERIMENTS.values() if data in data_sets(e)]


def data_sets(experiment: Experiment) -> list[str]:
    """The data sets that have a protocol for an experiment.

    >>> data_sets(EXPERIMENTS["bias"])
    ['cifar100', 'vggface2', 'digits']
    """
    by_data = {**MODEL_UPDATES, "folder": halved(4)}
    return [data for data, updates in by_data.items() if _first(experiment, updates) is not None]


def _first(experiment: Experiment, updates: dict[str, ModelUpdate]) -> ModelUpdate | None:
    """The first update that an experiment can use; some need a model for side-information."""
    side = any(system.side for system in experiment.systems)
    usable = (updates[name] for name in experiment.updates if name in updates)
    return next((update for update in usable if update.side is not None or not side), None)
