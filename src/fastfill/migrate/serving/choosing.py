"""The choice of a way to serve: by evidence, kept in the state that readers look at.

Whoever was told to serve with the new model alone may have switched the old one off, so that choice
is never taken back by itself: with each row that is embedded it only gets better.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from fastfill.align import KEEP, Fusion, ServingOption
from fastfill.evaluate import Evidence, choose_serving
from fastfill.gallery import FUSION, State, change_state, save_fusion
from fastfill.migrate.job import Job
from fastfill.migrate.learning import same_work
from fastfill.migrate.ledger.audit import record
from fastfill.migrate.ledger.query_sample import QuerySample
from fastfill.migrate.ledger.serving_record import ServingChoice, ServingRecord
from fastfill.migrate.progress import count
from fastfill.migrate.serving.agreement import agreement_evidence
from fastfill.migrate.serving.judged import Tick, searched_evidence
from fastfill.migrate.serving.labelled import METRIC as LABELLED
from fastfill.migrate.serving.labelled import labelled_evidence


def learn_fusion(job: Job, state: State, rows: int | None = None) -> State:
    """Learn from the alignment's reference pairs how both models' scores are added up.

    `rows` are those of the gallery, where they have been counted.
    """
    reference = job.alignment(state).reference
    if reference is None:  # an alignment that was saved before there were reference pairs
        return state
    sample = QuerySample.load(job.store)
    fusion = Fusion.learn(
        reference,
        None if sample is None else (sample.old, sample.new),
        distance=state.distance,
        items=count(job.store, state, about=True).total if rows is None else rows,
        keep=KEEP if state.fusion is None else job.fusion(state).keep,  # until it is chosen again
    )
    tag = save_fusion(job.store, fusion)

    def change(latest: State) -> State:
        return replace(latest, fusion=tag) if same_work(latest, state) else latest

    changed = change_state(job.store, change)
    _forget_fusions(job, state, changed)
    return changed


def _forget_fusions(job: Job, before: State, after: State) -> None:
    """A reader may know the state of a second ago, and with it the fusion before this one."""
    needed = {FUSION + tag for tag in (before.fusion, after.fusion) if tag}
    job.store.remove([name for name in job.store.names(FUSION) if name not in needed])


def choose(
    job: Job,
    state: State,
    wanted: ServingOption = "auto",
    tick: Tick = lambda *_: None,
    label: str | None = None,
    *,
    fraction: float,
) -> ServingChoice:
    """Measure every way to serve and choose; what was `wanted` is not measured.

    `label` is a column that tells which answers are right, where no queries were given, `fraction`
    the share of the rows that are new.
    """
    if wanted != "auto":
        return ServingChoice(fraction, wanted)
    measured = _measure(job, state, fraction, tick, label)
    if measured is None:
        return ServingChoice(fraction, "aligned", label=label)
    evidence = measured.evidence
    labelled = label if evidence.metric == LABELLED else None
    serving = choose_serving(evidence)
    return ServingChoice(fraction, serving, evidence, measured.asked, labelled, measured.keep)


def was_told(job: Job) -> bool:
    """Did the operator say how to serve the last time, without a measurement?"""
    latest = (ServingRecord.load(job.store) or ServingRecord()).latest
    return latest is not None and latest.evidence is None


def choose_again(job: Job, state: State) -> State:
    """Learn the fusion and choose again, when the map or the share of new rows is another.

    Labels are those that the run was given, else those of the choice before.
    """
    latest = ServingRecord.load(job.store)
    kept = None if latest is None else latest.latest
    if kept is None or kept.evidence is None or state.serving == "aligned":
        return state
    counted = count(job.store, state, about=True)
    state = learn_fusion(job, state, counted.total)
    choice = choose(job, state, label=job.label or kept.label, fraction=counted.fraction)
    # Told to stop, the judged queries are not all asked, and weaker evidence would stand in.
    return state if job.stop.is_set() else serve_by(job, state, choice)


def choose_by_label(job: Job, state: State, label: str) -> State:
    """Let a run's labels choose, at once where the latest choice knew neither them nor queries."""
    job.label = label
    latest = (ServingRecord.load(job.store) or ServingRecord()).latest
    better = latest is not None and latest.asked != "queries" and latest.label != label
    return choose_again(job, state) if better else state


def serve_by(job: Job, state: State, choice: ServingChoice) -> State:
    """Let readers serve so, and note by which evidence."""
    ServingRecord.add(job.store, choice)
    tag = _fusion_for(job, state, choice)
    if state.phase == "started" and choice.serving != state.serving:
        record(job.store, "serving", choice.to_json())
        job.callback("serving", {"serving": choice.serving, "reason": str(choice)})

    def change(latest: State) -> State:
        if latest.model != state.model:
            return latest
        switched = latest.phase == "started" and latest.single == "aligned"
        single = "aligned" if switched else choice.single
        fusion = tag if latest.fusion == state.fusion else latest.fusion
        return replace(latest, serving=choice.serving, single=single, fusion=fusion)

    changed = change_state(job.store, change)
    _forget_fusions(job, state, changed)
    return changed


def _fusion_for(job: Job, state: State, choice: ServingChoice) -> str | None:
    """The tag of the fusion with the share of the old score that was chosen."""
    if choice.keep is None or state.fusion is None:
        return state.fusion
    fusion = job.fusion(state)
    changed = choice.keep != fusion.keep
    return save_fusion(job.store, fusion.keeping(choice.keep)) if changed else state.fusion


class _Measured(NamedTuple):
    evidence: Evidence
    asked: str  # what was asked
    keep: float | None = None  # the share of the old score that was chosen with it


def _measure(
    job: Job, state: State, fraction: float, tick: Tick, label: str | None
) -> _Measured | None:
    """By judged queries, by labelled pairs where no queries were given, else by queries or pairs
    without judgement."""
    sample, reference = QuerySample.load(job.store), job.alignment(state).reference
    if reference is None or state.fusion is None:
        return None
    fusion = job.fusion(state)
    if sample is not None and sample.judgements:
        judged = searched_evidence(job, sample, fusion, tick)
        if judged is not None:
            return _Measured(judged[0], "queries", judged[1])
    if label is not None and (sample is None or sample.made):
        labelled = labelled_evidence(job, state, reference, fusion, fraction, label)
        if labelled is not None:
            return _Measured(labelled[0], "pairs", labelled[1])
    evidence = agreement_evidence(reference, fusion, sample, fraction, state.distance)
    if sample is None:
        return _Measured(evidence, "pairs")
    return _Measured(evidence, "first sentences" if sample.made else "queries")
