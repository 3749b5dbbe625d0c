"""`Alignment`: h and σ², learned from pairs, applied to old vectors, saved as data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align.artefact import fingerprint, pack, unpack
from fastfill.align.calibration import Calibration
from fastfill.align.fusion import Fusion
from fastfill.align.losses import Discriminative, Reduction
from fastfill.align.methods import METHODS
from fastfill.align.options import FitOptions, Report
from fastfill.align.pair_distance import PairDistance
from fastfill.align.penalty import KEY, Penalty, penalised
from fastfill.align.reference import Reference
from fastfill.align.scaling import Scaling
from fastfill.align.values import Aligned
from fastfill.errors import ArtefactError, FastFillError, FileError, ShapeError
from fastfill.features import Distance, Features, Ints, Matrix, Pairs, Source, as_matrix, replacing

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
        penalty: Penalty | None = None,
        reference: Reference | None = None,
        pair_distance: PairDistance | None = None,
        facts: dict[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.arrays = arrays
        self.scaling = scaling
        self.calibration = calibration
        self.side_dim = side_dim
        self.head = head  # (classes, d_new): the new model's classifier, for head-based orders
        self.penalty = penalty  # None: what is served is h
        self.reference = reference  # some of its pairs; None: it was made without
        self.pair_distance = pair_distance  # None: the error is that of the map's own score
        self._fusion: Fusion | None = None
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
        models: tuple[str, str] = ("old", "new"),
        penalty: float | None = None,
        epochs: int | None = None,
        batch: int | None = None,
        rate: float | None = None,
        weight_decay: float | None = None,
        reduction: Reduction = "mean",
        discriminative: Discriminative = "cross-entropy",
        smoothing: float = 0.1,
        lam: float = 1.0,
        diagonal: bool = False,
        pair_distance: bool | None = None,
        device: str | None = None,
        report: Report | None = None,
        setback: float | None = None,
    ) -> Alignment:
        """Learn h: old → new and its error from pairs.

        method: `auto` (the best on held-out pairs of ridge, procrustes, kernel and, with many pairs
        or a classifier, residual), one of these, or `paper`. loss: `l2`, `disc`, `l2+disc`, each
        with or without `+uncertainty`; by default all that the pairs allow: the discriminative
        term needs labels and the new model's classifier `head`. It is the loss that this was
        trained by, cross-entropy or arcface (`discriminative`, `smoothing`), or cosine: arcface
        without its margin and in units of its scale, for classes that the models do not know.

        distance: that of the gallery, under which maps are compared. models: the names of the old
        and the new model, kept in the artefact. penalty: the share of their predicted error by
        which aligned vectors are moved away from all queries, 0 (not at all) to 1 (see
        `fastfill.align.penalty`); by default none with `paper`, under inner products, where new
        vectors are of unit length, and where held-out pairs surely retrieve better without. Its
        former name is `setback`. pair_distance: may σ² use the distance of h from the pairs' new
        vectors (see `fastfill.align.pair_distance`)? By default it does where that helps on
        held-out pairs, except with `paper`, whose σ² is as published unless True is given.

        Networks are trained for so many `epochs`, in batches of `batch`, with the learning `rate`
        and `weight_decay`, on the `device` (cpu, cuda); by default as the method has it. The l2
        term is the mean or sum over dimensions (`reduction`), `lam` is λ of the paper's equations
        4 and 5, `diagonal` learns one σ² per dimension. `report` is called after each epoch with
        its number, that of all epochs and the loss.
        """
        from fastfill.align.fitting import fit_alignment

        options = FitOptions(
            method, loss, seed, setback if penalty is None else penalty, epochs, batch, rate,
            weight_decay, reduction, discriminative, smoothing, lam, diagonal, pair_distance,
            device, report,
        )  # fmt: skip
        return fit_alignment(pairs, options, head=head, distance=distance, models=models)

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
            h, score = METHODS[self.method].apply(self.arrays, inputs)
            vectors[rows] = self.scaling.outputs(h)
            variance[rows] = self.predicted_errors(score, vectors[rows])
        return self.penalised(vectors, variance)

    def predicted_errors(
        self, score: NDArray[np.float32], h: Matrix, pairs: Ints | None = None
    ) -> NDArray[np.float32]:
        """σ² of estimates h from the map's scores of them; `pairs`: which pairs they are, if any.

        A pair's own new vector is not looked at, as if the pair had not been learned from.
        """
        if self.pair_distance is not None:
            score = self.pair_distance.scores(score, h, pairs)
        return self.calibration(score)

    def penalised(self, h: Matrix, variance: NDArray[np.float32]) -> Aligned:
        """What is served of the estimates h: moved away from queries by their error."""
        return penalised(self.penalty, h, variance, self.head)

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
    def fusion(self) -> Fusion | None:
        """How the old model's scores are used beside those on aligned vectors.

        Learned from its reference pairs; set one that was learned with queries in its place.
        """
        if self._fusion is None and self.reference is not None:
            self._fusion = Fusion.learn(self.reference, distance=self.distance)
        return self._fusion

    @fusion.setter
    def fusion(self, fusion: Fusion) -> None:
        self._fusion = fusion

    @property
    def fingerprint(self) -> str:
        """Changes whenever the map changes."""
        facts = repr(sorted(self.scaling.to_json().items()))
        if self.penalty is not None:
            facts += repr(sorted(self.penalty.to_json().items()))
        return fingerprint(self.all_arrays(), facts)

    def __repr__(self) -> str:
        pairs = f"{self.facts.get('pairs', 0):,} pairs"
        return f"Alignment({self.method}, {self.old_dim}→{self.new_dim}, {self.distance}, {pairs})"

    def all_arrays(self) -> dict[str, Matrix]:
        """The map's arrays, the classifier, the penalty's direction and the sample of pairs."""
        direction = None if self.penalty is None else self.penalty.direction
        more = {"head": self.head, KEY: direction}
        if self.pair_distance is not None:
            more |= self.pair_distance.arrays()
        return self.arrays | {name: array for name, array in more.items() if array is not None}

    def document(self) -> dict[str, Any]:
        """Everything but the arrays, as plain values."""
        c, near = self.calibration, self.pair_distance
        return {
            "method": self.method,
            "scaling": self.scaling.to_json(),
            "calibration": {"offset": c.offset, "slope": c.slope, "bound": c.bound},
            "side_dim": self.side_dim,
            **({} if near is None else {"pair_distance": near.to_json()}),
            KEY: None if self.penalty is None else self.penalty.to_json(),
            "facts": self.facts,
        }

    def to_bytes(self) -> bytes:
        """The artefact as bytes, for a store to keep."""
        return self._packed(self.all_arrays(), self.document())

    def _packed(self, arrays: dict[str, Matrix], document: dict[str, Any]) -> bytes:
        """With the reference pairs and what the fusion has learned from them."""
        if self.reference is not None and self.fusion is not None:
            arrays = arrays | self.reference.arrays()
            document = {**document, "fusion": self.fusion.document()}
        return pack(arrays, document)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "alignment") -> Alignment:
        """Read an artefact; nothing in it is executed."""
        arrays, document = unpack(data, name)
        try:
            reference = Reference.from_arrays(arrays)
            alignment = forms.get(document["method"], cls.from_parts)(arrays, document)
            alignment._try()
            if reference is not None:
                alignment.reference = reference
                alignment.fusion = Fusion.from_parts(
                    reference.old, reference.new, document["fusion"]
                )
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
        if document["method"] not in METHODS:
            raise KeyError(document["method"])
        arrays = dict(arrays)
        head, direction = arrays.pop("head", None), arrays.pop(KEY, None)
        near = PairDistance.from_parts(arrays, document.get("pair_distance", {}))
        return Alignment(
            document["method"],
            arrays,
            Scaling(**document["scaling"]),
            Calibration(**document["calibration"]),
            side_dim=int(document["side_dim"]),
            head=head,
            penalty=None if direction is None else Penalty(direction, **document[KEY]),
            pair_distance=near,
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
