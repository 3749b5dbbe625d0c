"""python ray_cluster.py FOLDER: embed by actors of a cluster whose machines come and go.

Its machines are processes of this one. Leaves `found.json` in the folder: what was told, and what
the actors had.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fastfill.features import Matrix
from fastfill.scale import EmbedRows, embed_folder
from fastfill.scale.engines import ray as engine
from fastfill.scale.engines.ray import RayEngine
from fastfill.scale.pieces import Piece

ROWS, PIECE = 200, 10
PIECES = [Piece(f"piece {i}", str(i), i, 10 * i, 10) for i in range(8)]


def open_encoder() -> Callable[[Sequence[str]], Matrix]:
    """Slow enough for a machine to vanish while every actor is at work."""

    def encode(texts: Sequence[str]) -> Matrix:
        time.sleep(0.1)
        return np.array([[float(text)] for text in texts], dtype=np.float32)

    return encode


@dataclass(frozen=True)
class Cards:
    """What share of a card an actor has, and which card it is."""

    folder: str
    actors: int

    def __call__(self, piece: Piece) -> tuple[float, list[str]]:
        """In one piece; it is not done before all actors are at work at the same time."""
        import ray

        Path(self.folder, str(os.getpid())).touch()
        while len(list(Path(self.folder).iterdir())) < self.actors:
            time.sleep(0.02)
        context = ray.get_runtime_context()
        share = float(context.get_assigned_resources().get("GPU", 0))
        return share, list(context.get_accelerator_ids()["GPU"])


def grow_and_shrink(cluster: Any, place: Path) -> dict[str, Any]:
    """No machine, then two, of which one vanishes when some pieces are done."""
    table = pa.table({"id": range(ROWS), "text": [str(i) for i in range(ROWS)]})
    (place / "texts").mkdir()
    pq.write_table(table, place / "texts/all.parquet", row_group_size=PIECE)
    told: list[str] = []
    nodes: list[Any] = []

    def grow(text: str) -> None:
        told.append(text)
        if not nodes:
            nodes.extend(cluster.add_node(num_cpus=1) for _ in range(2))

    def shrink(done: int, total: int) -> None:
        if done == 6:
            cluster.remove_node(nodes.pop(), allow_graceful=False)

    operation = EmbedRows(open_encoder, "numbers", "text", "vector_new")
    runner = RayEngine(cluster.address, actors=2, tell=grow)
    embed_folder(operation, str(place / "texts"), str(place / "out"), engine=runner, tick=shrink)
    cluster.remove_node(nodes.pop(), allow_graceful=False)
    return {"told": told[:1]}


def share_cards(cluster: Any, place: Path, actors: int) -> list[Any]:
    """What the actors had of two cards, which are only numbers here."""
    folder = place / f"cards-{actors}"
    folder.mkdir()
    return list(RayEngine(cluster.address, actors=actors).map(Cards(str(folder), actors), PIECES))


def main(place: Path) -> None:
    """One cluster for all."""
    from ray.cluster_utils import Cluster

    engine.PATIENCE = 1.0
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    found = grow_and_shrink(cluster, place)
    cluster.add_node(num_cpus=4, num_gpus=2)
    found["two"] = share_cards(cluster, place, 2)
    found["four"] = share_cards(cluster, place, 4)
    Path(place, "found.json").write_text(json.dumps(found))
    import ray

    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
