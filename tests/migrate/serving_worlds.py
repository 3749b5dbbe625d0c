"""Two small galleries: documents, where each answer counts, and classes, where a map is enough.

A document is a topic and a meaning of its own. The old model sees both through much noise; the new
one sees both well, in a space that is bent so that few pairs cannot teach it. In the gallery of
classes the topic is all there is to see.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastfill.features import Matrix
from fastfill.gallery import Gallery, MemoryStore
from fastfill.migrate import QuerySet

ITEMS, QUERIES, DIM = 400, 80, 12


class World:
    """Items and queries under both models, and which item answers which query."""

    def __init__(self, kind: str, seed: int = 0) -> None:
        self.kind = kind
        rng = np.random.default_rng(seed)
        topics = rng.normal(size=(8, DIM))
        own = 1.0 if kind == "documents" else 0.05
        self.labels = rng.integers(0, 8, ITEMS)
        meaning = topics[self.labels] + own * rng.normal(size=(ITEMS, DIM))
        self.right = rng.permutation(ITEMS)[:QUERIES]
        asked = meaning[self.right] + 0.1 * own * rng.normal(size=(QUERIES, DIM))
        self._old_map = rng.normal(size=(DIM, DIM))
        self._new_map = rng.normal(size=(DIM, 20))
        self._bent = 4.0 if kind == "documents" else 0.3
        self._rng, self._noise = rng, 0.5 if kind == "documents" else 0.3
        self.old, self.new = self.embed_old(meaning), self.embed_new(meaning)
        self.queries_old, self.queries_new = self.embed_old(asked), self.embed_new(asked)

    def embed_old(self, meaning: Any) -> Matrix:
        """A plain look, with noise."""
        noise = self._noise * self._rng.normal(size=(len(meaning), DIM))
        return np.asarray((meaning + noise) @ self._old_map, dtype=np.float32)

    def embed_new(self, meaning: Any) -> Matrix:
        """A bent look, without."""
        return np.asarray(np.sin(self._bent * meaning @ self._new_map / DIM), dtype=np.float32)

    def gallery(self) -> Gallery:
        """In memory, before any migration."""
        texts = [f"item {row}" for row in range(ITEMS)]
        values = {
            "id": [*range(ITEMS)],
            "text": texts,
            "vector": self.old.tolist(),
            "topic": self.labels.tolist(),
        }
        return Gallery(MemoryStore(values, distance="cosine"), input="text")

    def encode(self, texts: Any) -> Matrix:
        """The new model, on texts that name an item or a query."""
        return np.stack([self._look(text, self.new, self.queries_new) for text in texts])

    def encode_old(self, texts: Any) -> Matrix:
        """The old model."""
        return np.stack([self._look(text, self.old, self.queries_old) for text in texts])

    def _look(self, text: str, items: Matrix, queries: Matrix) -> Matrix:
        kind, number = text.split()
        return (items if kind == "item" else queries)[int(number)]

    def _right_items(self, item: int) -> list[int]:
        if self.kind == "documents":
            return [item]
        return [int(each) for each in np.flatnonzero(self.labels == self.labels[item])]

    def query_set(self, judged: bool = True, texts: bool = False) -> QuerySet:
        """All queries; right is the item that each was made from, or all of its class."""
        names = [f"q{row}" for row in range(QUERIES)]
        grades = {
            name: {str(each): 1.0 for each in self._right_items(item)}
            for name, item in zip(names, self.right, strict=True)
        }
        judgements = grades if judged else {}
        if texts:
            asked = [f"query {row}" for row in range(QUERIES)]
            return QuerySet(names, texts=asked, judgements=judgements)
        return QuerySet.of_vectors(self.queries_old, self.queries_new, names, judgements)
