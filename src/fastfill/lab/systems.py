"""The rows of the paper's tables as data: which new model, which map, which order."""

from __future__ import annotations

from dataclasses import dataclass

from fastfill.align.losses import Discriminative

FASTFILL_LOSS = "l2+disc+uncertainty"
FASTFILL_NAMES = ("FastFill", "l2+disc+uncertainty, sigma")  # one system, in two tables
BASELINE_NAMES = ("FCT", "l2, random")  # FCT in random order, likewise


@dataclass(frozen=True)
class System:
    """One way to upgrade: a new model, a map (or none) and a backfilling order."""

    name: str
    loss: str | None  # of the map; None: the old vectors stay as they are
    policy: str
    model: str = "new"  # or 'bct', 'ract': trained to be compatible
    side: bool = False
    disc: Discriminative | None = None  # L_disc; None: the loss that the new model is trained by
    learns: bool = False  # corrected by a pilot of the gallery, and again by what was backfilled

    @property
    def uses(self) -> str:
        """Which information it may use beside the pairs, shown in every table."""
        sources = []
        if self.model == "bct":
            sources.append("labels and the old head, in training the new model")
        if self.model == "ract":
            sources.append("labels and old features, in training the new model")
        if self.loss is not None and "disc" in self.loss:
            sources.append("labels, head")
        elif self.policy in ("entropy", "margin", "least-confidence"):
            sources.append("head")
        if self.side:
            sources.append("side-information")
        if self.learns:
            sources.append("a pilot of 3 % of the gallery and what was backfilled")
        if self.policy == "oracle":
            sources.append("the new gallery (cheating)")
        return "; ".join(sources) or ("nothing" if self.loss is None else "pairs only")


NO_MAP = System("No map", None, "random")
BCT = System("BCT", None, "random", model="bct")
RACT = System("RACT-entropy", None, "entropy", model="ract")
RACT_RANDOM = System("RACT-random", None, "random", model="ract")
FCT = System("FCT", "l2", "random")
FASTFILL = System("FastFill", FASTFILL_LOSS, "sigma")
FASTFILL_RANDOM = System("FastFill-random", FASTFILL_LOSS, "random")
FASTFILL_ORACLE = System("FastFill-oracle", FASTFILL_LOSS, "oracle")

MAIN = (NO_MAP, BCT, RACT, RACT_RANDOM, FCT, FASTFILL_RANDOM, FASTFILL, FASTFILL_ORACLE)

BY_HEAD = tuple(
    System(f"{name}-{policy}", loss, policy)
    for name, loss in (("FastFill", FASTFILL_LOSS), ("FCT", "l2"))
    for policy in ("entropy", "margin", "least-confidence")
)

ABLATION = (
    System("l2, random", "l2", "random"),
    System("disc, random", "disc", "random"),
    System("l2+disc, random", "l2+disc", "random"),
    System("l2+uncertainty, random", "l2+uncertainty", "random"),
    System("l2+disc+uncertainty, random", FASTFILL_LOSS, "random"),
    System("l2+uncertainty, sigma", "l2+uncertainty", "sigma"),
    System("disc+uncertainty, sigma", "disc+uncertainty", "sigma"),
    System("l2+disc+uncertainty, sigma", FASTFILL_LOSS, "sigma"),
    *BY_HEAD,
    FASTFILL_ORACLE,
)

# Beyond the paper. The order is that of the classifier's margin on the corrected vectors.
CORRECTED = System("FastFill, corrected on the way", FASTFILL_LOSS, "margin", learns=True)
BEST = (FCT, FASTFILL, BY_HEAD[1], CORRECTED, FASTFILL_ORACLE)

SIDE = (
    FCT,
    FASTFILL,
    System("FCT + side", "l2", "random", side=True),
    System("FastFill-random + side", FASTFILL_LOSS, "random", side=True),
    System("FastFill + side", FASTFILL_LOSS, "sigma", side=True),
)

UNSEEN = (NO_MAP, BCT, RACT, FCT, FASTFILL_RANDOM, FASTFILL, *BY_HEAD[:3], FASTFILL_ORACLE)

# Beyond the paper: ArcFace's margin asks a map for more than the new vectors give.
NO_MARGIN_RANDOM = System("No margin, random", FASTFILL_LOSS, "random", disc="cosine")
NO_MARGIN = System("No margin, sigma", FASTFILL_LOSS, "sigma", disc="cosine")
NO_MARGIN_BY_HEAD = tuple(
    System(f"No margin, {policy}", FASTFILL_LOSS, policy, disc="cosine")
    for policy in ("entropy", "margin", "least-confidence")
)

FACES = (
    NO_MAP, RACT, RACT_RANDOM, FCT, FASTFILL_RANDOM, FASTFILL, *BY_HEAD, NO_MARGIN_RANDOM,
    NO_MARGIN, *NO_MARGIN_BY_HEAD, FASTFILL_ORACLE,
)  # fmt: skip

SIGMA = tuple(
    System(f"{loss}, sigma", f"{loss}+uncertainty", "sigma") for loss in ("l2", "disc", "l2+disc")
)

BIAS = (FCT, FASTFILL_RANDOM, FASTFILL, FASTFILL_ORACLE)
