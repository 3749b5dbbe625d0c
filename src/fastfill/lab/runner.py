"""Run experiments on one data set, seed by seed; what was done before is not done again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fastfill.align.training import one_thread
from fastfill.lab.clock import Begun, Ended, OutOfTimeError, StageClock
from fastfill.lab.data import load, parse
from fastfill.lab.data.holdout import hold_out
from fastfill.lab.experiments import Experiment, update_of
from fastfill.lab.measurements import measure_seed
from fastfill.lab.model_cache import ModelCache
from fastfill.lab.model_updates import ModelUpdate, in_minority
from fastfill.lab.results import write_result
from fastfill.lab.settings import RunSettings
from fastfill.lab.stages import MapOptions, UpdateStages
from fastfill.lab.training import Report, device_of

MAPS = {"digits": MapOptions("residual", 6)}  # the paper's network is too large for so few images

Say = Callable[[str], None]


class ExperimentRunner:
    """Trains, aligns and measures what experiments on one data set need."""

    def __init__(
        self,
        settings: RunSettings,
        *,
        report: Callable[[str], Report] | None = None,
        begun: Begun | None = None,
        ended: Ended | None = None,
    ) -> None:
        """`report` makes a model's progress callback from its name.

        `begun` gets the name of every stage, `ended` the name and how many seconds it took.
        """
        self.settings = settings
        self.data = parse(settings.data)[0]
        self.models = ModelCache(
            load(settings.data, settings.work / "images"),
            settings.work,
            device_of(settings.device),
            effort=settings.effort,
            clock=StageClock(settings.minutes, begun=begun, ended=ended),
            report=report,
        )
        self._stages: dict[tuple[ModelUpdate, int], UpdateStages] = {}
        self._held_out: tuple[tuple[ModelUpdate, int], ModelCache] | None = None

    def run(
        self, experiments: Sequence[Experiment], results: Path, say: Say, *, command: str = ""
    ) -> list[tuple[str, int]]:
        """Run all experiments of a seed before the next seed; what is left when time is over.

        Each result is kept in a file below `results`, together with the `command` that made it.
        """
        plan = [(one, seed) for seed in self.settings.seed_numbers for one in experiments]
        with one_thread(self.data == "digits"):
            for number, (experiment, seed) in enumerate(plan):
                began, before = time.monotonic(), dict(self.models.clock.took)
                stages, without = self.stages(experiment, seed), self._without(experiment)
                try:
                    result = measure_seed(experiment, stages, command, without)
                except OutOfTimeError:
                    return [(left.name, seed) for left, seed in plan[number:]]
                path = self.result_path(results, experiment, seed)
                seconds = time.monotonic() - began
                write_result(path, result | {"seconds": self._seconds(seconds, before)})
                say(f"{experiment.name} seed {seed}: {seconds:.1f} s → {path}")
        return []

    def _seconds(self, all_of_it: float, before: dict[str, float]) -> dict[str, object]:
        """How long a result took, and each stage of it that was not there already."""
        took = self.models.clock.took
        stages = {name: round(took[name] - before.get(name, 0.0), 2)
                  for name in took if took[name] != before.get(name)}  # fmt: skip
        return {"all": round(all_of_it, 2), "stages": stages}

    def prepare(self, experiments: Sequence[Experiment]) -> int:
        """Train the models and learn the maps, no curves yet; how many seeds are left."""
        seeds = self.settings.seed_numbers
        with one_thread(self.data == "digits"):
            for number, seed in enumerate(seeds):
                try:
                    for experiment in experiments:
                        self._prepare(experiment, seed)
                except OutOfTimeError:
                    return len(seeds) - number
        return 0

    def _prepare(self, experiment: Experiment, seed: int) -> None:
        stages = self.stages(experiment, seed)
        for system in stages.possible(experiment.systems, self._without(experiment)):
            stages.features(system.model)
            stages.start(system)

    def result_path(self, results: Path, experiment: Experiment, seed: int) -> Path:
        """Where the result of an experiment and seed is kept."""
        return results / self.models.images.name / f"{experiment.name}-seed{seed}.json"

    def stages(self, experiment: Experiment, seed: int) -> UpdateStages:
        """The stages of the update that an experiment studies; those of one seed are kept."""
        update = update_of(experiment, self.data, len(self.models.images.classes))
        if (update, seed) not in self._stages:
            self._stages = {key: kept for key, kept in self._stages.items() if key[1] == seed}
            base = MAPS.get(self.data, MapOptions())
            epochs = self.settings.map_epochs or base.epochs
            options = MapOptions(base.method, epochs, self.settings.views)
            models = self._models(update, seed)
            self._stages[update, seed] = UpdateStages(models, update, seed, options)
        return self._stages[update, seed]

    def _models(self, update: ModelUpdate, seed: int) -> ModelCache:
        """The models of the data set, or of the seed's own division where classes are held out."""
        if update.hold_out is None:
            return self.models
        if self._held_out is None or self._held_out[0] != (update, seed):  # images are many: one
            images = self.models.images
            minority = in_minority(images, update.minority)
            divided = hold_out(images, minority, update.hold_out, seed)
            self._held_out = (update, seed), self.models.on(divided)
        return self._held_out[1]

    def _without(self, experiment: Experiment) -> tuple[str, ...]:
        return () if experiment.name in ("main", "top5") else self.settings.without
