"""Requests of Qdrant's REST protocol as the objects of its embedded engine, and answers back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import qdrant_edge as edge
from qdrant_client import models

_DISTANCES = {
    models.Distance.COSINE: edge.Distance.Cosine,
    models.Distance.DOT: edge.Distance.Dot,
    models.Distance.EUCLID: edge.Distance.Euclid,
    models.Distance.MANHATTAN: edge.Distance.Manhattan,
}
_KINDS = {
    models.PayloadSchemaType.KEYWORD: edge.PayloadSchemaType.Keyword,
    models.PayloadSchemaType.INTEGER: edge.PayloadSchemaType.Integer,
    models.PayloadSchemaType.FLOAT: edge.PayloadSchemaType.Float,
    models.PayloadSchemaType.BOOL: edge.PayloadSchemaType.Bool,
}


def as_distance(distance: models.Distance) -> Any:
    """How vectors are compared."""
    return _DISTANCES[distance]


def as_kind(schema: Any) -> Any:
    """What an index of the payload holds."""
    return _KINDS[models.PayloadSchemaType(getattr(schema, "type", schema))]


def kind_of(info: Any) -> models.PayloadSchemaType:
    """The same of an index that there is."""
    return next(kind for kind, theirs in _KINDS.items() if theirs == info.data_type)


# --- filters -------------------------------------------------------------------------------------


def as_filter(wanted: models.Filter | None) -> Any:
    """A filter, or None."""
    if wanted is None:
        return None
    parts = {name: getattr(wanted, name) for name in ("must", "should", "must_not")}
    return edge.Filter(**{name: _conditions(each) for name, each in parts.items() if each})


def _conditions(conditions: Any) -> list[Any]:
    many = conditions if isinstance(conditions, Sequence) else [conditions]
    return [_condition(each) for each in many]


def _condition(condition: Any) -> Any:
    if isinstance(condition, models.Filter):
        return as_filter(condition)
    if isinstance(condition, models.HasIdCondition):
        return edge.HasIdCondition(set(condition.has_id))
    if isinstance(condition, models.HasVectorCondition):
        return edge.HasVectorCondition(condition.has_vector)
    if isinstance(condition, models.IsEmptyCondition):
        return edge.IsEmptyCondition(condition.is_empty.key)
    if not isinstance(condition, models.FieldCondition):
        raise ValueError(f"this server knows no {type(condition).__name__}")
    if condition.range is not None:
        limits = condition.range.model_dump(exclude_none=True)
        return edge.FieldCondition(condition.key, range=edge.RangeFloat(**limits))
    return edge.FieldCondition(condition.key, match=_match(condition.match))


def _match(match: Any) -> Any:
    if isinstance(match, models.MatchValue):
        return edge.MatchValue(match.value)
    if isinstance(match, models.MatchAny):
        return edge.MatchAny(match.any)
    raise ValueError(f"this server knows no {type(match).__name__}")


# --- points --------------------------------------------------------------------------------------


def as_points(points: Sequence[models.PointStruct]) -> list[Any]:
    """Whole points."""
    return [edge.Point(id=p.id, vector=_vectors(p.vector), payload=p.payload) for p in points]


def as_point_vectors(points: Sequence[models.PointVectors]) -> list[Any]:
    """Vectors of points that exist."""
    return [edge.PointVectors(id=p.id, vector=_vectors(p.vector)) for p in points]


def _vectors(vector: Any) -> Any:
    return {"": vector} if isinstance(vector, list) else dict(vector or {})


def as_order(order: Any) -> Any:
    """The order of a scroll, or None."""
    if order is None:
        return None
    key, down = (order, False) if isinstance(order, str) else (order.key, order.direction == "desc")
    return edge.OrderBy(key, edge.Direction.Desc if down else edge.Direction.Asc)


def record(point: Any) -> dict[str, Any]:
    """A point as it is answered."""
    parts = {"id": _id(point.id), "payload": point.payload, "vector": point.vector}
    return {name: value for name, value in parts.items() if value is not None}


def hit(point: Any) -> dict[str, Any]:
    """A point with its score."""
    return {**record(point), "version": point.version, "score": point.score}


def _id(key: Any) -> int | str | None:
    return key if key is None or isinstance(key, int) else str(key)


def page(answer: tuple[list[Any], Any]) -> dict[str, Any]:
    """What a scroll answers."""
    points, offset = answer
    return {"points": [record(point) for point in points], "next_page_offset": _id(offset)}
