"""What the docs tell services in other languages to compute is what a gallery answers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from serving_world import COLUMNS, KINDS, make_store

from fastfill.features import DISTANCES, Distance
from fastfill.gallery import Gallery

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "serve-with-both-models.md"
OLD, NEW = [0.4, -0.2, 0.9], [0.1, 0.7, -0.5, 0.3]


def block(language: str) -> str:
    """The code of the page in a language."""
    match = re.search(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert match is not None
    return match[1]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.parametrize("distance", DISTANCES)
def test_the_javascript_of_the_docs_answers_what_a_gallery_does(distance: Distance) -> None:
    """Over items of all kinds, given twice as two searches would, ids and scores are the same."""
    store = make_store(KINDS * 4, distance)
    gallery = Gallery(store)
    rows = [
        {
            "id": row["id"],
            "generation": row[COLUMNS.mark("generation")],
            "old": None if row["vector"] is None else row["vector"].tolist(),
            "new": None if row[COLUMNS.new] is None else row[COLUMNS.new].tolist(),
        }
        for row in store._rows.values()
    ]
    query = {"old": OLD, "new": NEW}
    arguments = ", ".join(map(json.dumps, (gallery.fusion.to_json(), query, rows + rows, 12)))
    program = f"{block('js')}\nconsole.log(JSON.stringify(fuse({arguments})));"
    answer = subprocess.run(
        ["node", "-"], input=program, capture_output=True, text=True, check=True
    )
    told = json.loads(answer.stdout)
    hits = gallery.search(old=OLD, new=NEW, k=12)
    assert [each["id"] for each in told] == hits.ids.tolist()
    np.testing.assert_allclose(
        [each["score"] for each in told], -hits.distances, rtol=1e-3, atol=1e-4
    )


def test_the_json_of_the_docs_has_the_keys_of_a_fusion() -> None:
    """The example names what `Fusion.to_json` does."""
    example = json.loads(block("json"))["fusion"]
    assert list(example) == list(Gallery(make_store(["new"])).fusion.to_json())
