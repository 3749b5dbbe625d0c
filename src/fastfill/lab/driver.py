"""From a name on the command line to results on disk: experiment after experiment, seed by seed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastfill.align.training import one_thread
from fastfill.lab.bench import Bench, MapOptions
from fastfill.lab.data import load, parse
from fastfill.lab.data.holdout import hold_out
from fastfill.lab.experiments import Experiment, available, experiment, update_of
from fastfill.lab.models import Models
from fastfill.lab.protocols import Update, in_minority
from fastfill.lab.training import OutOfTimeError, Report, device_of

MAPS = {"digits": MapOptions("residual", 6)}  # the paper's network is too large for so few images


def portable(words: Sequence[str]) -> str:
    """A command as it can be shown to others: absolute paths, which mean nothing there, are DIR.

    >>> portable(["fastfill", "lab", "run", "main", "--data", "cifar100=/home/me/images"])
    'fastfill lab run main --data cifar100=DIR'
    """
    shown = []
    for word in words:
        name, equals, value = word.rpartition("=")
        shown.append(f"{name}{equals}DIR" if Path(value).is_absolute() else word)
    return " ".join(shown)


@dataclass(frozen=True)
class Settings:
    """What a call of the laboratory may choose."""

    data: str  # NAME or NAME=DIR
    work: Path
    results: Path
    device: str | None = None
    effort: float = 1.0  # share of the recipes' epochs
    map_epochs: int | None = None
    minutes: float | None = None  # stop in time, to go on in another call
    without: tuple[str, ...] = ()  # 'bct', 'ract': rows to leave out of all but `main`
    command: str = ""


class Laboratory:
    """Runs experiments on one data set; what was done before is not done again."""

    def __init__(
        self,
        settings: Settings,
        report: Callable[[str], Report] | None = None,
        stage: Callable[[str], None] | None = None,
    ) -> None:
        """`report` is asked for progress by the name of a model, `stage` is told what comes."""
        self.settings, self.stage = settings, stage
        self.name = parse(settings.data)[0]
        minutes = settings.minutes
        self.until = None if minutes is None else time.monotonic() + 60 * minutes
        self.models = Models(
            load(settings.data, settings.work / "images"),
            settings.work,
            device_of(settings.device),
            effort=settings.effort,
            until=self.until,
            report=report,
        )
        self._held: tuple[tuple[Update, int], Models] | None = None

    def experiments(self, names: Sequence[str]) -> list[Experiment]:
        """The experiments of these names; for 'all', every one that the data set has."""
        if "all" in names:
            return available(self.name)
        return [experiment(name) for name in names]

    def run(
        self, chosen: Sequence[Experiment], seeds: Sequence[int], say: Callable[[str], None]
    ) -> list[tuple[str, int]]:
        """Run all experiments of a seed before the next seed; what is left when time is over."""
        with one_thread(self.name == "digits"):
            return self._run(chosen, seeds, say)

    def _run(
        self, chosen: Sequence[Experiment], seeds: Sequence[int], say: Callable[[str], None]
    ) -> list[tuple[str, int]]:
        from fastfill.lab.runs import run_seed, write_result

        plan = [(e, seed) for seed in seeds for e in chosen]
        benches: dict[tuple[Update, int], Bench] = {}
        for number, (one, seed) in enumerate(plan):
            path = self.path(one, seed)
            update = self._update(one)
            bench = benches.setdefault((update, seed), self._bench(update, seed))
            began = time.monotonic()
            try:
                result = run_seed(one, bench, self.settings.command, self._without(one))
            except OutOfTimeError:
                return [(e.name, s) for e, s in plan[number:]]
            write_result(path, result)
            say(f"{one.name} seed {seed}: {time.monotonic() - began:.1f} s → {path}")
        return []

    def prepare(
        self, chosen: Sequence[Experiment], seeds: Sequence[int], say: Callable[[str], None]
    ) -> int:
        """Train the models and learn the maps, no curves yet; how many seeds are left."""
        with one_thread(self.name == "digits"):
            for number, seed in enumerate(seeds):
                for one in chosen:
                    bench = self._bench(self._update(one), seed)
                    try:
                        self._prepare(one, bench, say)
                    except OutOfTimeError:
                        return len(seeds) - number
        return 0

    def _prepare(self, one: Experiment, bench: Bench, say: Callable[[str], None]) -> None:
        for system in bench.possible(one.systems, self._without(one)):
            began = time.monotonic()
            bench.features(system.model)
            bench.start(system)
            if (seconds := time.monotonic() - began) > 0.5:
                say(f"{one.name}: {system.name} seed {bench.seed}: {seconds:.1f} s")

    def made(self, chosen: Sequence[Experiment], seeds: Sequence[int]) -> list[Path]:
        """The files of all models and maps of these experiments, seed by seed."""
        files: dict[Path, None] = {}
        for seed in seeds:
            for one in chosen:
                bench = self._bench(self._update(one), seed)
                for system in bench.possible(one.systems):
                    names = {"old", system.model} | ({"side"} if system.side else set())
                    files |= dict.fromkeys(bench.models.path(bench.model(n), seed) for n in names)
                    if system.loss is not None:
                        files[bench.map_path(system.loss, system.side)] = None
        return list(files)

    def path(self, one: Experiment, seed: int) -> Path:
        """Where the result of an experiment and seed is kept."""
        name = f"{one.name}-seed{seed}.json"
        return self.settings.results / self.models.images.name / name

    def _update(self, one: Experiment) -> Update:
        return update_of(one, self.name, len(self.models.images.classes))

    def _bench(self, update: Update, seed: int) -> Bench:
        base = MAPS.get(self.name, MapOptions())
        options = MapOptions(base.method, self.settings.map_epochs or base.epochs)
        return Bench(self._models(update, seed), update, seed, options, self._check)

    def _models(self, update: Update, seed: int) -> Models:
        """The models of the data set, or of the seed's own division where classes are held out."""
        if update.hold_out is None:
            return self.models
        if self._held is None or self._held[0] != (update, seed):  # one at a time: images are many
            images = self.models.images
            minority = in_minority(images, update.minority)
            divided = hold_out(images, minority, update.hold_out, seed)
            self._held = (update, seed), self.models.on(divided)
        return self._held[1]

    def _without(self, one: Experiment) -> tuple[str, ...]:
        return () if one.name in ("main", "top5") else self.settings.without

    def _check(self, what: str) -> None:
        """Say what comes next, or stop when the time is over."""
        if self.stage is not None:
            self.stage(what)
        if self.until is not None and time.monotonic() > self.until:
            raise OutOfTimeError("The time given is over.")
