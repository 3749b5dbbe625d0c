"""`fastfill curve --refit`: candidates whose map is learned again along the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastfill.cli import evaluation
from fastfill.cli.evaluation import EvaluationOptions
from fastfill.cli.servings import serving_option

if TYPE_CHECKING:
    from fastfill.align import Alignment
    from fastfill.evaluate import RefitCandidate, Setting

PAIRS = 0.05  # of the gallery, where no number is given


def refit_candidates(
    policies: str | None,
    pairs: int | None,
    alignment: Alignment | None,
    setting: Setting,
    options: EvaluationOptions,
) -> list[RefitCandidate]:
    """One for each policy; an alignment says by which method maps are learned."""
    from fastfill.align import MIN_PAIRS, FitOptions
    from fastfill.evaluate import RefitCandidate, Refits, serving_names

    items = len(setting.new)
    head = evaluation.matrix(options.head)
    shown = None if options.shown is None else evaluation.numbers(options.shown, "shown", items)
    fit = None if alignment is None else FitOptions(method=alignment.method)
    refits = Refits(pairs or max(MIN_PAIRS, round(PAIRS * items)), fit)
    names = evaluation.policies(policies or "mixed")
    evaluation.check_policies(names, predicts=True)
    served = serving_names(names, serving_option(options.serving, setting, fused=True))
    return [
        RefitCandidate(policy, refits, ways, head, shown)
        for policy, ways in zip(names, served, strict=True)
        if ways
    ]
