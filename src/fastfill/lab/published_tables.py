"""What the paper and its authors published, as data: M̃ in %, by the names used here.

Table 6 prints 37.73 for the top-1 of FCT where Table 3 has 35.73; both are kept as printed.
"""

from __future__ import annotations

from dataclasses import dataclass

Row = dict[str, float]  # metric → % of area


@dataclass(frozen=True)
class PublishedTable:
    """One table: where it is from, on which data, and its rows."""

    source: str
    data: str
    rows: dict[str, Row]
    test: str = "all"


def _rows(metrics: tuple[str, ...], values: dict[str, tuple[float, ...]]) -> dict[str, Row]:
    return {name: dict(zip(metrics, row, strict=True)) for name, row in values.items()}


_TWO = ("cmc@1", "map")
_THREE = ("cmc@1", "cmc@5", "map")

AUTHORS = PublishedTable(
    "the authors' code", "CIFAR-100, 50→100 classes",
    _rows(_THREE, {
        "old/old": (34.2, 60.6, 16.5),
        "FCT": (49.1, 73.6, 29.1),
        "FastFill": (53.6, 75.3, 32.5),
        "new/new": (56.5, 77.0, 36.3),
    }),
)  # fmt: skip


def _unseen(test: str, top1: tuple[float, ...], map_: tuple[float, ...]) -> PublishedTable:
    names = ("old/old", "FastFill", "FastFill-entropy", "FastFill-margin",
             "FastFill-least-confidence", "FCT", "RACT-entropy")  # fmt: skip
    rows = {name: {"cmc@1": a, "map": b} for name, a, b in zip(names, top1, map_, strict=True)}
    return PublishedTable("Table 7", f"ImageNet 250→500, {test}", rows, test)


PUBLISHED: dict[str, tuple[PublishedTable, ...]] = {
    "main": (
        AUTHORS,
        PublishedTable("Table 1", "ImageNet-1k", _rows(_TWO, {
            "BCT": (58.92, 37.02),
            "RACT-entropy": (60.91, 39.47),
            "FCT": (62.80, 40.47),
            "FastFill": (66.49, 44.84),
        })),
        PublishedTable("Table 2", "VGGFace2", _rows(_TWO, {
            "RACT-entropy": (91.04, 45.65),
            "FCT": (95.87, 70.26),
            "FastFill": (96.35, 71.57),
        })),
        PublishedTable("Table 3", "Places-365", _rows(_TWO, {
            "BCT": (33.3, 15.15),
            "FCT": (35.73, 16.81),
            "FastFill": (38.32, 19.48),
        })),
    ),
    "architecture": (
        PublishedTable("Table 4", "ImageNet-1k, ResNet-18→50", _rows(_TWO, {
            "old/old": (54.04, 26.41),
            "FastFill": (67.77, 45.94),
            "FCT": (64.91, 43.43),
            "RACT-entropy": (64.80, 42.04),
            "BCT": (59.26, 36.56),
        })),
    ),
    "ablation": (
        PublishedTable("Table 5", "ImageNet-1k", {
            "l2, random": {"cmc@1": 62.80, "map": 40.47},
            "disc, random": {"cmc@1": 65.51, "map": 39.45},
            "l2+disc, random": {"cmc@1": 65.06, "map": 41.95},
            "l2+uncertainty, random": {"cmc@1": 62.58, "map": 40.08},
            "l2+disc+uncertainty, random": {"cmc@1": 64.51, "map": 42.05},
            "l2+uncertainty, sigma": {"cmc@1": 65.76, "map": 43.61},
            "disc+uncertainty, sigma": {"cmc@1": 55.21, "map": 27.59},
            "l2+disc+uncertainty, sigma": {"cmc@1": 66.49, "map": 44.84},
        }),
        PublishedTable("Table 6", "Places-365", {
            "old/old": {"cmc@1": 29.57, "map": 11.39},
            "l2, random": {"cmc@1": 37.73, "map": 16.81},
            "l2+disc+uncertainty, sigma": {"cmc@1": 38.32, "map": 19.48},
            "FastFill-entropy": {"cmc@1": 38.12, "map": 18.6},
        }),
    ),
    "unseen": (
        _unseen("[:500]", (50.7, 75.27, 74.26, 74.21, 74.28, 71.15, 66.88),
                (29.13, 53.88, 53.48, 53.21, 53.38, 48.61, 41.6)),
        _unseen("[500:]", (12.41, 17.9, 15.22, 15.17, 15.18, 14.94, 13.65),
                (2.47, 4.68, 4.13, 4.01, 4.07, 3.7, 3.3)),
        _unseen("all", (29.32, 43.0, 40.78, 40.66, 40.74, 38.77, 36.65),
                (14.9, 26.44, 25.74, 25.56, 25.65, 23.4, 20.4)),
    ),
    "side-information": (
        PublishedTable("Appendix B.2", "ImageNet-1k", {
            "FCT + side": {"cmc@1": 64.72, "cmc@5": 82.35, "map": 42.55},
            "FastFill + side": {"cmc@1": 67.81, "cmc@5": 84.23, "map": 46.23},
        }),
    ),
    "faces": (
        PublishedTable("Table 2", "VGGFace2", _rows(_TWO, {
            "RACT-entropy": (91.04, 45.65),
            "FCT": (95.87, 70.26),
            "FastFill": (96.35, 71.57),
        })),
    ),
    "top5": (
        PublishedTable(AUTHORS.source, AUTHORS.data, AUTHORS.rows),
    ),
}  # fmt: skip

KENDALL = {  # Appendix E, ImageNet-1k: σ² trained on the row's loss, τ with the column's
    "l2, sigma": {"l2": 0.73, "disc": 0.56},
    "disc, sigma": {"l2": 0.34, "disc": 0.62},
    "l2+disc, sigma": {"l2": 0.65, "disc": 0.63, "l2+disc": 0.67},
}


def published_for(experiment: str, position: int) -> list[PublishedTable]:
    """The tables to show beside an experiment's test set: of Table 7 the one at its position."""
    tables = PUBLISHED.get(experiment, ())
    if experiment == "unseen":
        return [tables[position]]
    return [table for table in tables if table.test == "all"]
