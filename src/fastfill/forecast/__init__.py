"""The backfilling curve of a gallery, predicted from its pairs, with a confidence band."""

from fastfill.forecast.forecast import Forecast, Reached
from fastfill.forecast.rehearsal import Rehearsal

__all__ = ["Forecast", "Reached", "Rehearsal"]
