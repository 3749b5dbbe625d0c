"""Policies: a score per item, the highest backfilled first. `POLICIES` holds them by name.

| name               | backfills first                                         | needs             |
| ------------------ | ------------------------------------------------------- | ----------------- |
| `random`           | any                                                     |                   |
| `sigma`            | what the map predicts to be worst aligned (the paper)   |                   |
| `mixed`            | two of three by sigma, one of three at random           |                   |
| `novelty`          | what is farthest from every known pair in the old space | old, pairs_old    |
| `entropy`          | what the new head is least sure of: entropy of classes  | head              |
| `margin`           | … smallest lead of the first class over the second      | head              |
| `least-confidence` | … smallest probability of the first class               | head              |
| `oracle`           | what *is* worst aligned: the paper's cheating order     | new; labels, head |
| `traffic:POLICY`   | any of these, weighted by how often an item is shown    | shown             |

All scores are at least 0, so that traffic can weigh them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastfill.align.heads import log_probabilities, small_margin
from fastfill.errors import OrderError, unknown_choice
from fastfill.features import Matrix, check_rows, normalised
from fastfill.order.losses import l2_disc_loss, l2_loss
from fastfill.order.values import Order, PolicyInput

Scores = NDArray[np.float64]
Policy = Callable[[PolicyInput], Scores]

AT_RANDOM = 1 / 3  # share of the items that the policy `mixed` takes at random
TRAFFIC = "traffic:"
THROUGH_HEAD = ("entropy", "margin", "least-confidence")
ORACLE = (
    "The policy 'oracle' looks at the new vectors, which only exist once everything is "
    "backfilled: it is for evaluation alone. Use 'sigma' or 'novelty' to change a gallery."
)
_BLOCK = 1 << 24  # numbers in a temporary matrix: bounds the memory of a policy


def arrange(policy: str | Policy, inputs: PolicyInput, *, evaluating: bool = False) -> Order:
    """The order that a policy gives, by its name or of your own making: a function to scores.

    The oracle is only for where nothing but a figure depends on it.

    >>> from fastfill.align import Aligned
    >>> aligned = Aligned(np.zeros((3, 2), np.float32), np.float32([0.1, 0.9, 0.5]))
    >>> arrange("sigma", PolicyInput(aligned)).positions
    array([1, 2, 0])
    >>> arrange(lambda inputs: -inputs.aligned.variance, PolicyInput(aligned)).positions
    array([0, 2, 1])
    """
    if callable(policy):
        scores, name = np.asarray(policy(inputs)), policy_name(policy)
        if scores.ndim != 1 or scores.dtype.kind not in "fiub":
            raise OrderError(
                f"{name}: expected one number for each of {len(inputs):,} items, got "
                f"{scores.dtype} of shape {scores.shape}."
            )
        check_rows(len(scores), len(inputs), f"scores of {name}")
        return Order.by_score(scores, name=name)
    base = check_policy(policy)
    if base == "oracle" and not evaluating:
        raise OrderError(ORACLE)
    scores = POLICIES[base](inputs)
    if policy != base:
        scores = scores * (1 + _shown(inputs))
    return Order.by_score(scores, name=policy)


def check_live_policy(policy: str, *, head: bool) -> None:
    """Refuse a policy that cannot change a gallery, before any work is done for it.

    `head`: is the new model's classifier known?

    >>> check_live_policy("sigma", head=False)
    >>> check_live_policy("entropy", head=False)
    Traceback (most recent call last):
    ...
    fastfill.errors.OrderError: The policy 'entropy' needs the new model's classifier (head): ...
    """
    check_policy(policy)
    if policy == "oracle":
        raise OrderError(ORACLE)
    if policy.startswith(TRAFFIC):
        raise OrderError(
            f"The policy {policy!r} needs how often each item was shown, which a store does not "
            "know. Use it with fastfill order, or choose another one."
        )
    if policy in THROUGH_HEAD and not head:
        raise OrderError(
            f"The policy {policy!r} needs the new model's classifier (head): give an alignment "
            "that was learned with one, or choose sigma or mixed."
        )


def check_policy(name: str) -> str:
    """The policy itself, without the traffic that may weigh it; refuses an unknown name.

    >>> check_policy("traffic:sigma")
    'sigma'
    """
    base = name.removeprefix(TRAFFIC)
    if base not in POLICIES:
        raise OrderError(unknown_choice("policy", name, [*POLICIES, "traffic:POLICY"]))
    return base


def policy_name(policy: str | Policy) -> str:
    """What a policy is called in curves and tables."""
    return policy if isinstance(policy, str) else getattr(policy, "__name__", "policy")


def random(inputs: PolicyInput) -> Scores:
    """Uniform random scores, from the seed."""
    return np.random.default_rng(inputs.seed).random(len(inputs))


def sigma(inputs: PolicyInput) -> Scores:
    """The predicted error σ² of each item (the paper's FastFill)."""
    check_rows(len(inputs.aligned.variance), len(inputs), "variance")
    return np.asarray(inputs.aligned.variance, dtype=np.float64)


def mixed(inputs: PolicyInput, at_random: float = AT_RANDOM) -> Scores:
    """Two of three items by σ², one of three at random: repairs, and teaches the next map.

    An item's turn is the earlier of its two turns, in the order by σ² and in a random one, when
    two steps are made along the first for each step along the second. What is backfilled is the
    sample that the next map is learned from, and by σ² alone it would hold no easy item.
    `at_random` is the share of the items that are taken at random, at most a half.
    """
    n = len(inputs)
    by_sigma = np.empty(n)
    by_sigma[np.argsort(-sigma(inputs), kind="stable")] = np.arange(n) / n
    return mixed_scores(by_sigma, random(inputs), at_random)


def mixed_scores(by_sigma: Scores, chance: Scores, at_random: float = AT_RANDOM) -> Scores:
    """The scores of `mixed`, from each item's place in the order by σ² and a random number.

    Both are shares of all items, from 0 for the first to 1.

    >>> mixed_scores(np.array([0.0, 0.5]), np.array([0.9, 0.1])).round(2).tolist()
    [1.5, 1.2]
    """
    turn = np.minimum(by_sigma / (1 - at_random), chance / at_random)
    return np.asarray(1 / (1 - at_random) - turn)


def novelty(inputs: PolicyInput) -> Scores:
    """Distance in the old space to the nearest pair that the map has learned from."""
    old = _need(inputs.old, "novelty", "the old vectors of the gallery (old)")
    pairs = _need(inputs.pairs_old, "novelty", "the old vectors of the pairs (pairs_old)")
    check_rows(len(old), len(inputs), "old vectors")
    if inputs.distance == "cosine":
        old, pairs = normalised(old, "old vectors"), normalised(pairs, "pairs")
    squares = np.einsum("ij,ij->i", pairs, pairs, dtype=np.float64)
    scores = np.empty(len(old))
    step = max(1, _BLOCK // len(pairs))
    for start in range(0, len(old), step):
        block = old[start : start + step].astype(np.float64)
        nearest = (squares - 2 * (block @ pairs.T.astype(np.float64))).min(axis=1)
        scores[start : start + step] = nearest + np.einsum("ij,ij->i", block, block)
    return np.maximum(scores, 0)


def entropy(inputs: PolicyInput) -> Scores:
    """Entropy of the classes that the new head gives to the aligned vector."""
    return _through_head(inputs, "entropy", lambda logs: -(np.exp(logs) * logs).sum(axis=1))


def margin(inputs: PolicyInput) -> Scores:
    """1 − (probability of the first class − that of the second)."""
    return _through_head(inputs, "margin", small_margin)


def least_confidence(inputs: PolicyInput) -> Scores:
    """1 − probability of the first class."""
    return _through_head(inputs, "least-confidence", lambda logs: 1 - np.exp(logs.max(axis=1)))


def oracle(inputs: PolicyInput) -> Scores:
    """The true loss: l2+disc where labels and head are known, l2 otherwise."""
    new = _need(inputs.new, "oracle", "the new vectors of the gallery (new)")
    if inputs.labels is None or inputs.head is None:
        return l2_loss(inputs.aligned.h, new)
    return l2_disc_loss(inputs.aligned.h, new, inputs.labels, inputs.head)


POLICIES: dict[str, Policy] = {
    "random": random,
    "sigma": sigma,
    "mixed": mixed,
    "novelty": novelty,
    "entropy": entropy,
    "margin": margin,
    "least-confidence": least_confidence,
    "oracle": oracle,
}


def _through_head(
    inputs: PolicyInput, policy: str, score: Callable[[NDArray[np.float64]], Scores]
) -> Scores:
    head = _need(inputs.head, policy, "the new model's classifier (head)")
    step = max(1, _BLOCK // len(head))
    vectors = inputs.aligned.h
    parts = [
        score(log_probabilities(vectors[start : start + step], head))
        for start in range(0, len(vectors), step)
    ]
    return np.concatenate(parts)


def _shown(inputs: PolicyInput) -> Scores:
    """How often each item was shown; one is added to it, since the next may be any item."""
    if inputs.shown is None:
        raise OrderError(
            "A traffic policy needs how often each item was shown (shown), which was not given."
        )
    shown = np.asarray(inputs.shown, dtype=np.float64)
    check_rows(len(shown), len(inputs), "shown")
    if not np.isfinite(shown).all() or (shown < 0).any():
        raise OrderError("shown: counts of how often an item was shown must be 0 or more.")
    return shown


def _need(value: Matrix | None, policy: str, what: str) -> Matrix:
    if value is None:
        raise OrderError(f"The policy {policy!r} needs {what}, which was not given.")
    return value
