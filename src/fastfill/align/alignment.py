"""`Alignment`: h and σ², learned from pairs, applied to old vectors, saved as data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align.apply import APPLY
from fastfill.align.artefact import fingerprint, pack, unpack
from fastfill.align.calibration import Calibration
from fastfill.align.scaling import Scaling
from fastfill.align.setback import Setback, served
from fastfill.align.values import Aligned
from fastfill.errors import ArtefactError, FastFillError, FileError, ShapeError
from fastfill.features import Distance, Features, Matrix, Pairs, Source, as_matrix, replacing

# How the forms of an alignment that are more than one map are read, by their method.
forms: dict[str, Callable[[dict[str, Matrix], dict[str, Any]], Alignment]] = {}

BLOCK = 2048  # rows mapped together: their activations stay in the cache


class Alignment:
    """A map h from the old to the new space, with the predicted error of every item.

    >>> rng = np.random.default_rng(0)
    >>> old = rng.normal(size=(300, 8)); new = old[:, ::-1] * 2
    >>> alignment = Alignment.fit(Pairs(Features(old), Features(new)), method="ridge")
    >>> alignment
    Alignment(ridge, 8→8, l2, 300 pairs)
    >>> aligned = alignment(old)
    >>> bool(np.abs(aligned.vectors - new).max() < 0.05)
    True
    """

    def __init__(
        self,
        method: str,
        arrays: dict[str, Matrix],
        scaling: Scaling,
        calibration: Calibration,
        *,
        side_dim: int = 0,
        head: Matrix | None = None,
        setback: Setback | None = None,
        facts: dict[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.arrays = arrays
        self.scaling = scaling
        self.calibration = calibration
        self.side_dim = side_dim
        self.head = head  # (classes, d_new): the new model's classifier, for head-based orders
        self.setback = setback  # None: what is served is h
        self.facts = facts or {}  # numbers of pairs, seed, training, held-out quality, model names

    @classmethod
    def fit(
        cls,
        pairs: Pairs,
        *,
        method: str = "auto",
        loss: str | None = None,
        head: ArrayLike | None = None,
        distance: Distance = "l2",
        seed: int = 0,
        **options: Any,
    ) -> Alignment:
        """Learn a map from pairs; see `fastfill.align.fit_alignment` for every option."""
        from fastfill.align.fitting import fit_alignment

        return fit_alignment(
            pairs, method=method, loss=loss, head=head, distance=distance, seed=seed, **options
        )

    def __call__(self, old: Features | ArrayLike, side: ArrayLike | None = None) -> Aligned:
        """Map old vectors into the new space, with the predicted squared error of each."""
        name = old.name if isinstance(old, Features) else "old vectors"
        x = old.vectors if isinstance(old, Features) else as_matrix(old, name)
        extra = None if side is None else as_matrix(side, "side-information")
        return self.mapped(x, extra, name)

    def mapped(
        self, x: Matrix, side: Matrix | None, name: str = "old vectors", first_row: int = 0
    ) -> Aligned:
        """Map rows of a larger set: an error names the set and the row within it."""
        self._check(x, side, name)
        vectors = np.empty((len(x), self.new_dim), dtype=np.float32)
        variance = np.empty(len(x), dtype=np.float32)
        for start in range(0, len(x), BLOCK):
            rows = slice(start, start + BLOCK)
            part = None if side is None else side[rows]
            inputs = self.scaling.inputs(x[rows], part, name, first_row + start)
            h, score = APPLY[self.method](self.arrays, inputs)
            vectors[rows], variance[rows] = self.scaling.outputs(h), self.calibration(score)
        return self.set_back(vectors, variance)

    def set_back(self, h: Matrix, variance: NDArray[np.float32]) -> Aligned:
        """What is served of the estimates h."""
        return served(self.setback, h, variance, self.head)

    def _check(self, x: Matrix, side: Matrix | None, name: str) -> None:
        if x.shape[1] != self.old_dim:
            raise ShapeError(
                f"{name}: vectors of {x.shape[1]} dimensions, but this alignment was learned from "
                f"old vectors of {self.old_dim}. Give vectors of the same old model."
            )
        if side is None and self.side_dim:
            raise ShapeError(
                f"This alignment needs side-information of {self.side_dim} dimensions. "
                "Give it for the same items in the same order."
            )
        if side is not None and not self.side_dim:
            raise ShapeError(
                "This alignment was learned without side-information. Apply it without."
            )
        if side is not None and side.shape != (len(x), self.side_dim):
            expected = (len(x), self.side_dim)
            raise ShapeError(
                f"side-information: shape {side.shape} where {expected} is expected. "
                "Give it for the same items in the same order."
            )

    @property
    def distance(self) -> Distance:
        """The distance of the gallery that it was made for."""
        return self.scaling.distance

    @property
    def old_dim(self) -> int:
        """Dimensions of the old vectors."""
        return int(self.facts["old_dim"])

    @property
    def new_dim(self) -> int:
        """Dimensions of the new vectors."""
        return int(self.arrays["out.bias"].shape[0])

    @property
    def fingerprint(self) -> str:
        """Changes whenever the map changes."""
        facts = repr(sorted(self.scaling.to_json().items()))
        if self.setback is not None:
            facts += repr(sorted(self.setback.to_json().items()))
        return fingerprint(self.all_arrays(), facts)

    def __repr__(self) -> str:
        pairs = f"{self.facts.get('pairs', 0):,} pairs"
        return f"Alignment({self.method}, {self.old_dim}→{self.new_dim}, {self.distance}, {pairs})"

    def all_arrays(self) -> dict[str, Matrix]:
        """The map's arrays, the classifier and the direction in which vectors are set back."""
        direction = None if self.setback is None else self.setback.direction
        more = {"head": self.head, "setback": direction}
        return self.arrays | {name: array for name, array in more.items() if array is not None}

    def document(self) -> dict[str, Any]:
        """Everything but the arrays, as plain values."""
        c = self.calibration
        return {
            "method": self.method,
            "scaling": self.scaling.to_json(),
            "calibration": {"offset": c.offset, "slope": c.slope, "bound": c.bound},
            "side_dim": self.side_dim,
            "setback": None if self.setback is None else self.setback.to_json(),
            "facts": self.facts,
        }

    def to_bytes(self) -> bytes:
        """The artefact as bytes, for a store to keep."""
        return pack(self.all_arrays(), self.document())

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "alignment") -> Alignment:
        """Read an artefact; nothing in it is executed."""
        arrays, document = unpack(data, name)
        try:
            alignment = forms.get(document["method"], cls.from_parts)(arrays, document)
            alignment._try()
        except KeyError as error:
            raise ArtefactError(f"{name}: lacks or does not know {error}. Align again.") from None
        except FastFillError as error:
            raise ArtefactError(f"{name}: {error} Align again.") from None
        except (TypeError, ValueError, AttributeError, MemoryError):
            raise ArtefactError(
                f"{name}: the parts of this {document['method']} map do not fit together. It was "
                "changed after it was made, or made by another version. Align again."
            ) from None
        return alignment

    @classmethod
    def from_parts(cls, arrays: dict[str, Matrix], document: dict[str, Any]) -> Alignment:
        """From arrays and plain values."""
        if document["method"] not in APPLY:
            raise KeyError(document["method"])
        arrays = dict(arrays)
        head, direction = arrays.pop("head", None), arrays.pop("setback", None)
        return Alignment(
            document["method"],
            arrays,
            Scaling(**document["scaling"]),
            Calibration(**document["calibration"]),
            side_dim=int(document["side_dim"]),
            head=head,
            setback=None if direction is None else Setback(direction, **document["setback"]),
            facts=document["facts"],
        )

    def _try(self) -> None:
        """Map one vector: shows that all arrays are there and fit together."""
        with np.errstate(all="ignore"):
            self(np.ones((1, self.old_dim)), np.ones((1, self.side_dim)) if self.side_dim else None)

    def save(self, path: Source) -> None:
        """Write the artefact; the file appears only when it is whole."""
        data = self.to_bytes()
        with replacing(path) as temporary:
            temporary.write_bytes(data)

    @classmethod
    def load(cls, path: Source) -> Alignment:
        """Read an artefact from a file."""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise FileError(f"{path}: cannot be read ({error.strerror}). Check the path.") from None
        return cls.from_bytes(data, str(path))
