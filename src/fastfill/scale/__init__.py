"""Data sets in pieces, and the engines that run them: the same job on one machine and on many."""

from fastfill.scale.curves import GalleryColumns, curves_over_pieces
from fastfill.scale.embedding import EmbedRows, RankRange
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
from fastfill.scale.matching import matched_pairs
from fastfill.scale.pair_sums import PairColumns, fit_over_pieces
from fastfill.scale.parquet_folder import ParquetFolder
from fastfill.scale.pieces import Engine, Piece

__all__ = [
    "ENGINES",
    "EmbedRows",
    "Engine",
    "Folder",
    "GalleryColumns",
    "JobResult",
    "LanceTable",
    "PairColumns",
    "ParquetFolder",
    "Piece",
    "RankRange",
    "ScoreHistogram",
    "curves_over_pieces",
    "embed_folder",
    "embed_table",
    "fit_over_pieces",
    "matched_pairs",
    "open_engine",
    "order_folder",
    "order_table",
    "transform_folder",
    "transform_table",
]
