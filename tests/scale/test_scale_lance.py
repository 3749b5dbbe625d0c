"""Lance tables: columns by fragment, one commit, and writers in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scale_world import gallery_table

from fastfill.align import Alignment
from fastfill.errors import InputError, StoreError
from fastfill.features import Matrix
from fastfill.order import PolicyInput, arrange
from fastfill.scale import EmbedRows, LanceTable, Piece, embed_table, order_table, transform_table
from fastfill.scale import jobs as jobs_module
from fastfill.scale.histogram import bucket_of
from fastfill.scale.operations import AlignmentSpec

lance = pytest.importorskip("lance")


class BusyTable:
    """An engine of one process during which others write, after so many pieces."""

    def __init__(self, writes: dict[int, Callable[[], object]]) -> None:
        self.writes, self.done = writes, 0

    def map(self, work: Callable[[Piece], Any], pieces: Sequence[Piece]) -> Iterator[Any]:
        """One piece after the other."""
        for piece in pieces:
            yield work(piece)
            self.done += 1
            self.writes.pop(self.done, lambda: None)()


def rows(table: LanceTable) -> pa.Table:
    """All rows as they are now, by id."""
    return lance.dataset(table.uri).to_table().sort_by("id")


def check_aligned(table: LanceTable, alignment: Alignment) -> pa.Table:
    """Every row has the aligned vector of its own old vector."""
    present = rows(table)
    aligned = alignment(np.stack(present["vector"].to_numpy()))
    assert present["vector_aligned"].null_count == 0
    assert np.allclose(np.stack(present["vector_aligned"].to_numpy()), aligned.vectors, atol=1e-6)
    assert np.allclose(present["vector_variance"].to_numpy(), aligned.variance, rtol=1e-5)
    return present


def test_columns_appear_in_one_version(lance_table: LanceTable, alignment: Alignment) -> None:
    """Deleted rows are passed over, and what is kept meanwhile is taken away."""
    lance.dataset(lance_table.uri).delete("id = 7 or id > 280")
    before = lance.dataset(lance_table.uri).version
    result = transform_table(alignment, lance_table)
    assert (result.rows, result.pieces, result.done) == (280, 6, 6)
    assert lance.dataset(lance_table.uri).version == before + 1
    assert check_aligned(lance_table, alignment).num_rows == 280
    assert not lance_table.work_folder.files()


@pytest.fixture
def no_row_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave also a few rows to the engine."""
    monkeypatch.setattr(jobs_module, "FEW_ROWS", 0)


@pytest.mark.usefixtures("no_row_here")
def test_writers_in_between_cost_their_fragments_alone(
    lance_table: LanceTable, alignment: Alignment, vectors: Matrix
) -> None:
    """After an append, a delete and an update, the changed fragments are done, and no others."""
    uri = lance_table.uri

    def append() -> None:
        lance.write_dataset(gallery_table(vectors[:20], first=300), uri, mode="append")

    def update() -> None:
        moved = gallery_table(vectors[:1] + 1, first=120)
        lance.dataset(uri).merge_insert("id").when_matched_update_all().execute(moved)

    writes = {2: append, 6: lambda: lance.dataset(uri).delete("id in (1, 60)"), 9: update}
    result = transform_table(alignment, lance_table, engine=BusyTable(writes))
    assert not writes
    # 6, then the appended one and the two with deletions, then where the update took and put a row
    assert result.done == 6 + 3 + 2
    present = check_aligned(lance_table, alignment)
    assert present["id"].to_pylist() == [i for i in range(320) if i not in (1, 60)]


def test_a_few_rows_that_others_append_are_done_by_this_process(
    lance_table: LanceTable, alignment: Alignment, vectors: Matrix
) -> None:
    """The engine starts its processes for the many alone."""
    given: list[int] = []

    class Counted(BusyTable):
        def map(self, work: Callable[[Piece], Any], pieces: Sequence[Piece]) -> Iterator[Any]:
            given.append(len(pieces))
            return super().map(work, pieces)

    def append() -> None:
        more = gallery_table(vectors[:20], first=lance.dataset(lance_table.uri).count_rows())
        lance.write_dataset(more, lance_table.uri, mode="append")

    transform_table(alignment, lance_table, engine=Counted({2: append}))
    assert check_aligned(lance_table, alignment).num_rows == 320
    order_table(alignment, lance_table, policy="mixed", engine=Counted({2: append}))
    assert sorted(rows(lance_table)["vector_rank"].to_pylist()) == list(range(340))
    assert given == [6, 7, 8]  # aligned; scored; ranked


def test_an_order_is_of_the_rows_that_came_while_all_were_scored(
    lance_table: LanceTable, alignment: Alignment, vectors: Matrix
) -> None:
    """Those that come while ranks are given have none, and are told."""

    def append() -> None:
        more = gallery_table(vectors[:20] * 3, first=lance.dataset(lance_table.uri).count_rows())
        lance.write_dataset(more, lance_table.uri, mode="append")

    writers = BusyTable({3: append, 8: append})
    result = order_table(alignment, lance_table, policy="sigma", engine=writers)
    assert (result.rows, result.left) == (320, 20)
    everything = rows(lance_table)
    assert everything["vector_rank"].to_pylist()[320:] == [None] * 20
    present = everything.slice(0, 320)
    aligned = alignment(np.stack(present["vector"].to_numpy()))
    exact = arrange("sigma", PolicyInput(aligned))
    ranks = present["vector_rank"].to_numpy()
    assert exact.scores is not None
    buckets = bucket_of(exact.scores)
    assert np.array_equal(np.sort(ranks), np.arange(320))
    assert np.array_equal(buckets[np.argsort(ranks)], buckets[exact.positions])


def test_an_order_takes_the_errors_of_rows_that_are_as_they_were(
    lance_table: LanceTable, alignment: Alignment, vectors: Matrix
) -> None:
    """Appended, updated and rewritten rows are mapped, and scores are those of a plain table."""
    uri, spec = lance_table.uri, AlignmentSpec.of(alignment, "vector")
    transform_table(alignment, lance_table)
    assert all(lance_table.has_variance(piece, spec) for piece in lance_table.pieces())
    moved = gallery_table(vectors[:1] * 3, first=120).select(["id", "vector"])
    lance.dataset(uri).merge_insert("id").when_matched_update_all().execute(moved)
    lance.write_dataset(gallery_table(vectors[:20] * 2, first=300), uri, mode="append")
    rewrite_vectors(uri, fragment=3, moved=gallery_table(vectors[:1] * 4, first=170))
    lance.dataset(uri).delete("id = 60")
    written = [lance_table.has_variance(piece, spec) for piece in lance_table.pieces()]
    assert written == [True, True, True, False, True, True, False, False]
    plain = LanceTable(lance_table.database, "plain", "vector")
    lance.write_dataset(lance.dataset(uri).to_table(columns=["id", "vector"]), plain.uri)
    for table in (lance_table, plain):
        order_table(alignment, table, policy="sigma")
    ranked = [rows(table)["vector_score"].to_numpy() for table in (lance_table, plain)]
    assert np.allclose(*ranked, rtol=1e-5)
    other = Alignment.from_bytes(alignment.to_bytes())
    other.arrays["out.bias"] = other.arrays["out.bias"] + 1
    piece = lance_table.pieces()[0]
    assert not lance_table.has_variance(piece, AlignmentSpec.of(other, "vector"))


def rewrite_vectors(uri: str, fragment: int, moved: pa.Table) -> None:
    """Change vectors of a fragment where they are, as Lance does with `update_columns`."""
    data = lance.dataset(uri)
    part = data.get_fragments()[fragment]
    changed, fields = part.update_columns(moved.select(["id", "vector"]), "id", "id")
    operation = lance.LanceOperation.Update(updated_fragments=[changed], fields_modified=fields)
    lance.LanceDataset.commit(uri, operation, read_version=data.version)


def test_a_killed_run_goes_on_with_what_is_missing(
    lance_table: LanceTable, alignment: Alignment
) -> None:
    """Nothing is visible before the commit, and finished fragments are not done again."""

    def kill() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        transform_table(alignment, lance_table, engine=BusyTable({4: kill}))
    assert "vector_aligned" not in rows(lance_table).column_names
    assert transform_table(alignment, lance_table).done == 2
    assert check_aligned(lance_table, alignment)["id"].to_pylist() == list(range(300))


@pytest.mark.usefixtures("no_row_here")
def test_a_table_that_is_always_busy_is_given_up(
    lance_table: LanceTable, alignment: Alignment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is committed, and what is finished is kept."""
    monkeypatch.setattr(jobs_module, "COMMITS", 2)
    ids = iter(range(1000))

    class NeverQuiet(BusyTable):
        def map(self, work: Callable[[Piece], Any], pieces: Sequence[Piece]) -> Iterator[Any]:
            yield from super().map(work, pieces)
            lance.dataset(lance_table.uri).delete(f"id = {next(ids)}")

    with pytest.raises(StoreError, match="other writers were faster 2 times"):
        transform_table(alignment, lance_table, engine=NeverQuiet({}))
    assert len(lance_table.work_folder.files()) == 7


@pytest.mark.usefixtures("no_row_here")
@pytest.mark.parametrize("job", [transform_table, order_table])
def test_a_writer_that_never_rests_does_not_keep_a_job_from_its_end(
    job: Any, lance_table: LanceTable, alignment: Alignment, vectors: Matrix
) -> None:
    """What it appends while the second round runs is left without values, and told."""
    first = iter(range(300, 10_000, 20))

    class Appended(BusyTable):
        def map(self, work: Callable[[Piece], Any], pieces: Sequence[Piece]) -> Iterator[Any]:
            yield from super().map(work, pieces)
            more = gallery_table(vectors[:20], first=next(first))
            lance.write_dataset(more, lance_table.uri, mode="append")

    result = job(alignment, lance_table, engine=Appended({}))
    present = rows(lance_table)
    added = "vector_aligned" if job is transform_table else "vector_rank"
    done = present.filter(present[added].is_valid())
    assert present["id"].to_pylist() == list(range(next(first)))
    assert done["id"].to_pylist() == list(range(result.rows))
    assert (result.rows >= 320, result.left) == (True, len(present) - result.rows)
    aligned = alignment(np.stack(done["vector"].to_numpy()))
    if job is transform_table:
        assert np.allclose(np.stack(done[added].to_numpy()), aligned.vectors, atol=1e-6)
    else:
        assert np.array_equal(np.sort(done[added].to_numpy()), np.arange(result.rows))


def lengths(texts: Sequence[str]) -> Matrix:
    """An encoder that measures texts."""
    return np.array([[len(text), text.count("1")] for text in texts], dtype=np.float32)


def test_running_again_fills_in_what_others_have_written(
    lance_table: LanceTable, alignment: Alignment, vectors: Matrix
) -> None:
    """Appended and updated rows are done in one version; other fragments keep their files."""
    uri = lance_table.uri
    transform_table(alignment, lance_table)
    before = {f.fragment_id: f.metadata.files for f in lance.dataset(uri).get_fragments()}
    lance.write_dataset(gallery_table(vectors[:20] * 2, first=300), uri, mode="append")
    lance.dataset(uri).create_scalar_index("vector_variance", "BTREE")
    moved = gallery_table(vectors[:1] * 3, first=120).select(["id", "vector"])
    lance.dataset(uri).merge_insert("id").when_matched_update_all().execute(moved)
    lance.dataset(uri).delete("id in (60, 305)")
    version = lance.dataset(uri).version
    result = transform_table(alignment, lance_table)
    assert (result.rows, result.pieces, result.done, result.left) == (318, 8, 2, 0)
    assert lance.dataset(uri).version == version + 1
    present = check_aligned(lance_table, alignment)
    assert present["id"].to_pylist() == [i for i in range(320) if i not in (60, 305)]
    after = {f.fragment_id: f.metadata.files for f in lance.dataset(uri).get_fragments()}
    assert before == {number: after[number] for number in before}
    found = lance.dataset(uri).to_table(filter="vector_variance >= 0")  # by the index
    assert found.num_rows == 318
    assert transform_table(alignment, lance_table).done == 0
    assert lance.dataset(uri).version == version + 1


def test_filling_in_is_resumed_and_gives_way_to_writers(
    lance_table: LanceTable, alignment: Alignment, vectors: Matrix
) -> None:
    """A killed run goes on, a changed fragment is done again, rows that come meanwhile are told."""
    uri = lance_table.uri
    transform_table(alignment, lance_table)

    def append() -> None:
        more = gallery_table(vectors[:20] * 2, first=lance.dataset(uri).count_rows())
        lance.write_dataset(more, uri, mode="append")

    def kill() -> None:
        raise KeyboardInterrupt

    for _ in range(3):
        append()
    with pytest.raises(KeyboardInterrupt):
        transform_table(alignment, lance_table, engine=BusyTable({2: kill}))
    assert rows(lance_table)["vector_aligned"].null_count == 60
    delete_one = BusyTable({1: lambda: lance.dataset(uri).delete("id = 300")})
    assert transform_table(alignment, lance_table, engine=delete_one).done == 1 + 1
    assert check_aligned(lance_table, alignment).num_rows == 359
    for _ in range(2):
        lance.write_dataset(gallery_table(vectors[:20], first=400), uri, mode="append")
    late = transform_table(alignment, lance_table, engine=BusyTable({2: append}))
    assert (late.rows, late.done, late.left) == (399, 2, 20)


def test_columns_that_others_have_made_are_not_filled_in(
    lance_table: LanceTable, alignment: Alignment, vectors: Matrix
) -> None:
    """Another alignment, the same without its penalty, another encoder, and an order that is."""
    other = Alignment.from_bytes(alignment.to_bytes())
    other.arrays["out.bias"] = other.arrays["out.bias"] + 1
    encoder = EmbedRows(lambda: lengths, "lengths", "text", "vector_new")
    transform_table(alignment, lance_table)
    order_table(alignment, lance_table)
    embed_table(encoder, lance_table)
    lance.write_dataset(gallery_table(vectors[:20], first=300), lance_table.uri, mode="append")
    version = lance.dataset(lance_table.uri).version
    with pytest.raises(StoreError, match=r"another alignment, .* Drop vector_aligned, vector_var"):
        transform_table(other, lance_table)
    with pytest.raises(StoreError, match="with or without its penalty"):
        transform_table(alignment, lance_table, estimates=True)
    with pytest.raises(StoreError, match=r"another encoder, .* Drop vector_new"):
        embed_table(replace(encoder, model="words"), lance_table)
    with pytest.raises(StoreError, match=r"change the ranks .* Drop vector_rank, vector_score"):
        order_table(alignment, lance_table)
    assert lance.dataset(lance_table.uri).version == version
    assert not lance_table.work_folder.files()


def test_new_rows_alone_are_embedded_when_it_is_run_again(
    lance_table: LanceTable, vectors: Matrix
) -> None:
    """The encoder sees no text of a row that has its new vector."""
    seen: list[str] = []

    def encode(texts: Sequence[str]) -> Matrix:
        seen.extend(texts)
        return lengths(texts)

    operation = EmbedRows(lambda: encode, "noting lengths", "text", "vector_new")
    embed_table(operation, lance_table)
    lance.write_dataset(gallery_table(vectors[:20], first=300), lance_table.uri, mode="append")
    assert embed_table(operation, lance_table).done == 1
    present = rows(lance_table)
    assert seen == present["text"].to_pylist()
    new = np.stack(present["vector_new"].to_numpy())
    assert np.array_equal(new, lengths(present["text"].to_pylist()))


def test_embedding_adds_the_new_vectors(lance_table: LanceTable) -> None:
    """The encoder sees the inputs of each row once."""
    operation = EmbedRows(lambda: lengths, "lengths", "text", "vector_new")
    embed_table(operation, lance_table)
    present = rows(lance_table)
    expected = lengths(present["text"].to_pylist())
    assert np.array_equal(np.stack(present["vector_new"].to_numpy()), expected)


def test_what_cannot_be_used_is_named(lance_table: LanceTable, alignment: Alignment) -> None:
    """A column that is not there, a table that is not, half a URL."""
    with pytest.raises(StoreError, match="has no column 'old', only id, text, vector"):
        transform_table(alignment, LanceTable(lance_table.database, "photos", "old"))
    with pytest.raises(StoreError, match=r"#films\.vector: cannot be opened"):
        transform_table(alignment, LanceTable(lance_table.database, "films", "vector"))
    with pytest.raises(InputError, match=r"use lance://PATH#TABLE\.COLUMN"):
        LanceTable.from_url("lance://here#photos")
