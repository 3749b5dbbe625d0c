"""Starting: pairs are embedded, the map is learned, every other row is aligned, readers switch to
what measured best."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from fastfill.align import MIN_PAIRS, FitOptions
from fastfill.errors import InputError, MigrationError
from fastfill.gallery import State, change_state, load_state
from fastfill.migrate.as_started import check_learning
from fastfill.migrate.asking import OF_QUERIES, as_asked, forget_request, need_not_be_given
from fastfill.migrate.job import Job
from fastfill.migrate.layout import check_noting, note_writes
from fastfill.migrate.learning import adopt, forget_unused, learn
from fastfill.migrate.ledger.audit import record
from fastfill.migrate.ledger.sweep_record import SweepRecord
from fastfill.migrate.opening import expand, open_migration
from fastfill.migrate.options import DEFAULT_PAIRS, StartOptions
from fastfill.migrate.pairs import embed_pairs
from fastfill.migrate.progress import count_all
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
    check_learning(job, options)
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
    with _overtaking_told(job, state):
        return _do_the_rest(job, state, options, stage)


def _do_the_rest(job: Job, state: State, options: StartOptions, stage: Stage) -> Settling:
    """All that comes after the migration has been opened."""
    options = as_asked(job, state, options)
    expand(job, state)
    if options.allow_trigger:
        note_writes(job)
    keep_queries(job, state, options.queries, options.encode_old)
    need_not_be_given(job, *OF_QUERIES)
    opened, state = state, _with_alignment(job, state, options, stage)
    _check_ours(job, opened)
    if state.alignment is None:  # stopped while the pairs were embedded
        return Settling()
    done = _align_all(job, state, stage)
    _check_ours(job, state)
    if not job.stop.is_set():
        if state.phase == "starting":
            _bring_in_shape(job, options.index)
        _serve(job, state, options, stage)
    forget_unused(job)
    return done


@contextmanager
def _overtaking_told(job: Job, state: State) -> Iterator[None]:
    """Whatever goes wrong where another start has changed the model, that is the reason."""
    try:
        yield
    except Exception:
        _check_ours(job, state)
        raise


def _check_ours(job: Job, state: State) -> None:
    """Ends a start that another one, with another model, has overtaken."""
    if (latest := job.state).model != state.model:
        raise MigrationError(
            f"{job.store.name}: another start has changed the model to {latest.encoder} meanwhile, "
            f"so this one, with {state.encoder}, ends here; its rows are done again. See: fastfill "
            "status."
        )


def _check_fit(job: Job, options: StartOptions) -> None:
    """Refuse an alignment for other vectors, or a trigger, before anything is written."""
    if options.allow_trigger:
        check_noting(job, options.layout)
    alignment = options.alignment
    if alignment is None:
        _check_enough(job, options.pairs)
    if alignment is not None and alignment.old_dim != (dim := job.store.describe().old_dim):
        raise MigrationError(
            f"The alignment maps vectors of {alignment.old_dim} dimensions, but the gallery has "
            f"{dim}. Give one that was learned for this gallery's old model."
        )


def _check_enough(job: Job, wanted: int | None) -> None:
    """Refuse to embed fewer pairs than a map can be learned from."""
    wanted = DEFAULT_PAIRS if wanted is None else wanted
    if wanted >= MIN_PAIRS:
        return
    state = load_state(job.store)
    have = 0 if state is None else job.store.counts().get(("new", state.model), 0)
    if have < MIN_PAIRS:
        raise InputError(
            f"{wanted} pairs are too few to learn from: give at least {MIN_PAIRS}, better 500."
        )


def _with_alignment(job: Job, state: State, options: StartOptions, stage: Stage) -> State:
    if options.alignment is not None:
        state = adopt(job, state, options.alignment)
        need_not_be_given(job, "--alignment")
        return state
    if state.alignment is not None:
        return state
    pairs = DEFAULT_PAIRS if options.pairs is None else options.pairs
    embed_pairs(job, state, pairs, lambda done, all: stage("pairs", done, all))
    return state if job.stop.is_set() else learn(job, state, options.fit or FitOptions())


def _align_all(job: Job, state: State, stage: Stage) -> Settling:
    """Pass after pass until no row is left, or until others write as fast."""
    total = job.store.describe().rows
    done, began = Settling(), job.store.now()
    for number in range(ROUNDS):
        if job.stop.is_set():
            return done
        _check_ours(job, state)
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
    serving = options.serving or "auto"
    anew = given or serving != "auto" or was_told(job)
    if state.phase != "starting" and not anew:
        return
    told, counted = state, count_all(job.store, state)
    state = learn_fusion(job, state, counted.total)
    tick, fraction = partial(stage, "queries"), counted.fraction
    choice = choose(job, state, serving, tick, options.label, fraction=fraction)
    serve_by(job, state, choice)
    _check_ours(job, told)
    if state.phase == "starting" and not job.stop.is_set():
        state = change_state(
            job.store,
            lambda latest: (
                replace(latest, phase="started") if latest.model == told.model else latest
            ),
        )
        details = {"alignment": state.alignment, "rows": counted.total}
        record(job.store, "started", {**details, "serving": state.serving})
        forget_request(job)
