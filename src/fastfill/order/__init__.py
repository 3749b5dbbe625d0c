"""Policies: from what is known about the items, the order to backfill them in."""

from fastfill.order.files import read_order, write_order
from fastfill.order.losses import disc_loss, l2_disc_loss, l2_loss
from fastfill.order.policies import POLICIES, Policy, arrange, check_policy
from fastfill.order.values import Known, Order

__all__ = [
    "POLICIES",
    "Known",
    "Order",
    "Policy",
    "arrange",
    "check_policy",
    "disc_loss",
    "l2_disc_loss",
    "l2_loss",
    "read_order",
    "write_order",
]
