"""python -m benchmarks.lab_reasons

Why some conclusions of the paper do not hold, or hold in part, on CIFAR-100, as far as that can be
measured without training a model again: from features of CIFAR-100 (residual maps of all pairs for
known classes, of 4,000 pairs on the unit sphere for classes that no model knows, of 5,000 pairs for
side-information) and from the laboratory's results (`benchmarks/results/lab`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.shared.paths import DATA
from benchmarks.shared.scenarios import Scenario, cifar100, data_folder
from benchmarks.shared.sections import write_section
from fastfill.align import Aligned, Alignment
from fastfill.evaluate import backfill_curves, true_losses
from fastfill.features import Array, Features, Ints, Matrix, Pairs, normalised
from fastfill.metrics import kendall_tau
from fastfill.order import Order, PolicyInput, arrange

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ("features",)

LAB = DATA / "lab" / "cifar100"
PAIRS, EPOCHS = 4_000, 8  # of the map on the unit sphere
KNOWN = 50  # classes of the new model
SEEDS = 3  # of noisy orders and of random ones
WITHIN = 0.01  # of its level with the new model: a group has arrived
SIDE_PAIRS, SIDE_SEEDS = 5_000, 2
NOISES = {"none": None, "weak": 4.0, "stronger": 2.0}  # of the side-information, in its deviations


@dataclass(frozen=True, eq=False)
class Half:
    """A gallery of which one half is new: who answers first, and how well."""

    top1: float
    new_answers: float  # share of the queries whose first answer is new
    right_if_new: float
    right_if_aligned: float

    @classmethod
    def of(cls, aligned: Matrix, new: Matrix, labels: Ints, done: Ints) -> Half:
        """The new half is `done`; queries are all new vectors, each without itself."""
        is_new = np.zeros(len(new), bool)
        is_new[done] = True
        gallery = np.where(is_new[:, None], new, aligned)
        squares = np.square(gallery).sum(1)[None] - 2 * new @ gallery.T  # (n, n), less ‖q‖²
        np.fill_diagonal(squares, np.inf)
        first = squares.argmin(1)
        right = labels[first] == labels
        by_new = is_new[first]
        return cls(
            float(right.mean()),
            float(by_new.mean()),
            float(right[by_new].mean()),
            float(right[~by_new].mean()),
        )


def known_classes(scenario: Scenario) -> str:
    """What the τ of an order is worth: σ², the head's confidence, and orders of the same τ."""
    fitted = Alignment.fit(
        scenario.pairs, method="residual", loss="l2+disc+uncertainty", head=scenario.head,
        device="cpu", penalty=0.0,
    )  # fmt: skip
    aligned = fitted(scenario.old)
    losses = true_losses(aligned.vectors, scenario.new, scenario.labels, scenario.head)
    inputs = PolicyInput(
        aligned, head=scenario.head, new=scenario.new, labels=scenario.labels, seed=0
    )
    orders = {name: arrange(name, inputs, evaluating=True) for name in ("sigma", "entropy")}
    truth = losses["l2+disc"]
    tau = kendall_tau(aligned.variance, truth)
    areas = {"oracle, l2+disc": [_areas(scenario, aligned, Order.by_score(truth))]}
    areas["random"] = [_areas(scenario, aligned, _shuffled(len(truth), s)) for s in range(SEEDS)]
    noisy = [_noisy(truth, tau, seed) for seed in range(SEEDS)]
    areas["oracle, with noise to the τ of σ²"] = [
        _areas(scenario, aligned, Order.by_score(scores)) for scores in noisy
    ]
    areas |= {name: [_areas(scenario, aligned, order)] for name, order in orders.items()}
    taus: dict[str, Mapping[str, float]] = {
        "sigma": _taus(aligned.variance, losses),
        "entropy": _taus(_scores(orders["entropy"]), losses),
        "oracle, with noise to the τ of σ²": _taus(noisy[0], losses),
        "oracle, l2+disc": _taus(truth, losses),
    }
    return _order_table(areas, taus)


def _scores(order: Order) -> Array:
    return -order.ranks.astype(np.float32)


def _shuffled(count: int, seed: int) -> Order:
    return Order(np.random.default_rng(seed).permutation(count))


def _taus(scores: Array, losses: Mapping[str, Array]) -> dict[str, float]:
    return {name: kendall_tau(scores, values) for name, values in losses.items()}


def _noisy(truth: Array, tau: float, seed: int) -> Array:
    """Normal scores of the truth with independent noise, so that its τ is this one."""
    from scipy.stats import norm

    ranks = Order.by_score(-truth).ranks
    normal = norm.ppf((ranks + 0.5) / len(truth))
    share = np.sin(np.pi * tau / 2)  # correlation of two normal variables of that τ
    noise = np.random.default_rng(seed).normal(size=len(truth))
    return np.asarray(share * normal + np.sqrt(1 - share**2) * noise)


def _areas(scenario: Scenario, aligned: Aligned, order: Order) -> dict[str, float]:
    curves = backfill_curves(
        aligned, scenario.new, scenario.labels, policy=order, metrics=("cmc@1", "map"), points=11
    )
    return {name: curve.area for name, curve in curves.items()}


def _order_table(
    areas: Mapping[str, list[dict[str, float]]], taus: Mapping[str, Mapping[str, float]]
) -> str:
    lines = [
        "| order | τ with l2 | disc | l2+disc | top-1 | mAP | of the oracle's gain in mAP |",
        "| :-- | --: | --: | --: | --: | --: | --: |",
    ]
    means = {
        name: {metric: fmean(run[metric] for run in runs) for metric in ("cmc@1", "map")}
        for name, runs in areas.items()
    }
    low, high = means["random"]["map"], means["oracle, l2+disc"]["map"]
    for name in ("random", *taus):
        row = taus.get(name, {})
        cells = [f"{row[key]:.2f}" if row else "" for key in ("l2", "disc", "l2+disc")]
        cells += [f"{100 * means[name][metric]:.1f}" for metric in ("cmc@1", "map")]
        cells.append(f"{100 * (means[name]['map'] - low) / (high - low):.0f} %")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def unknown_classes(scenario: Scenario) -> str:
    """Who answers in a gallery that is half new, by order, on classes known and not known."""
    rows = np.random.default_rng(0).permutation(len(scenario.pairs))[:PAIRS]
    chosen = scenario.pairs.take(rows)
    pairs = Pairs(
        Features(_unit(chosen.old.vectors)),
        Features(_unit(chosen.new.vectors), labels=chosen.labels),
    )
    fitted = Alignment.fit(
        pairs, method="residual", loss="l2+disc+uncertainty", epochs=EPOCHS, head=scenario.head,
        discriminative="cosine", device="cpu", penalty=0.0,
    )  # fmt: skip
    lines = [
        "| classes | new half | top-1 | first answer is new | right if new | if aligned |",
        "| :-- | :-- | --: | --: | --: | --: |",
    ]
    known = scenario.labels < KNOWN
    for classes, of in (("known", known), ("not known", ~known)):
        part = scenario.among(of, "C")
        aligned, new = fitted(_unit(part.old)), _unit(part.new)
        errors = np.square(aligned.vectors - new).sum(1)
        random = np.random.default_rng(1).permutation(len(new))
        orders = {
            "at random": random,
            "by σ²": np.argsort(-aligned.variance),
            "worst aligned": np.argsort(-errors),
            "best aligned": np.argsort(errors),
        }
        for name, order in orders.items():
            half = Half.of(aligned.vectors, new, part.labels, order[: len(new) // 2])
            shares = (half.top1, half.new_answers, half.right_if_new, half.right_if_aligned)
            cells = " | ".join(f"{100 * share:.1f}" for share in shares)
            lines.append(f"| {classes} | {name} | {cells} |")
    return "\n".join(lines)


def _unit(vectors: Matrix) -> Matrix:
    return normalised(vectors + np.float32(1e-6), "features")


def side_information(scenario: Scenario) -> str:
    """What an order is worth, and what σ² knows, with side-information and without.

    One half of the test images is the gallery; the other has pairs that no model was trained on.
    """
    lines = [
        "| pairs from | side-information | l2 | its spread | L_disc | τ of σ² | random order, mAP "
        "| the oracle gains | σ gains | its share |",
        "| :-- | :-- | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for images in ("training", "test"):
        for name, noise in NOISES.items():
            runs = [_with_side(scenario, images, noise, seed) for seed in range(SIDE_SEEDS)]
            l2, spread, disc, tau, random, oracle, sigma = np.mean(runs, axis=0)
            lines.append(
                f"| {images} images | {name} | {l2:.1f} | {spread:.2f} | {disc:.2f} | {tau:.2f} "
                f"| {100 * random:.1f} | {100 * (oracle - random):+.1f} "
                f"| {100 * (sigma - random):+.1f} "
                f"| {100 * (sigma - random) / (oracle - random):.0f} % |"
            )
    return "\n".join(lines)


def _with_side(
    scenario: Scenario, images: str, noise: float | None, seed: int
) -> tuple[float, ...]:
    """Mean l2, its deviation in means, mean L_disc, τ of σ², and mAP by three orders."""
    rng = np.random.default_rng([seed, 3])
    drawn, shown = np.split(rng.permutation(len(scenario.labels)), [SIDE_PAIRS])
    rows = rng.permutation(len(scenario.pairs))[:SIDE_PAIRS]
    train, test = (None, None) if noise is None else _side_features(noise, seed)
    if images == "training":
        pairs, side = scenario.pairs.take(rows), None if train is None else train[rows]
    else:
        part = scenario.among(np.isin(np.arange(len(scenario.labels)), drawn), "A")
        pairs = Pairs(Features(part.old), Features(part.new, labels=part.labels))
        side = None if test is None else test[np.sort(drawn)]
    fitted = Alignment.fit(
        Pairs(pairs.old, pairs.new, side), method="residual", loss="l2+disc+uncertainty",
        head=scenario.head, epochs=EPOCHS, seed=seed, device="cpu", penalty=0.0,
        pair_distance=False,
    )  # fmt: skip
    gallery = scenario.among(np.isin(np.arange(len(scenario.labels)), shown), "A")
    aligned = fitted(gallery.old, None if test is None else test[np.sort(shown)])
    losses = true_losses(aligned.vectors, gallery.new, gallery.labels, scenario.head)
    l2, truth = losses["l2"], losses["l2+disc"]
    orders = (_shuffled(len(truth), seed), Order.by_score(truth), Order.by_score(aligned.variance))
    areas = [_areas(gallery, aligned, order)["map"] for order in orders]
    tau = kendall_tau(aligned.variance, truth)
    spread = float(l2.std() / l2.mean())
    return (float(l2.mean()), spread, float(losses["disc"].mean()), tau, *areas)


def _side_features(noise: float, seed: int) -> tuple[Matrix, Matrix]:
    """ResNet-18's features of all training and test images under noise, so that they say little."""
    model = np.load(data_folder() / "features" / "cifar100_resnet18_100classes.npz")
    train, test = (model[part].astype(np.float32) for part in ("train", "test"))
    scale, rng = noise * test.std(0).mean(), np.random.default_rng([seed, 5])
    noisy = [x + scale * rng.normal(size=x.shape) for x in (train, test)]
    return noisy[0].astype(np.float32), noisy[1].astype(np.float32)


def biased() -> str:
    """Top-1 of both groups on the way, and when each arrives at its level with the new model."""
    lines = [
        "| system | minority at 0 / 25 / 50 / 75 / 100 % | within a point of the new model from | "
        "majority at 0 / 25 / 50 / 75 / 100 % | within a point from |",
        "| :-- | --: | --: | --: | --: |",
    ]
    runs = [_read(path)["tests"]["all"]["groups"] for path in sorted(LAB.glob("bias-seed*.json"))]
    for name in ("FCT", "FastFill-random", "FastFill", "FastFill-oracle"):
        cells = []
        for group in ("minority", "majority"):
            values = np.mean([run[name]["top1"][group] for run in runs], axis=0)  # (points,)
            at = [f"{100 * values[i]:.1f}" for i in range(0, len(values), (len(values) - 1) // 4)]
            reached = np.flatnonzero(values >= values[-1] - WITHIN)[0] / (len(values) - 1)
            cells += [" / ".join(at), f"{100 * reached:.0f} %"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def flipped() -> str:
    """Negative flips of each seed, of all queries and of those that were right at 0 %."""
    lines = [
        "| metric | seed | turned wrong, FCT | FastFill | of those right at 0 %, FCT | FastFill |",
        "| :-- | --: | --: | --: | --: | --: |",
    ]
    for metric, title in (("cmc@1", "top-1"), ("cmc@5", "top-5")):
        for path in sorted(LAB.glob("flips-seed*.json")):
            result = _read(path)
            test = result["tests"]["all"]
            lost, shares = [], []
            for name in ("FCT", "FastFill"):
                mean = fmean(test["flips"][name][metric]["negative"][1:])
                right = test["systems"][name]["curves"][metric]["values"][0]
                lost.append(f"{100 * mean:.2f} %")
                shares.append(f"{100 * mean / right:.2f} %")
            lines.append(f"| {title} | {result['seed']} | {' | '.join([*lost, *shares])} |")
    return "\n".join(lines)


def main_by_seeds() -> str:
    """What the claims of `main` rest on, seed by seed: `ablation` has its rows in every seed."""
    lines = [
        "| metric | seed | FCT | FastFill, random | FastFill | oracle | new/new | gap closed | "
        "of the oracle's gain |",
        "| :-- | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    names = ("l2, random", "l2+disc+uncertainty, random", "l2+disc+uncertainty, sigma")
    for metric, title in (("cmc@1", "top-1"), ("cmc@5", "top-5"), ("map", "mAP")):
        for path in sorted(LAB.glob("ablation-seed*.json")):
            result = _read(path)
            test = result["tests"]["all"]
            levels = [
                test["systems"][name]["curves"][metric]["area"]
                for name in (*names, "FastFill-oracle")
            ]
            levels.append(test["plain"]["new/new"][metric])
            fct, random, sigma, oracle, new = levels
            cells = [f"{100 * level:.1f}" for level in levels]
            cells += [f"{100 * (sigma - fct) / (new - fct):.0f} %",
                      f"{100 * (sigma - random) / (oracle - random):.0f} %"]  # fmt: skip
            lines.append(f"| {title} | {result['seed']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def starts_of_faces() -> str:
    """Before the backfill, identities that no model knows."""
    names = ("FCT", "FastFill", "No margin, random")
    lines = ["| metric | seed | FCT | FastFill | no margin |", "| :-- | --: | --: | --: | --: |"]
    for metric, title in (("cmc@1", "top-1"), ("map", "mAP")):
        for path in sorted(LAB.glob("faces-seed*.json")):
            result = _read(path)
            systems = result["tests"]["[50:]"]["systems"]
            starts = [systems[name]["curves"][metric]["values"][0] for name in names]
            cells = " | ".join(f"{100 * start:.1f}" for start in starts)
            lines.append(f"| {title} | {result['seed']} | {cells} |")
    return "\n".join(lines)


def _read(path: Any) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


PARTS = {
    "**The claims of `main` in three seeds**, by the same rows of `ablation` (without BCT and "
    "RACT): areas, and the share of σ in the oracle's gain.": main_by_seeds,
    "**What τ is worth** (upgrade A, classes that the new head knows). Areas of 11 points. The "
    "order with noise is the oracle's, mixed with independent noise until its τ is that of σ².": (
        lambda: known_classes(cifar100("A"))
    ),
    "**Who answers when half is new** (upgrade C on the unit sphere, L_disc without margin), in "
    "per cent of the queries.": lambda: unknown_classes(cifar100("C")),
    "**What side-information leaves to an order** (upgrade A, residual maps of 5,000 pairs, the "
    "other half of the test images as gallery, two seeds). The side-information is ResNet-18's "
    "features under noise of four and of two of their standard deviations. l2 and L_disc are means "
    "over the gallery, the spread of l2 is its standard deviation over its mean, τ is that with "
    "l2+disc.": lambda: side_information(cifar100("A")),
    "**`faces` at 0 %**, in per cent: FastFill with ArcFace's margin, and without.": (
        starts_of_faces
    ),
    "**Both groups of `bias` on the way**, top-1 in per cent, mean of the seeds.": biased,
    "**Queries that turned wrong in `flips`**, mean along the curve.": flipped,
}


def main() -> None:
    """Measure part by part."""
    texts = []
    for heading, measure in PARTS.items():
        texts.append(f"{heading}\n\n{measure()}")
        print(texts[-1], flush=True)
    write_section(
        "Why conclusions of the paper do not hold on CIFAR-100",
        "python -m benchmarks.lab_reasons",
        "\n\n".join(texts),
    )


if __name__ == "__main__":
    main()
