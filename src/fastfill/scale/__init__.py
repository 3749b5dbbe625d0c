"""Data sets in pieces, and the engines that run them: the same job on one machine and on many."""

from fastfill.scale.engines import ENGINES, open_engine
from fastfill.scale.folders import Folder
from fastfill.scale.histogram import ScoreHistogram
from fastfill.scale.jobs import (
    JobResult,
    embed_folder,
    embed_table,
    order_folder,
    order_table,
    transform_folder,
    transform_table,
)
from fastfill.scale.lance_table import LanceTable
from fastfill.scale.operations import EmbedRows
from fastfill.scale.pair_sums import PairColumns, fit_over_pieces
from fastfill.scale.parquet_folder import ParquetFolder
from fastfill.scale.pieces import Engine, Piece

__all__ = [
    "ENGINES",
    "EmbedRows",
    "Engine",
    "Folder",
    "JobResult",
    "LanceTable",
    "PairColumns",
    "ParquetFolder",
    "Piece",
    "ScoreHistogram",
    "embed_folder",
    "embed_table",
    "fit_over_pieces",
    "open_engine",
    "order_folder",
    "order_table",
    "transform_folder",
    "transform_table",
]
