"""The work of a backfill: the loop of a worker and the parts that it is made of."""
