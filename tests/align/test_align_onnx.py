"""Maps as ONNX: what onnxruntime computes is what the library computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastfill.align import Alignment, correct
from fastfill.features import Distance, Features, Pairs

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

RNG = np.random.default_rng(0)
OLD = RNG.normal(size=(300, 12)).astype(np.float32)
NEW = np.tanh(OLD @ RNG.normal(size=(12, 9))).astype(np.float32)
NEW[:, 8] *= 1e-3  # a direction that the new model hardly uses, so that there can be a penalty
SIDE = RNG.normal(size=(300, 12)).astype(np.float32)
LABELS = (NEW[:, 0] > 0).astype(int) + 2 * (NEW[:, 1] > 0)
HEAD = (5 * RNG.normal(size=(4, 9))).astype(np.float32)
ASKED = RNG.normal(size=(64, 12)).astype(np.float32)
CLOSE = 1e-5  # of the largest number of the vectors
SHARE = 0.15  # of the predicted error: the penalty
# σ² of a kernel map is made from 1 − Σ of squares, where float32 loses digits in either program.
RELATIVE = {"kernel": 1e-4, "corrected": 1e-4}


def fitted(method: str, distance: Distance, *, head: bool = False, side: bool = False) -> Alignment:
    """A map of that kind, of few epochs."""
    if method in ("residual", "paper"):
        pytest.importorskip("torch", reason="torch is not installed")
    new = Features(NEW, labels=LABELS)
    pairs = Pairs(Features(OLD), new, side=SIDE if side else None)
    return Alignment.fit(
        pairs,
        method=method,
        distance=distance,
        head=HEAD if head else None,
        penalty=0.5 if head else SHARE,
        epochs=1 if method in ("residual", "paper") else None,
    )


def compare(alignment: Alignment, side: Any = None, *, estimates: bool = False) -> None:
    """Run the map in both programs on the same vectors."""
    from fastfill.align.onnx_export import onnx_bytes

    session = runtime.InferenceSession(onnx_bytes(alignment, estimates=estimates))
    feed = {"old": ASKED} if side is None else {"old": ASKED, "side": side}
    vectors, variance = session.run(["vectors", "variance"], feed)
    aligned = alignment(ASKED, side)
    expected = aligned.h if estimates else aligned.vectors
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=CLOSE * np.abs(expected).max())
    rtol = RELATIVE.get(alignment.method, CLOSE)
    np.testing.assert_allclose(variance, aligned.variance, rtol=rtol)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("distance", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("method", ["ridge", "procrustes", "kernel", "residual", "paper"])
def test_every_kind_of_map_is_equal(method: str, distance: Distance) -> None:
    """Vectors and σ² are the same, between spaces of different dimensions, penalised or not."""
    alignment = fitted(method, distance)
    assert alignment.penalty is not None
    compare(alignment)
    compare(alignment, estimates=True)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("method", ["ridge", "paper"])
def test_side_information_is_a_second_input(method: str) -> None:
    """A map that was learned with side-information takes it under its own name."""
    compare(fitted(method, "l2", side=True), SIDE[:64])


def test_a_penalty_by_the_classifier_is_part_of_it() -> None:
    """Served vectors are those that the library serves; the estimates can be had instead."""
    alignment = fitted("ridge", "l2", head=True)
    assert alignment.penalty is not None
    assert alignment.penalty.error is not None
    compare(alignment)
    compare(alignment, estimates=True)


def test_vectors_of_unit_length_stay_so() -> None:
    """Where the new model's vectors are of unit length the exported map's are too."""
    new = NEW / np.linalg.norm(NEW, axis=1, keepdims=True)
    alignment = Alignment.fit(Pairs(Features(OLD), Features(new)), method="kernel", penalty=0.3)
    assert alignment.penalty is not None
    assert alignment.penalty.unit
    compare(alignment)


@pytest.mark.usefixtures("narrow")
def test_a_map_that_was_not_given_sigma_has_one_error_for_all() -> None:
    """The paper's network without uncertainty predicts the mean error of every item."""
    pytest.importorskip("torch", reason="torch is not installed")
    pairs = Pairs(Features(OLD), Features(NEW))
    compare(Alignment.fit(pairs, method="paper", loss="l2", epochs=1))


@pytest.mark.parametrize("classes", [False, True])
def test_corrected_maps_are_equal(classes: bool) -> None:
    """The mean of several maps, corrected by a gallery's pairs, with and without classes."""
    bases = [fitted(method, "l2", head=classes) for method in ("ridge", "procrustes")]
    means = np.stack([NEW[c == LABELS].mean(0) for c in range(4)]) if classes else None
    changed = NEW + np.float32(0.3) * (np.arange(9) < 8)  # not along what is hardly used
    corrected = correct(bases, Pairs(Features(OLD), Features(changed)), means=means, penalty=SHARE)
    assert corrected.correction.penalty is not None
    assert (corrected.correction.penalty.error is not None) == classes
    compare(corrected)
    compare(corrected, estimates=True)


def test_corrected_maps_take_the_side_information_of_their_parts(tmp_path: Path) -> None:
    """Also where one of two parts has none, and when they are read from a file."""
    bases = [fitted("ridge", "l2", side=True), fitted("procrustes", "l2")]
    correct(bases, Pairs(Features(OLD), Features(NEW), side=SIDE)).save(tmp_path / "map")
    read = Alignment.load(tmp_path / "map")
    assert read.side_dim == SIDE.shape[1]
    compare(read, SIDE[:64])


def test_the_command_writes_a_checked_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fastfill export` writes the file, says its inputs and outputs, and refuses other endings."""
    from click.testing import CliRunner

    from fastfill.cli.main import commands, load_commands
    from fastfill.errors import InputError

    load_commands()
    monkeypatch.chdir(tmp_path)
    alignment = fitted("ridge", "cosine")
    alignment.save("map.safetensors")
    done = CliRunner().invoke(commands, ["export", "map.safetensors", "map.onnx", "--json"])
    assert json.loads(done.stdout)["new_dim"] == 9
    model = onnx.load("map.onnx")
    onnx.checker.check_model(model, full_check=True)
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert (facts["method"], facts["distance"]) == ("ridge", "cosine")
    assert facts["fingerprint"] == alignment.fingerprint
    refused = CliRunner().invoke(commands, ["export", "map.safetensors", "map.pt"])
    assert isinstance(refused.exception, InputError)
