"""A map as an estimator of scikit-learn: `AlignmentRegressor`.

It fits into pipelines, searches over parameters and cross-validation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align import MIN_PAIRS, Aligned, Alignment, fit_few
from fastfill.errors import InputError, MissingExtraError
from fastfill.features import Distance, Features, Pairs

try:
    from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtraError("scikit-learn", "sklearn", "AlignmentRegressor") from error

Vectors = NDArray[np.float32]


class AlignmentRegressor(TransformerMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Learn a map from old to new vectors of the same items: `fit(old, new)`.

    `predict` estimates the new vectors, `predict_variance` the squared error of each estimate, and
    `transform` gives the vectors to put into a gallery, which may have a distance penalty. The
    parameters are those of `Alignment.fit`; the fitted map is `alignment_`. From fewer than 20
    different new vectors a plain ridge map is learned, whatever the parameters say: of so few
    none can be held out to compare methods on.

    >>> rng = np.random.default_rng(0)
    >>> old = rng.normal(size=(300, 8))
    >>> model = AlignmentRegressor(method="ridge").fit(old, old[:, ::-1] * 2)
    >>> round(model.score(old, old[:, ::-1] * 2), 2)
    1.0
    """

    def __init__(
        self,
        *,
        method: str = "auto",
        loss: str | None = None,
        distance: Distance = "l2",
        penalty: float | None = None,
        epochs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.method = method
        self.loss = loss
        self.distance = distance
        self.penalty = penalty
        self.epochs = epochs
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> AlignmentRegressor:
        """Learn from old vectors X (n, d_old) and new vectors y (n, d_new) of the same items."""
        old, new = validate_data(self, X, y, multi_output=True, y_numeric=True)
        self._one_target = new.ndim == 1
        new = np.asarray(new, dtype=np.float64).reshape(len(new), -1)
        if len(new) < 2:
            raise InputError("n_samples = 1: a map is learned from 2 pairs or more.")
        self.alignment_ = self._learned(Pairs(Features(old), Features(new)))
        return self

    def _learned(self, pairs: Pairs) -> Alignment:
        if len(np.unique(pairs.new.vectors, axis=0)) < MIN_PAIRS:
            return fit_few(pairs, distance=self.distance, seed=self.random_state)
        return Alignment.fit(
            pairs,
            method=self.method,
            loss=self.loss,
            distance=self.distance,
            penalty=self.penalty,
            epochs=self.epochs,
            seed=self.random_state,
        )

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Estimates of the new vectors, (n, d_new), or (n,) after a fit to one target."""
        h = self._aligned(X).h.astype(np.float64)  # as scikit-learn expects of regressors
        return h[:, 0] if self._one_target else h

    def predict_variance(self, X: ArrayLike) -> Vectors:
        """The predicted squared error of each estimate, (n,)."""
        return self._aligned(X).variance

    def transform(self, X: ArrayLike) -> Vectors:
        """The vectors to serve, (n, d_new)."""
        return self._aligned(X).vectors

    def _aligned(self, X: ArrayLike) -> Aligned:
        check_is_fitted(self)
        return self.alignment_(validate_data(self, X, reset=False))

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn must know: vectors are float32, as everywhere in this library.

        The same rows and seed give the same bits. The last bit of a row depends on how many rows
        are mapped together, so `check_methods_subset_invariance`, which asks for seven digits of
        float64, may fail.
        """
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        tags.target_tags.multi_output = True
        return tags
