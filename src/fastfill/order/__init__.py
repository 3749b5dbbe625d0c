"""Policies: from what is known about the items, the order to backfill them in."""
