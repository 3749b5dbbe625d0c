"""Exported maps in Node, by the runtime that browsers have too."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from fastfill.align import Alignment, correct
from fastfill.features import Features, Pairs

pytest.importorskip("onnx", reason="onnx is not installed")


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node with onnxruntime-web, as `make test` installs it; the test is skipped elsewhere."""
    here = Path(sys.prefix) / "node" / "node_modules"
    modules = Path(os.environ.get("FASTFILL_NODE_MODULES", here))
    if shutil.which("node") is None:
        pytest.skip("no Node on this machine: install it to run exported maps in it")
    if not (modules / "onnxruntime-web").is_dir():
        pytest.skip("no onnxruntime-web: put its node_modules into FASTFILL_NODE_MODULES")
    monkeypatch.setenv("FASTFILL_NODE_MODULES", str(modules))


def test_maps_of_every_kind_give_what_the_library_gives(node: None, tmp_path: Path) -> None:
    """In closed form, by a network and corrected, with a penalty and side-information."""
    pytest.importorskip("torch", reason="torch is not installed")
    from benchmarks import onnx_node as bench
    from fastfill.align.onnx_export import write_onnx

    items, learned = bench.make_items(), slice(bench.PAIRS)
    old, new = Features(items.old[learned]), Features(items.new[learned])
    pairs, beside = Pairs(old, new), Pairs(old, new, side=items.side[learned])
    maps = {
        method: Alignment.fit(pairs, method=method, epochs=epochs, penalty=bench.SHARE)
        for method, epochs in (("procrustes", None), ("kernel", None), ("residual", 2))
    }
    maps["ridge, side"] = Alignment.fit(beside, method="ridge", penalty=bench.SHARE)
    maps["corrected, side"] = correct(maps["ridge, side"], beside, penalty=bench.SHARE)
    for key, alignment in maps.items():
        write_onnx(alignment, tmp_path / f"{key}.onnx")
    asked, side = items.old[bench.PAIRS :], items.side[bench.PAIRS :]
    bench.run_in_node(tmp_path, asked, side)
    found = {
        key: bench.differences(key, tmp_path, alignment(asked, side if "side" in key else None))
        for key, alignment in maps.items()
    }
    assert found.keys() == maps.keys()
    bench.check(maps, found)
