"""A folder of Parquet files: a piece is a row group, and becomes a file of the output folder.

The files of the output are the finished pieces. They hold the same rows in the same order, and
`_fastfill.json` lists them in the order of the input (see `output_folder`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastfill.errors import FileError, some
from fastfill.features.sources import file_errors
from fastfill.scale.folders import Folder, read_at_once
from fastfill.scale.operations import AlignmentSpec, Operation
from fastfill.scale.output_folder import OutputFolder, finished_files, is_data
from fastfill.scale.pieces import BATCH_ROWS, Piece, digest


@dataclass(frozen=True)
class ParquetFolder:
    """The row groups of all `.parquet` files in a folder and the folders below it.

    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> pq.write_table(pa.table({"id": range(5)}), f"{folder}/a.parquet", row_group_size=3)
    >>> ParquetFolder(folder).pieces()
    [Piece(a.parquet, row group 0: 3 rows), Piece(a.parquet, row group 1: 2 rows)]
    """

    url: str

    @property
    def name(self) -> str:
        """The folder."""
        return self.url

    @property
    def folder(self) -> Folder:
        """Where the files are."""
        return Folder(self.url)

    def pieces(self) -> list[Piece]:
        """The row groups in the order of the files' paths; of an output, in that of its input."""
        start = len(self.folder.path) + 1
        found = {info.path[start:]: info for info in self.folder.files()}
        data = [path for path in found if is_data(path)]
        listed = finished_files(self.folder, data)
        files = [(path, found[path]) for path in (data if listed is None else listed)]
        if not files:
            raise FileError(f"{self.url}: has no .parquet files. Name the folder that holds them.")
        counts = read_at_once(self._row_groups, [path for path, _ in files])
        pieces: list[Piece] = []
        first = 0
        for (path, info), groups in zip(files, counts, strict=True):
            for group, rows in enumerate(groups):
                if rows:
                    identity = f"{path} {group} {rows} {info.size} {info.mtime_ns}"
                    name = f"{path}, row group {group}"
                    pieces.append(Piece(name, identity, len(pieces), first, rows))
                    first += rows
        return pieces

    def _row_groups(self, path: str) -> list[int]:
        with self._file(path) as file:
            footer = file.metadata
            return [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]

    def batches(
        self, piece: Piece, columns: Sequence[str], *, others: bool = False
    ) -> Iterator[Any]:
        """Record batches of these columns, or of these and all others."""
        path, group = place_of(piece)
        with self._file(path) as file:
            missing = set(columns) - set(file.schema_arrow.names)
            if missing:
                raise FileError(
                    f"{self.url}/{path}: has no column {some(sorted(missing))}, only "
                    f"{some(file.schema_arrow.names)}."
                )
            names = None if others else list(columns)
            yield from file.iter_batches(BATCH_ROWS, row_groups=[group], columns=names)

    def has_variance(self, piece: Piece, spec: AlignmentSpec) -> bool:
        """Is its file an output of `transform` by this alignment?"""
        with self._file(place_of(piece)[0]) as file:
            return spec.has_written(file.schema_arrow)

    def _file(self, path: str) -> Any:
        import pyarrow.parquet as pq

        with file_errors(f"{self.url}/{path}"):
            return pq.ParquetFile(self.folder.open(path), buffer_size=1 << 20)


def place_of(piece: Piece) -> tuple[str, int]:
    """The file of a piece and its row group.

    >>> place_of(Piece("a b.parquet, row group 2", "…", 0, 0, 5))
    ('a b.parquet', 2)
    """
    path, _, group = piece.name.rpartition(", row group ")
    return path, int(group)


def output_of(job: str, folder: Folder, source: ParquetFolder, key: str | None) -> OutputFolder:
    """The folder as a job sees it; rows with all columns are other results than those without."""
    return OutputFolder(folder, source.folder, f"{job}{'' if key is None else f', {key} alone'}")


@dataclass(frozen=True)
class ParquetWork:
    """Writes the rows of a piece with the columns that an operation adds, or only key and those."""

    source: ParquetFolder
    operation: Operation
    folder: Folder
    key: str | None = None

    def file_name(self, piece: Piece) -> str:
        """Begins as the input's file, ends with what it depends on."""
        path, group = place_of(piece)
        stem = path.rpartition(".")[0].replace("/", "__")
        key = digest(piece.identity, self.operation.fingerprint, self.key)
        return f"{stem}-{group:05d}-{key}.parquet"

    def __call__(self, piece: Piece) -> None:
        """Read, work and write one row group."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        kept = [] if self.key is None else [self.key]
        wanted = list(dict.fromkeys([*kept, *self.operation.reads]))
        tables, first = [], 0
        for batch in self.source.batches(piece, wanted, others=not kept):
            added = self.operation(batch, piece, first)
            table = pa.Table.from_batches([batch.select(kept) if kept else batch])
            for field, values in zip(added.schema, added.columns, strict=True):
                _check_free(table.column_names, field.name, piece)
                table = table.append_column(field, values)
            tables.append(table)
            first += batch.num_rows
        whole, sink = pa.concat_tables(tables), pa.BufferOutputStream()
        indexed = _columns_without_vectors(whole.schema)
        pq.write_table(whole, sink, row_group_size=piece.rows, use_dictionary=indexed)
        self.folder.write(self.file_name(piece), sink.getvalue())

    @property
    def output(self) -> OutputFolder:
        """The folder as this job sees it."""
        return output_of(self.operation.job, self.folder, self.source, self.key)

    def commit(self, pieces: Sequence[Piece]) -> None:
        """List the finished files in order."""
        files = [self.file_name(piece) for piece in pieces]
        self.output.finish(files, sum(piece.rows for piece in pieces))


def _columns_without_vectors(schema: Any) -> list[str]:
    """The columns for which a dictionary of values may pay, as Parquet names them.

    The numbers of vectors do not repeat: to look for that takes as long as to write them.

    >>> import pyarrow as pa
    >>> kinds = {"id": pa.int64(), "tags": pa.list_(pa.string()), "vector": pa.list_(pa.float32())}
    >>> _columns_without_vectors(pa.schema(kinds))
    ['id', 'tags.list.element']
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    leaves = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    columns = [leaves.column(number) for number in range(len(leaves))]
    return [
        column.path
        for column in columns
        if not (column.max_repetition_level and column.physical_type in ("FLOAT", "DOUBLE"))
    ]


def _check_free(names: Sequence[str], column: str, piece: Piece) -> None:
    if column in names:
        raise FileError(
            f"{piece.name}: has a column '{column}' already. Rename it, or write only the key and "
            "the added columns."
        )
