"""Starting: pairs are embedded, the map is learned, every other row is aligned, readers switch to
what measured best."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fastfill.errors import MigrationError
from fastfill.gallery import State, set_phase
from fastfill.migrate.job import Job
from fastfill.migrate.layout import check_noting, note_writes
from fastfill.migrate.learning import adopt, forget_unused, learn
from fastfill.migrate.ledger.audit import record
from fastfill.migrate.ledger.sweep_record import SweepRecord
from fastfill.migrate.opening import expand, open_migration
from fastfill.migrate.options import StartOptions
from fastfill.migrate.pairs import embed_pairs
from fastfill.migrate.progress import count
from fastfill.migrate.quality.sample import check_label
from fastfill.migrate.serving.choosing import choose, learn_fusion, serve_by, was_told
from fastfill.migrate.serving.judged import check_judgements
from fastfill.migrate.serving.old_model_check import check_old_model
from fastfill.migrate.serving.query_embedding import check_queries, keep_queries
from fastfill.migrate.settling import Settling, settle

SHORT = 60.0  # seconds of a start after which edits made meanwhile are looked for
ROUNDS = 5  # passes of a start before it leaves what others are writing to the backfill

Stage = Callable[[str, int, int], None]  # what is done, rows done, rows in all


def start_migration(
    job: Job, options: StartOptions, root: str | None, stage: Stage = lambda *_: None
) -> Settling:
    """Do whatever of pairs and learning has not been done, then align every other row."""
    _check_fit(job, options)
    if options.queries is not None:
        check_queries(job, options.queries, options.encode_old)
        check_judgements(job, options.queries)
    if options.encode_old is not None and (options.queries is None or options.queries.texts):
        check_old_model(job, options.encode_old, root)
    if options.label is not None:
        check_label(job, options.label)
    queries = None if options.queries is None else options.queries.new
    state = open_migration(
        job,
        alignment=options.alignment,
        policy=options.policy,
        root=root,
        queries=queries,
        layout=options.layout,
    )
    job.callback("start", {"store": job.store.name, "encoder": job.encoder_name})
    expand(job, state)
    if options.allow_trigger:
        note_writes(job)
    keep_queries(job, state, options.queries, options.encode_old)
    state = _with_alignment(job, state, options, stage)
    if state.alignment is None:  # stopped while the pairs were embedded
        return Settling()
    done = _align_all(job, state, stage)
    if not job.stop.is_set():
        if state.phase == "starting":
            _bring_in_shape(job, options.index)
        _serve(job, state, options, stage)
    forget_unused(job)
    return done


def _check_fit(job: Job, options: StartOptions) -> None:
    """Refuse an alignment for other vectors, or a trigger, before anything is written."""
    if options.allow_trigger:
        check_noting(job, options.layout)
    alignment = options.alignment
    if alignment is not None and alignment.old_dim != (dim := job.store.describe().old_dim):
        raise MigrationError(
            f"The alignment maps vectors of {alignment.old_dim} dimensions, but the gallery has "
            f"{dim}. Give one that was learned for this gallery's old model."
        )


def _with_alignment(job: Job, state: State, options: StartOptions, stage: Stage) -> State:
    if options.alignment is not None:
        return adopt(job, state, options.alignment)
    if state.alignment is not None:
        return state
    embed_pairs(job, state, options.pairs, lambda done, all: stage("pairs", done, all))
    return state if job.stop.is_set() else learn(job, state, options.fit)


def _align_all(job: Job, state: State, stage: Stage) -> Settling:
    """Pass after pass until no row is left, or until others write as fast."""
    total = job.store.describe().rows
    done, began = Settling(), job.store.now()
    for number in range(ROUNDS):
        if job.stop.is_set():
            return done
        # Edits of the last seconds are left to the sweeps of the backfill, like later ones.
        passed = job.store.now()
        changed = number > 0 and passed - began > SHORT
        step = settle(job, state, changed=changed, tick=lambda s: stage("rows", s.rows, total))
        done += step
        if number > 0 and step.rows + step.refused == 0:
            break
    SweepRecord.add(job.store, began, job.store.now() - passed)  # the last pass, of few findings
    return done


def _bring_in_shape(job: Job, index: bool | None) -> None:
    """Every row has its vector: compact the store and build the index that searches need."""
    job.store.optimize()
    if index or (index is None and job.store.indexed("old")):
        job.store.build_index("new", job.gallery.distance)


def _serve(job: Job, state: State, options: StartOptions, stage: Stage) -> None:
    """Find out what serves best, then let readers use it."""
    given = options.queries is not None or options.label is not None
    anew = given or options.serving != "auto" or was_told(job)
    if state.phase != "starting" and not anew:
        return
    counted = count(job.store, state)
    state = learn_fusion(job, state, counted.total)
    tick, fraction = partial(stage, "queries"), counted.fraction
    choice = choose(job, state, options.serving, tick, options.label, fraction=fraction)
    serve_by(job, state, choice)
    if state.phase == "starting" and not job.stop.is_set():
        state = set_phase(job.store, "started")
        details = {"alignment": state.alignment, "rows": counted.total}
        record(job.store, "started", {**details, "serving": state.serving})
