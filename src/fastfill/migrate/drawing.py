"""Random rows to embed."""

from __future__ import annotations

from fastfill.gallery import Id
from fastfill.migrate.job import Job


def draw_to_embed(job: Job, most: int, seed: int, model: str | None = None) -> list[Id]:
    """Of rows that are not new; where these are too few, of those that another model made new."""
    ids = job.store.sample(most, seed=seed)
    if len(ids) < most:
        rows = job.store.read(job.store.sample(most, seed=seed, new=True), old=False)
        made = zip(rows.ids.tolist(), rows.model, strict=True)
        ids += [key for key, made_by in made if made_by != model][: most - len(ids)]
    return ids
