"""Which conclusions of the paper hold on the data at hand: sentences computed from the results.

Every claim is the paper's, as far as it was run; the verdict follows from the sign of a difference
in every seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from fastfill.lab.results import ExperimentResults
from fastfill.lab.systems import CORRECTED, NO_MARGIN, NO_MARGIN_BY_HEAD, NO_MARGIN_RANDOM
from fastfill.lab.tables import gap_fraction, gap_reached
from fastfill.report import percent, points, title

HOLDS, PARTLY, FAILS = "holds", "holds in part", "does not hold"
BASELINES = {"BCT": ("BCT",), "RACT": ("RACT-entropy", "RACT-random"), "FCT": ("FCT",)}  # rows


@dataclass(frozen=True)
class Claim:
    """What the paper says, what was found here, and whether the one follows from the other."""

    paper: str
    found: str
    verdict: str

    def __str__(self) -> str:
        return f"{self.paper} **{self.verdict.capitalize()}** here: {self.found}."


def judge_claims(results: ExperimentResults) -> list[Claim]:
    """The claims that the paper makes with this experiment, judged by these results."""
    return CLAIMS[results.experiment.name](results)


def verdict(signs: Sequence[bool | None]) -> str:
    """One word for all comparisons of a claim; None: so on average, but not in every seed.

    >>> verdict([True, True]), verdict([True, False]), verdict([None]), verdict([False])
    ('holds', 'holds in part', 'holds in part', 'does not hold')
    """
    return HOLDS if all(signs) else FAILS if all(sign is False for sign in signs) else PARTLY


def sign(values: Sequence[float]) -> bool | None:
    """Whether all values, one per seed, are above 0; None where only their mean is."""
    return True if all(value > 0 for value in values) else None if fmean(values) > 0 else False


def beats(
    results: ExperimentResults, test: str, paper: str, pairs: Iterable[tuple[str, str]],
    metrics: Sequence[str] | None = None,
) -> list[Claim]:  # fmt: skip
    """The claim that in each pair the first system has more area than the second."""
    signs: list[bool | None] = []
    texts: list[str] = []
    measured = [*results.systems(test), "old/old", "new/new"]
    for a, b in pairs:
        if a not in measured or b not in measured:
            continue
        parts = []
        for metric in metrics or results.experiment.shows:
            leads = differences(results, test, a, b, metric)
            signs.append(sign(leads))
            ahead = sum(lead > 0 for lead in leads)
            note = "" if ahead in (0, len(leads)) else f" (ahead in {ahead} of {len(leads)} seeds)"
            parts.append(f"{points(fmean(leads))} {title(metric)}{note}")
        texts.append(f"{a} against {b} {', '.join(parts)}")
    return [Claim(paper, "; ".join(texts), verdict(signs))] if signs else []


def differences(results: ExperimentResults, test: str, a: str, b: str, metric: str) -> list[float]:
    """The area of one system less that of another, seed by seed."""
    return [
        x - y
        for x, y in zip(results.areas(test, a, metric), results.areas(test, b, metric), strict=True)
    ]


def _others(*names: str) -> list[tuple[str, str]]:
    return [("FastFill", name) for name in names]


def beats_baselines(
    results: ExperimentResults, test: str, names: Sequence[str], where: str = ""
) -> list[Claim]:
    """The claim that FastFill is better than those of the paper's baselines that were run."""
    rows = {name: [r for r in BASELINES[name] if r in results.systems(test)] for name in names}
    ran, missing = [name for name in names if rows[name]], [n for n in names if not rows[n]]
    pairs = _others(*(row for name in ran for row in rows[name]))
    claims = beats(results, test, f"{where}FastFill is better than {_listed(ran)}.", pairs)
    if missing:
        note = f"; {_listed(missing)} {'were' if len(missing) > 1 else 'was'} not run"
        claims = [replace(claim, found=claim.found + note) for claim in claims]
    return claims


def _listed(names: Sequence[str]) -> str:
    """
    >>> _listed(["BCT", "RACT", "FCT"]), _listed(["FCT"])
    ('BCT, RACT and FCT', 'FCT')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _main(results: ExperimentResults) -> list[Claim]:
    test = results.tests[0]
    claims = beats_baselines(results, test, tuple(BASELINES))
    claims += beats(results, test, "Its loss alone, in random order, is better than FCT.",
                   [("FastFill-random", "FCT")])  # fmt: skip
    claims += beats(results, test, "The order by σ is better than a random one.",
                   [("FastFill", "FastFill-random")])  # fmt: skip
    return claims + _near_oracle(results, test)


def _near_oracle(results: ExperimentResults, test: str) -> list[Claim]:
    """How much of what the cheating order gains over a random one σ gains too."""
    texts, signs = [], []
    for metric in results.experiment.shows:
        gain = fmean(differences(results, test, "FastFill", "FastFill-random", metric))
        most = fmean(differences(results, test, "FastFill-oracle", "FastFill-random", metric))
        if most < 0.001:
            texts.append(f"for {title(metric)} the oracle itself gains nothing")
            signs.append(False)
        else:
            texts.append(f"{100 * gain / most:.0f} % of the oracle's gain in {title(metric)}")
            signs.append(gain > 0.5 * most)
    paper = "The order by σ comes near the cheating order (more than half of its gain)."
    return [Claim(paper, ", ".join(texts), verdict(signs))]


def _ablation(results: ExperimentResults) -> list[Claim]:
    test = results.tests[0]
    full = "l2+disc+uncertainty, sigma"
    claims = beats(results, test, "Adding the discriminative loss to l2 helps, in random order.",
                  [("l2+disc, random", "l2, random")])  # fmt: skip
    effects = [
        fmean(differences(results, test, a, b, metric))
        for a, b in (("l2+uncertainty, random", "l2, random"),
                     ("l2+disc+uncertainty, random", "l2+disc, random"))
        for metric in results.experiment.shows
    ]  # fmt: skip
    claims.append(
        Claim(
            "Training with uncertainty changes little in random order (under one point).",
            f"the largest change is {points(max(effects, key=abs))} points",
            verdict([abs(effect) < 0.01 for effect in effects]),
        )
    )
    orders = [(full, "l2+disc+uncertainty, random"),
              ("l2+uncertainty, sigma", "l2+uncertainty, random")]  # fmt: skip
    claims += beats(results, test, "The order by σ is better than a random one.", orders)
    alone = [(full, "disc+uncertainty, sigma"), ("l2, random", "disc, random")]
    claims += beats(results, test, "The discriminative loss without l2 is poor.", alone, ["map"])
    return [*claims, _best(results, test, full)]


def _best(results: ExperimentResults, test: str, chosen: str) -> Claim:
    """The claim that a system has the most area of all that can be run."""
    others = [name for name in results.systems(test) if name not in (chosen, "FastFill-oracle")]
    texts, signs = [], []
    for metric in results.experiment.shows:
        leads = {name: differences(results, test, chosen, name, metric) for name in others}
        nearest = min(others, key=lambda name: fmean(leads[name]))
        signs.append(sign(leads[nearest]))
        behind = sum(fmean(lead) <= 0 for lead in leads.values())
        texts.append(
            f"{title(metric)} {points(fmean(leads[nearest]))} against the best other, {nearest}"
            + (f"; {behind} of {len(others)} are not below it" if behind else "")
        )
    paper = "FastFill is the best of all, also of orders by the head's confidence."
    return Claim(paper, "; ".join(texts), verdict(signs))


def _unseen(results: ExperimentResults) -> list[Claim]:
    heads = ("FastFill-entropy", "FastFill-margin", "FastFill-least-confidence")
    seen, unseen = results.tests[0], results.tests[1]
    claims = [
        claim
        for test in results.tests
        for claim in beats_baselines(
            results, test, ("RACT", "FCT"), f"On the test classes {test}, "
        )
    ]  # fmt: skip
    for test in (seen, unseen):
        paper = f"On the test classes {test}, σ is better than the head's confidence."
        claims += beats(results, test, paper, _others(*heads))
    return [*claims, _larger_lead(results, seen, unseen, heads)]


def _larger_lead(results: ExperimentResults, seen: str, unseen: str, heads: Sequence[str]) -> Claim:
    """σ's lead over the best order by the head; without a lead there is none that is larger."""
    texts: list[str] = []
    signs: list[bool | None] = []
    for metric in results.experiment.shows:
        known, unknown = (_least_lead(results, test, heads, metric) for test in (seen, unseen))
        larger = sign([b - a for a, b in zip(known, unknown, strict=True)])
        signs.append(larger if larger is False or sign(unknown) else None)
        texts.append(
            f"{title(metric)} {points(fmean(known))} on {seen}, "
            f"{points(fmean(unknown))} on {unseen}"
            + ("" if fmean(unknown) > 0 else ", where it is no lead")
        )
    paper = "σ's lead over the head's confidence is larger on classes never seen."
    return Claim(paper, "; ".join(texts), verdict(signs))


def _least_lead(
    results: ExperimentResults, test: str, heads: Sequence[str], metric: str
) -> list[float]:
    """FastFill's lead over the best of these systems, seed by seed."""
    return min((differences(results, test, "FastFill", head, metric) for head in heads), key=fmean)


def _side(results: ExperimentResults) -> list[Claim]:
    test = results.tests[0]
    return [
        *beats(results, test, "Side-information helps both methods.",
               [("FCT + side", "FCT"), ("FastFill + side", "FastFill")]),
        *beats(results, test, "With side-information, FastFill is still better than FCT.",
               [("FastFill + side", "FCT + side")]),
    ]  # fmt: skip


def _learning(results: ExperimentResults) -> list[Claim]:
    """Not the paper's: what a map that learns from the backfill brings."""
    test, best = results.tests[0], CORRECTED.name
    shares = [
        fmean(results.areas(test, best, metric)) / fmean(results.areas(test, "new/new", metric))
        for metric in results.experiment.shows
    ]
    return [
        *beats(results, test, "A map corrected on the way is better than FastFill, by σ or by the "
               "classifier's margin.", [(best, "FastFill"), (best, "FastFill-margin")]),
        Claim(
            "Its curve averages at least 97 % of what the new model gives.",
            ", ".join(f"{percent(share)} % of new/new in {title(metric)}"
                      for share, metric in zip(shares, results.experiment.shows, strict=True)),
            verdict([share >= 0.97 for share in shares]),
        ),
    ]  # fmt: skip


def _faces(results: ExperimentResults) -> list[Claim]:
    test = results.tests[0]
    heads = [f"{name}-{policy}" for name in ("FastFill", "FCT")
             for policy in ("entropy", "margin", "least-confidence")]  # fmt: skip
    return [
        *beats_baselines(results, test, ("RACT", "FCT"),
                         "On other identities than those trained on, "),
        *beats(results, test, "There σ is better than the head's confidence, on either map.",
               _others(*heads)),
        *beats(results, test, "Not the paper's: without the margin in L_disc, and in units of its "
               "scale, its loss alone is better than FCT, and σ better than a random order.",
               [(NO_MARGIN_RANDOM.name, "FCT"), (NO_MARGIN.name, NO_MARGIN_RANDOM.name)]),
        *beats(results, test, "Not the paper's: on that map σ is better than the head's "
               "confidence.", [(NO_MARGIN.name, one.name) for one in NO_MARGIN_BY_HEAD]),
    ]  # fmt: skip


def _flips(results: ExperimentResults) -> list[Claim]:
    """Flips are counted from each map's own 0 %, as in the paper."""
    test = results.tests[0]
    claims = []
    for kind, paper, way in (
        ("positive", "FastFill turns more queries right than FCT, early (up to 25 %).", 1),
        ("negative", "FastFill turns fewer queries wrong than FCT, all along.", -1),
    ):
        texts, signs = [], []
        for metric in results.experiment.shows:
            both = [
                [_mean_flips(r["tests"][test]["flips"][name][metric][kind], kind == "positive")
                 for r in results.per_seed]
                for name in ("FastFill", "FCT")
            ]  # fmt: skip
            signs.append(sign([way * (a - b) for a, b in zip(*both, strict=True)]))
            texts.append(
                f"{percent(fmean(both[0]))} % against {percent(fmean(both[1]))} % {title(metric)}"
            )
        claims.append(Claim(paper, ", ".join(texts) + " of the queries", verdict(signs)))
    return claims


def _mean_flips(values: Sequence[float], early: bool) -> float:
    """Mean along the curve, or along its first quarter."""
    return fmean(values[1 : (len(values) - 1) // 4 + 1] if early else values[1:])


def _sigma(results: ExperimentResults) -> list[Claim]:
    tables = [result["tests"][results.tests[0]]["kendall"] for result in results.per_seed]

    def tau(trained: str, loss: str) -> float:
        return fmean(table[f"{trained}, sigma"][loss] for table in tables)

    losses = list(tables[0]["l2, sigma"])  # l2 alone where the test classes are not the head's
    own = {loss: tau(loss, loss) for loss in losses}
    claims = [
        Claim(
            "σ² ranks the items by the loss it is trained on (τ of 0.62 to 0.73).",
            ", ".join(f"τ is {value:.2f} for {loss}" for loss, value in own.items()),
            verdict([value > 0.6 for value in own.values()]),
        )
    ]
    if "disc" in losses:
        crossed = {"l2": tau("l2", "disc"), "disc": tau("disc", "l2")}
        claims.append(
            Claim(
                "σ² follows the loss it is trained on more closely than the other one.",
                ", ".join(
                    f"trained on {loss} {own[loss]:.2f} against {value:.2f}"
                    for loss, value in crossed.items()
                ),
                verdict([own[loss] > value for loss, value in crossed.items()]),
            )
        )
    return claims


def _bias(results: ExperimentResults) -> list[Claim]:
    test = results.tests[0]
    groups = [result["tests"][test]["groups"] for result in results.per_seed]
    ends = [(gap_fraction(g, "FastFill"), gap_fraction(g, "FCT")) for g in groups]
    served = [fmean(g["FastFill"]["served"]["minority"][1:-1]) for g in groups]
    even = [fmean(g["FCT"]["served"]["minority"][1:-1]) for g in groups]
    return [
        *_gap_claims(groups),
        Claim(
            "FastFill reaches the new model's gap sooner than FCT in random order.",
            f"at {gap_reached(results, test, 'FastFill')} "
            f"against {gap_reached(results, test, 'FCT')}",
            verdict([a is not None and (b is None or a < b) for a, b in ends]),
        ),
        Claim(
            "FastFill backfills the minority first.",
            f"on average along the way {percent(fmean(served))} % of the minority is done, "
            f"{percent(fmean(even))} % in random order",
            verdict([sign([a - b for a, b in zip(served, even, strict=True)])]),
        ),
    ]


def _gap_claims(groups: Sequence[dict[str, Any]]) -> list[Claim]:
    """How far the minority is behind: with each model alone, and with the alignment alone."""
    old, new = (
        [g["plain"][model]["majority"] - g["plain"][model]["minority"] for g in groups]
        for model in ("old", "new")
    )
    start = [g["FastFill"]["gap"][0] for g in groups]
    return [
        Claim(
            "The old model is worse for the minority, the new one less so.",
            f"the minority is {_behind(old)} with the old model, {_behind(new)} with the new one",
            verdict([sign([a - max(b, 0) for a, b in zip(old, new, strict=True)])]),
        ),
        Claim(
            "The alignment alone makes the gap smaller.",
            f"{percent(fmean(start))} points at 0 %",
            verdict([sign([b - a for a, b in zip(start, old, strict=True)])]),
        ),
    ]


def _behind(gaps: Sequence[float]) -> str:
    """How far one group is behind the other.

    >>> _behind([0.22, 0.24]), _behind([-0.002])
    ('23.0 points behind', '0.2 points ahead')
    """
    gap = fmean(gaps)
    return f"{percent(abs(gap))} points {'behind' if gap > 0 else 'ahead'}"


CLAIMS: dict[str, Callable[[ExperimentResults], list[Claim]]] = {
    "main": _main,
    "architecture": _main,
    "top5": _main,
    "ablation": _ablation,
    "unseen": _unseen,
    "side-information": _side,
    "faces": _faces,
    "flips": _flips,
    "sigma": _sigma,
    "bias": _bias,
    "best": _learning,
}
