"""Policies: from what is known about the items, the order to backfill them in."""

from fastfill.order.files import read_order, write_order
from fastfill.order.losses import disc_loss, l2_disc_loss, l2_loss
from fastfill.order.policies import (
    POLICIES,
    Policy,
    arrange,
    check_live_policy,
    check_policy,
    mixed_scores,
    policy_name,
)
from fastfill.order.values import Known, Order, PolicyInput

__all__ = [
    "POLICIES",
    "Known",
    "Order",
    "Policy",
    "PolicyInput",
    "arrange",
    "check_live_policy",
    "check_policy",
    "disc_loss",
    "l2_disc_loss",
    "l2_loss",
    "mixed_scores",
    "policy_name",
    "read_order",
    "write_order",
]
