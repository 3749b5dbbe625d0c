"""How a migration is served is chosen by what was measured, said in one line, and kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from serving_worlds import ITEMS, QUERIES, World
from sklearn.metrics import average_precision_score, ndcg_score

from fastfill.align import KEEP, KEEPS, SERVINGS, Serving
from fastfill.cli.status_text import UNRELATED, WORSE, following, serving_lines, status_json
from fastfill.errors import (
    EncoderError,
    FastFillError,
    FileError,
    InputError,
    MigrationError,
    ShapeError,
)
from fastfill.features import Matrix
from fastfill.gallery import FUSION, Gallery, change_state
from fastfill.metrics import Relevance, as_metrics, gallery_scores
from fastfill.migrate import Migration, QuerySet, health
from fastfill.migrate.ledger.query_sample import QuerySample
from fastfill.migrate.ledger.sample_rows import SampleRows
from fastfill.migrate.ledger.serving_record import ServingRecord
from fastfill.migrate.progress import count
from fastfill.migrate.serving.choosing import learn_fusion
from fastfill.migrate.serving.judged import ndcg


@pytest.fixture(scope="module")
def documents() -> World:
    """Each query has one right answer."""
    return World("documents")


def started(world: World, queries: QuerySet | None, pairs: int = 60) -> Migration:
    migration = Migration(world.gallery(), world.encode, encoder_name="new")
    migration.start(pairs, method="ridge", queries=queries)
    return migration


def test_documents_are_not_served_by_a_poor_map(documents: World) -> None:
    """Where the aligned search measures worse than the old one, readers are not sent there."""
    choice = started(documents, documents.query_set()).status().serving
    assert choice is not None
    assert choice.evidence is not None
    values = choice.evidence.values
    assert values["aligned"] < values["old"] <= values[choice.serving]
    assert choice.serving == "both"
    assert choice.single == "old"
    assert f"nDCG@10 on {QUERIES} queries" in str(choice)


def test_the_forecast_is_of_what_serves(documents: World) -> None:
    """While both models answer, agreement is forecast as both find it, and said so."""
    migration = started(documents, documents.query_set())
    last = [*migration.backfill(rows=20, metric="agreement@10", throttle=False, refit=None)][-1]
    expected = migration.forecast()
    assert expected.forecast.serving == "both"
    assert expected.forecast.queries == QUERIES
    assert ", served with both models (forecast" in str(expected)
    assert last.quality is not None
    assert last.quality.value == pytest.approx(
        np.interp(
            expected.of_sample(last.fraction), expected.forecast.fractions, expected.forecast.values
        ),
        abs=1e-3,
    )


def test_the_balance_of_generations_is_that_of_what_serves(documents: World) -> None:
    """The share of new items in the answers is counted in searches by both models."""
    migration = Migration(documents.gallery(), documents.encode, encoder_name="new")
    migration.start(60, method="ridge", serving="both")
    job = migration._job
    reader, items = Gallery(job.store), health._some_items(job, 30)
    share: dict[Serving, list[bool]] = {"both": [], "aligned": []}
    for way, marks in share.items():
        for key, old, new in zip(*items, strict=True):
            hits = reader.search(old=old, new=new, k=11, serving=way)
            others = hits.generation[[name != key for name in hits.ids]]
            marks += [mark == "new" for mark in others[:10]]
    measured = health.balance(job, count(job.store, job.state), queries=30)
    assert measured.queries == 30
    assert measured.in_answers == pytest.approx(np.mean(share["both"]))
    assert measured.in_answers != pytest.approx(np.mean(share["aligned"]), abs=0.01)


def test_classes_are_served_by_the_new_model() -> None:
    """Where a map finds what the new model would, the old one is not asked any more."""
    world = World("classes")
    choice = started(world, world.query_set()).status().serving
    assert choice is not None
    assert choice.serving == choice.single == "aligned"


def test_without_queries_the_pairs_are_asked(documents: World) -> None:
    """Agreement with the new model among pairs is no reason to give the old model up."""
    choice = started(documents, None).status().serving
    assert choice is not None
    assert choice.evidence is not None
    assert choice.evidence.metric == "agreement@10"
    assert choice.serving == "both"
    assert str(choice).endswith("on 60 pairs)")


def test_labels_are_evidence_where_there_are_no_queries(documents: World) -> None:
    """The reference pairs ask each other, and those of their own topic are right."""
    migration = Migration(documents.gallery(), documents.encode, encoder_name="new")
    migration.start(60, method="ridge", label="topic")
    choice = migration.status().serving
    assert choice is not None
    assert choice.evidence is not None
    assert str(choice).endswith("mAP on 60 pairs, right by their 'topic')")
    reference = migration._job.alignment(migration._job.state).reference
    assert reference is not None
    ids = [int(np.flatnonzero((documents.old == old).all(axis=1))[0]) for old in reference.old]
    topics = documents.labels[ids]
    unit = reference.old / np.linalg.norm(reference.old, axis=1, keepdims=True)
    slow = [
        average_precision_score(np.delete(topics == topics[i], i), np.delete(unit @ unit[i], i))
        for i in range(60)
    ]
    assert choice.evidence.values["old"] == pytest.approx(np.mean(slow), abs=1e-4)
    [*migration.backfill(rows=20, throttle=False, refit=None)]
    again = migration.status().serving
    assert again is not None
    assert again.serving == "aligned" or again.label == "topic"


def test_queries_go_before_labels(documents: World) -> None:
    """What people ask is better evidence than what items have in common."""
    migration = Migration(documents.gallery(), documents.encode, encoder_name="new")
    migration.start(60, method="ridge", label="topic", queries=documents.query_set())
    assert f"nDCG@10 on {QUERIES} queries)" in str(migration.status().serving)
    with pytest.raises(InputError, match="no two rows have the same value in column 'text'"):
        migration.start(60, method="ridge", label="text")


def test_the_evidence_is_what_searches_of_the_gallery_find(documents: World) -> None:
    """The figures of the old and the aligned way are those of the exact metric."""
    migration = started(documents, documents.query_set())
    choice = migration.status().serving
    assert choice is not None
    assert choice.evidence is not None
    store = migration._job.store
    rows = store.read([*range(ITEMS)], new=True)
    relevance = Relevance.from_qrels(
        {f"q{row}": {str(item): 1.0} for row, item in enumerate(documents.right)},
        [f"q{row}" for row in range(QUERIES)],
        [str(key) for key in rows.ids],
    )
    for way, queries, items in (
        ("old", documents.queries_old, rows.old),
        ("aligned", documents.queries_new, rows.new),
    ):
        scores = gallery_scores(queries, items, relevance, as_metrics("ndcg@10"), distance="cosine")
        assert choice.evidence.values[way] == pytest.approx(scores.values["ndcg@10"].mean())


def test_judgements_choose_how_much_of_the_old_score_stays(documents: World) -> None:
    """The share with the surest gain over the whole gallery serves, until it is chosen again."""
    migration = started(documents, documents.query_set())
    job, choice = migration._job, migration.status().serving
    assert choice is not None
    assert choice.evidence is not None
    rows = job.store.read([*range(ITEMS)], new=True)
    place = {int(key): row for row, key in enumerate(rows.ids)}
    right = [place[int(item)] for item in documents.right]
    fusion = Gallery(job.store).fusion
    values = {}
    for share in fusion.keeps:
        one = fusion.keeping(share)
        items = one.item_vectors(rows.old, rows.new, rows.generation == "new")
        scores = one.query_vectors(documents.queries_old, documents.queries_new) @ items.T
        values[share] = ranked_gains(scores, right)
    gains = {share: each - values[KEEP] for share, each in values.items()}
    surest = {share: gain.mean() - gain.std(ddof=1) / QUERIES**0.5 for share, gain in gains.items()}
    assert len({*surest.values()}) == len(KEEPS)
    assert choice.keep == fusion.keep == max(surest, key=lambda share: surest[share]) != KEEP
    assert choice.evidence.values["both"] == pytest.approx(values[fusion.keep].mean(), abs=1e-6)
    again = learn_fusion(job, job.state)
    assert job.fusion(again).keep == choice.keep


def ranked_gains(scores: Matrix, right: list[int]) -> NDArray[np.float64]:
    """nDCG@10 of each query with one right item, by the scores (q, n) of all items."""
    ranks = (scores > scores[np.arange(len(scores)), right][:, None]).sum(axis=1)
    return np.where(ranks < 10, 1 / np.log2(ranks + 2), 0.0)


@pytest.mark.parametrize("judged", [True, False])
def test_readers_are_never_sent_to_what_measured_worse_than_before(judged: bool) -> None:
    """At every step of a backfill the way that serves is at least as good as the old search."""
    world = World("documents", seed=1)
    migration = started(world, world.query_set(judged))
    steps = 0
    for _ in migration.backfill(rows=ITEMS, refit=0.1, batch=20, throttle=False):
        choice = migration.status().serving
        assert choice is not None
        assert choice.evidence is not None
        assert choice.evidence.values[choice.serving] >= choice.evidence.values["old"]
        steps += 1
    assert steps > 5
    assert migration.status().state.serving == choice.serving


def test_who_was_told_to_switch_the_old_model_off_is_not_asked_for_it_again() -> None:
    """Once the new model serves alone, no later measurement takes that back."""
    world = World("classes")
    migration = started(world, world.query_set())
    assert migration.status().state.serving == "aligned"
    [*migration.backfill(refit=0.1, throttle=False)]
    history = [entry for entry in migration.history() if entry["event"] == "serving"]
    assert history == []
    assert migration.status().state.serving == "aligned"


def test_searches_follow_the_choice(documents: World) -> None:
    """A gallery that has both vectors of a query answers by what serves now."""
    migration = started(documents, documents.query_set())
    reader = Gallery(migration._job.store)
    old, new = documents.queries_old[3], documents.queries_new[3]
    assert reader.serving == "both"
    assert (
        reader.search(old=old, new=new).ids.tolist()
        == reader.search(old=old, new=new, serving="both").ids.tolist()
    )


@pytest.mark.parametrize("way", SERVINGS)
def test_what_the_operator_wants_is_not_measured(documents: World, way: str) -> None:
    """`serving=` goes before any evidence."""
    migration = Migration(documents.gallery(), documents.encode, encoder_name="new")
    migration.start(60, method="ridge", serving=way)
    choice = migration.status().serving
    assert choice is not None
    assert choice.evidence is None
    assert migration.status().state.serving == way
    assert "not measured" in str(choice)


def test_texts_are_embedded_by_both_models(documents: World) -> None:
    """The same queries as texts or as vectors measure the same."""
    as_vectors = started(documents, documents.query_set()).status().serving
    migration = Migration(documents.gallery(), documents.encode, encoder_name="new")
    migration.start(
        60,
        method="ridge",
        queries=documents.query_set(texts=True),
        encode_old=documents.encode_old,
    )
    as_texts = migration.status().serving
    assert as_texts is not None
    assert as_vectors is not None
    assert as_texts.to_json() == as_vectors.to_json()


def test_queries_that_cannot_be_used_cost_nothing(documents: World) -> None:
    """Texts without the old model, or vectors of other dimensions, leave no trace."""
    gallery = documents.gallery()
    migration = Migration(gallery, documents.encode, encoder_name="new")
    with pytest.raises(MigrationError, match="--old-encoder"):
        migration.start(60, queries=documents.query_set(texts=True))
    wrong = QuerySet.of_vectors(np.ones((2, 3)), np.ones((2, 20)))
    with pytest.raises(MigrationError, match="3 dimensions, but the gallery has 12"):
        migration.start(60, queries=wrong)
    wrong = QuerySet.of_vectors(np.ones((2, 12)), np.ones((2, 7)))
    with pytest.raises(MigrationError, match="7 dimensions, but the new model has 20"):
        migration.start(60, queries=wrong)
    wrong = QuerySet.of_vectors(
        documents.queries_old, documents.queries_new, judgements={"0": {"nobody": 1.0}}
    )
    with pytest.raises(MigrationError, match=r"judged items \(nobody\) is in the gallery"):
        migration.start(60, queries=wrong)
    assert gallery.store.names("") == []
    assert gallery.store.describe().new_dim is None


def test_the_model_that_fails_on_queries_is_named(documents: World) -> None:
    """Of two models, the operator reads which one has to be mended."""
    migration = Migration(documents.gallery(), documents.encode, encoder_name="new")

    def broken(texts: list[str]) -> None:
        raise KeyError(texts[0])

    with pytest.raises(EncoderError, match=r"^The old model on queries: The encoder failed 20"):
        migration.start(60, queries=documents.query_set(texts=True), encode_old=broken)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("judged", "grade", "strangers", "told"),
    [
        (9, 1.0, 31, "9 queries have a right answer in the gallery, 20 are needed "
         "(31 of 40 judged items are not in the gallery)"),
        (1, 1.0, 0, "1 query has a right answer in the gallery, 20 are needed"),
        (80, 0.0, 0, "0 queries have a right answer in the gallery, 20 are needed "
         "(no item has a grade above 0)"),
        (20, 1.0, 60, None),
    ],
)  # fmt: skip
def test_judgements_that_are_too_few_are_told(
    documents: World, judged: int, grade: float, strangers: int, told: str | None
) -> None:
    """Where judgements cannot decide, one sentence says how many there are, and how many help."""
    events: list[tuple[str, dict[str, Any]]] = []
    asked = documents.query_set(judged=False)
    rows = {f"q{row}": str(item) for row, item in enumerate(documents.right)}
    there = {query: {rows[query]: grade} for query in [*rows][:judged]}
    gone = {query: {f"gone {query}": 1.0} for query in [*rows][judged : judged + strangers]}
    queries = QuerySet(asked.ids, old=asked.old, new=asked.new, judgements={**there, **gone})
    migration = Migration(
        documents.gallery(),
        documents.encode,
        encoder_name="new",
        callback=lambda *event: events.append(event),
    )
    migration.start(60, method="ridge", queries=queries)
    reasons = [details["reason"] for event, details in events if event == "judgements"]
    assert reasons == ([] if told is None else [f"judgements ignored: {told}"])
    assert (migration.status().choices[-1].evidence.metric == "ndcg@10") is (told is None)


def test_as_many_queries_are_needed_under_both_models() -> None:
    """Arrays of different lengths are no queries under both models."""
    with pytest.raises(ShapeError, match="5 queries under the old model and 4 under the new"):
        QuerySet.of_vectors(np.ones((5, 3)), np.ones((4, 3)))


def test_an_end_leaves_no_queries_behind(documents: World) -> None:
    """Rolling back removes queries, choices and fusions."""
    migration = started(documents, documents.query_set())
    store = migration._job.store
    assert QuerySample.load(store) is not None
    assert store.names(FUSION)
    migration.rollback()
    assert not {"queries", "serving"} & set(store.names(""))
    assert not store.names(FUSION)


def test_a_complete_migration_is_served_by_the_new_model(documents: World) -> None:
    """At the end the old model is not needed, whatever was measured on the way."""
    migration = started(documents, documents.query_set())
    [*migration.backfill(throttle=False)]
    migration.complete()
    assert Gallery(migration._job.store).serving == "aligned"


def test_a_new_model_that_measured_worse_is_not_let_to_serve_alone() -> None:
    """Complete refuses with both figures, until the operator says that it shall serve."""
    world = World("documents")
    noise = np.random.default_rng(0).normal(size=(ITEMS, 20)).astype(np.float32)
    world.new = noise
    migration = started(world, world.query_set())
    [*migration.backfill(refit=None, throttle=False)]
    status = migration.status()
    assert status.progress.fraction == 1
    assert (following(status), serving_lines(status)[1]) == ("status", WORSE)
    for options in ({}, {"drop_old": True}, {"swap": True}, {"partial": True, "drop_old": True}):
        with pytest.raises(
            MigrationError, match=r"worse .*\(old .*, aligned .* nDCG@10"
        ) as refused:
            migration.complete(**options)
        assert "fastfill start --serving aligned" in str(refused.value)
        assert migration.status().phase == "started"
    migration.start(serving="aligned")
    assert following(migration.status()) == "complete"
    migration.complete()
    assert Gallery(migration._job.store).serving == "aligned"


def test_aligned_rows_that_are_worse_keep_the_old_vectors(documents: World) -> None:
    """Before all rows are new the old vectors are not dropped for a search that is worse."""
    migration = started(documents, documents.query_set())
    assert migration.status().serving.worse_alone
    with pytest.raises(MigrationError, match="worse than the search that people had"):
        migration.complete(partial=True, drop_old=True)
    migration.complete(partial=True)
    with pytest.raises(MigrationError, match="worse than the search that people had"):
        migration.complete(drop_old=True)
    assert Gallery(migration._job.store).serving == "both"


def test_what_was_measured_before_the_last_rows_were_new_is_measured_again(
    documents: World,
) -> None:
    """A run that was killed at its end leaves evidence that does not stop a completion."""
    migration = started(documents, documents.query_set())
    first, store = migration.status().choices, migration._job.store
    [*migration.backfill(refit=None, throttle=False)]
    ServingRecord.change(store, lambda _: ServingRecord(first))
    change_state(store, lambda state: replace(state, serving="both"))
    migration.complete()
    assert migration.status().choices[-1].fraction == 1


def test_models_that_have_nothing_in_common_are_told() -> None:
    """Without judgements nothing but chance agreement says that one of them may be broken."""
    world = World("classes")
    assert UNRELATED not in serving_lines(started(world, None).status())
    world.new = np.random.default_rng(0).normal(size=(ITEMS, 20)).astype(np.float32)
    assert serving_lines(started(world, None, pairs=200).status())[-1] == UNRELATED


def test_agreement_does_not_tell_that_a_model_is_worse(documents: World) -> None:
    """Unjudged evidence stops no completion."""
    migration = started(documents, documents.query_set(judged=False))
    [*migration.backfill(refit=None, throttle=False)]
    assert not migration.status().serving.worse_alone
    migration.complete()


def test_status_says_how_to_serve_in_every_phase(documents: World) -> None:
    """Old until a start has ended, the new model alone after the end; the evidence is kept."""
    gallery = documents.gallery()
    migration = Migration(gallery, documents.encode, encoder_name="new")
    told = []

    def look() -> None:
        serving = migration.status().serving
        told.append(serving.serving)
        assert status_json(migration.status())["serving"]["serving"] == serving.serving

    look()
    migration.start(60, method="ridge", queries=documents.query_set(), progress=lambda *_: look())
    assert set(told) == {"old"}
    look()
    measured = migration.status().serving.evidence
    assert measured is not None
    assert told[-1] == "both"
    [*migration.backfill(throttle=False, refit=None)]
    for options in ({}, {"drop_old": True}):
        migration.complete(**options)
        look()
        assert told[-1] == "aligned"
        assert str(migration.status().serving.evidence) == str(
            migration.status().choices[-1].evidence
        )
        assert str(migration.status().choices[0].evidence) == str(measured)
    assert migration.status().choices[0].serving == "both"


def test_rows_that_stay_aligned_are_served_as_before(documents: World) -> None:
    """Who completes before all rows are new keeps what was better than the new model alone."""
    migration = started(documents, documents.query_set())
    migration.complete(partial=True)
    assert Gallery(migration._job.store).serving == "both"


def test_auto_measures_what_was_told_before(documents: World) -> None:
    """A start without `serving` takes back what an earlier one was told."""
    migration = Migration(documents.gallery(), documents.encode, encoder_name="new")
    migration.start(60, method="ridge", serving="old", queries=documents.query_set())
    migration.start(60, method="ridge")
    choice = migration.status().serving
    assert choice is not None
    assert choice.evidence is not None
    assert choice.serving == "both"


def test_judgements_decide_to_the_end(documents: World) -> None:
    """Every measurement of a backfill is by the judged queries, also when all rows are new."""
    migration = started(documents, documents.query_set())
    [*migration.backfill(refit=0.2, throttle=False)]
    choices = (ServingRecord.load(migration._job.store) or ServingRecord()).choices
    assert choices[-1].fraction == 1
    assert {choice.evidence.metric for choice in choices if choice.evidence} == {"ndcg@10"}


def test_a_backfill_that_is_told_to_stop_leaves_the_choice_alone(documents: World) -> None:
    """What half of the queries would say is not kept."""
    migration = started(documents, documents.query_set())
    for _ in migration.backfill(refit=None, batch=20, throttle=False):
        migration.stop.set()
    assert migration.status().progress.new > 60
    record = ServingRecord.load(migration._job.store)
    assert record is not None
    assert [choice.fraction for choice in record.choices] == [0.15]


def test_old_fusions_are_forgotten(documents: World) -> None:
    """Refits leave the present fusion and the one before it in the store."""
    migration = started(documents, documents.query_set())
    [*migration.backfill(refit=0.1, throttle=False)]
    assert len(migration._job.store.names(FUSION)) <= 2


def test_quality_is_that_of_what_serves(documents: World) -> None:
    """While both models serve, the quality that is measured is that of both."""
    migration = Migration(documents.gallery(), documents.encode, encoder_name="new")
    migration.start(60, method="ridge", serving="both")
    *_, last = migration.backfill(rows=40, refit=None, metric="map", label="topic", throttle=False)
    job = migration._job
    rows = job.store.read([*range(ITEMS)], new=True)
    assert rows.new is not None
    is_new = rows.generation == "new"
    asked = [key for key in SampleRows.of(job.store).queries if is_new[rows.ids == key].all()]
    expected = []
    for key in asked:
        row = int(np.flatnonzero(rows.ids == key)[0])
        fusion = job.fusion(job.state)
        scores = fusion.scores(rows.old[row], rows.new[row], rows.old, rows.new, is_new)
        rest = np.arange(ITEMS) != row
        right = documents.labels[rows.ids.astype(int)] == documents.labels[key]
        expected.append(average_precision_score(right[rest], scores[rest]))
    assert last.quality is not None
    forecast = migration.status().forecast
    assert forecast is not None
    assert forecast.latest is not None
    assert forecast.latest.served == pytest.approx(np.mean(expected), abs=1e-4)
    assert forecast.latest.served > forecast.latest.value
    assert "as it is served" in str(forecast)


def test_ndcg_of_a_list_is_that_of_scikit_learn() -> None:
    """Graded judgements count as the library counts them."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        grades = rng.integers(0, 4, 30).astype(float)
        scores = rng.permutation(30)
        found = np.argsort(-scores)[:10].tolist()
        expected = ndcg_score([grades], [scores], k=10)
        got = ndcg(found, {str(item): grade for item, grade in enumerate(grades)})
        assert got == pytest.approx(expected)


def test_queries_are_read_from_files(tmp_path: Path) -> None:
    """Lines, JSON lines and arrays; judgements from a file of their own."""
    lines, records, arrays = (tmp_path / name for name in ("q.txt", "q.jsonl", "q.npz"))
    lines.write_text("red shoes\n\na lamp\n")
    records.write_text('{"_id": "a", "text": "red shoes"}\n{"_id": "b", "text": "a lamp"}\n')
    np.savez(arrays, old=np.ones((2, 3)), new=np.ones((2, 4)), ids=np.array(["a", "b"]))
    qrels = tmp_path / "qrels.tsv"
    qrels.write_text("a\titem\t1\n")
    assert QuerySet.read(lines).ids == ["1", "3"]
    assert QuerySet.read(records, qrels).judged == ["a"]
    assert repr(QuerySet.read(arrays, qrels)) == "QuerySet(2 vectors, 1 judged)"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("q.txt", "", "holds no queries"),
        ("q.jsonl", '{"_id": "a"}\n', "line 1 has no 'text'"),
        ("missing.txt", None, "no such file"),
    ],
)
def test_a_file_without_queries_is_named(
    tmp_path: Path, name: str, content: str | None, words: str
) -> None:
    """The error says which file, and what is wrong with it."""
    file = tmp_path / name
    if content is not None:
        file.write_text(content)
    with pytest.raises(FileError, match=words):
        QuerySet.read(file)


def test_arrays_of_one_model_are_not_enough(tmp_path: Path) -> None:
    """An .npz without old vectors is refused by name."""
    file = tmp_path / "q.npz"
    np.savez(file, new=np.ones((2, 4)))
    with pytest.raises(FastFillError, match="old"):
        QuerySet.read(file)


def test_judgements_of_other_queries_are_refused() -> None:
    """Ids that do not match are a mistake, not an empty set."""
    with pytest.raises(InputError, match="None of the judged queries"):
        QuerySet(["a"], texts=["x"], judgements={"b": {"i": 1.0}})


def test_judged_queries_come_first_into_the_sample() -> None:
    """Where there are too many queries, those with judgements are kept."""
    names = [str(n) for n in range(50)]
    queries = QuerySet(names, texts=names, judgements={n: {"i": 1.0} for n in ("7", "33")})
    sample = queries.sample(10)
    assert len(sample) == 10
    assert {"7", "33"} <= set(sample.ids)
