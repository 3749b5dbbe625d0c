"""A Qdrant collection before a migration: its vector and its index, and random points of it."""

from __future__ import annotations

from qdrant_client import models

from fastfill.adapters.qdrant.context import QdrantContext
from fastfill.gallery import Inspection, VectorIndex


def inspect_collection(context: QdrantContext, sample: int) -> Inspection:
    """Look at the vector and draw random points; changes nothing.

    Qdrant holds every vector of a name to one length and one distance, and indexes it by itself. It
    tells neither the space that is left nor what a key may do.
    """
    params = context.owner.vectors().get(context.old)
    answer = context.owner.ask(
        "query_points",
        query=models.SampleQuery(sample=models.Sample.RANDOM),
        limit=sample,
        with_payload=False,
    )
    ids = [point.id for point in answer.points]
    software = (context.connection.software,)
    if params is None:  # dropped by `complete --drop-old`
        return Inspection("", ids, software=software)
    distance = context.owner.distance(context.old)
    return Inspection(
        kind=f"{params.size} dimensions, {params.distance.value}",
        ids=ids,
        dims={int(params.size): len(ids)},
        indexes=(VectorIndex(context.column, "hnsw", distance),),
        software=software,
    )
