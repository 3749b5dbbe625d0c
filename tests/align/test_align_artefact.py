"""The saved alignment: whole, exact, ours, and never code."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from fastfill.align import Aligned, Alignment, artefact
from fastfill.errors import ArtefactError, FileError, NonFiniteError, ShapeError
from fastfill.features import Features, Pairs


def fitted(method: str = "ridge", **options: Any) -> Alignment:
    """A small map with a head, side-information and names."""
    rng = np.random.default_rng(0)
    old, side = rng.normal(size=(60, 6)), rng.normal(size=(60, 2)).astype(np.float32)
    new = old[:, :4] * 2 + 0.1 * rng.normal(size=(60, 4))
    labels = rng.integers(0, 3, 60)
    pairs = Pairs(Features(old), Features(new, labels=labels), side)
    head = rng.normal(size=(3, 4))
    return Alignment.fit(
        pairs, method=method, head=head, models=("clip-1", "clip-2"), seed=5, **options
    )


@pytest.fixture(scope="module")
def alignment() -> Alignment:
    """One map, used by all."""
    return fitted()


@pytest.mark.parametrize("method", ["ridge", "procrustes", "kernel", "residual"])
@pytest.mark.parametrize("distance", ["l2", "cosine", "ip"])
def test_a_saved_alignment_comes_back_bit_by_bit(
    method: str, distance: str, tmp_path: Path
) -> None:
    """Arrays, head, facts, fingerprint and every aligned number survive the file exactly."""
    options: dict[str, Any] = {"epochs": 1} if method == "residual" else {}
    before = fitted(method, distance=distance, **options)
    before.save(tmp_path / "a.safetensors")
    after = Alignment.load(tmp_path / "a.safetensors")
    assert after.arrays.keys() == before.arrays.keys()
    for name, array in before.arrays.items():
        np.testing.assert_array_equal(after.arrays[name], array)
    np.testing.assert_array_equal(after.head, before.head)
    assert after.facts == before.facts
    assert (after.scaling, after.calibration) == (before.scaling, before.calibration)
    assert after.fingerprint == before.fingerprint
    assert after.to_bytes() == before.to_bytes()
    old, side = np.random.default_rng(1).normal(size=(9, 6)), np.ones((9, 2))
    np.testing.assert_array_equal(after(old, side).vectors, before(old, side).vectors)
    np.testing.assert_array_equal(after(old, side).variance, before(old, side).variance)


def test_the_metadata_says_what_the_map_is(alignment: Alignment) -> None:
    """Format version, method, dimensions, distance, pairs, seed, training and names are JSON."""
    data = alignment.to_bytes()
    header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    facts = json.loads(header["__metadata__"]["fastfill"])
    assert facts["format"] == 1
    assert facts["method"] == "ridge"
    assert facts["scaling"]["distance"] == "l2"
    assert facts["side_dim"] == 2
    told = facts["facts"]
    assert (told["old_dim"], told["pairs"], told["seed"]) == (6, 60, 5)
    assert told["models"] == {"old": "clip-1", "new": "clip-2"}
    assert told["training"]["lambda"] > 0
    assert {"kendall_tau", "coverage_90", "explained"} <= told["held_out"].keys()
    assert header["head"]["shape"] == [3, 4]


def test_the_fingerprint_changes_with_the_map(alignment: Alignment) -> None:
    """Another number anywhere in the map is another fingerprint."""
    changed = fitted()
    changed.arrays["out.weight"] = changed.arrays["out.weight"].copy()
    changed.arrays["out.weight"][0, 0] += 1e-6
    assert fitted().fingerprint == alignment.fingerprint
    assert changed.fingerprint != alignment.fingerprint


def refused(data: bytes, *said: str) -> None:
    """These bytes are an ArtefactError that names the file."""
    with pytest.raises(ArtefactError) as caught:
        Alignment.from_bytes(data, "photos.safetensors")
    for part in ("photos.safetensors", *said):
        assert part in str(caught.value)


def test_truncated_artefacts_are_refused(alignment: Alignment) -> None:
    """However much is missing, it says so and what to do."""
    data = alignment.to_bytes()
    for keep in (0, 5, 8, 100, len(data) // 2, len(data) - 1):
        refused(data[:keep], "is not an alignment, or is truncated", "copy the file again")


def test_foreign_files_are_refused(alignment: Alignment) -> None:
    """Other safetensors, texts, archives and pickles are not alignments."""
    refused(save({"weight": np.ones((2, 2), dtype=np.float32)}), "is not an alignment")
    refused(save({"w": np.ones(2)}, metadata={"format": "pt"}), "is not an alignment")
    for document in ("[]", "3", '"text"', "null", "{", "[" * 100_000):
        refused(save({"w": np.ones(2)}, metadata={"fastfill": document}), "is not an alignment")
    for data in (b"PK\x03\x04" + b"\0" * 99, b"hello" * 99, b"\x80\x04\x95" + b"\0" * 99):
        refused(data, "is not an alignment", "fastfill align")


def test_another_format_version_is_refused(
    alignment: Alignment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of a later FastFill names both versions and the way out."""
    monkeypatch.setattr(artefact, "FORMAT", 2)
    later = alignment.to_bytes()
    monkeypatch.undo()
    refused(later, "format version 2", "reads version 1", "Use the FastFill that wrote it")


@given(st.data())
@settings(max_examples=150)
def test_a_flipped_bit_is_noticed(data: st.DataObject) -> None:
    """Any changed bit of arrays or metadata is an ArtefactError."""
    whole = bytearray(SAMPLE)
    header = 8 + struct.unpack("<Q", SAMPLE[:8])[0]
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    if place < header and _content(bytes(whole)) == _content(SAMPLE):  # a space, an E for an e
        assert Alignment.from_bytes(bytes(whole)).fingerprint == FINGERPRINT
    else:
        refused(bytes(whole))


SAMPLE = fitted().to_bytes()
FINGERPRINT = Alignment.from_bytes(SAMPLE).fingerprint


def _content(data: bytes) -> Any:
    """What a header says, or None where it says nothing."""
    try:
        header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
        return header | {"__metadata__": json.loads(header["__metadata__"]["fastfill"])}
    except (ValueError, LookupError):
        return None


def forged(change: Any) -> bytes:
    """A file that matches its checksum, with changed content."""
    arrays, facts = artefact.unpack(SAMPLE, "sample")
    change(arrays, facts)
    return artefact.pack(arrays, facts)


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays, facts: facts.update(method="exec"),
        lambda arrays, facts: facts.update(method=["ridge"]),
        lambda arrays, facts: facts.pop("scaling"),
        lambda arrays, facts: facts["scaling"].update(extra=1),
        lambda arrays, facts: facts["scaling"].update(distance="manhattan"),
        lambda arrays, facts: facts["scaling"].update(old="big"),
        lambda arrays, facts: facts["facts"].pop("old_dim"),
        lambda arrays, facts: facts["facts"].update(old_dim=7),
        lambda arrays, facts: facts["facts"].update(old_dim=10**15),
        lambda arrays, facts: facts.update(facts=[]),
        lambda arrays, facts: facts.update(side_dim=0),
        lambda arrays, facts: arrays.pop("out.bias"),
        lambda arrays, facts: arrays.pop("whiten"),
        lambda arrays, facts: arrays.update({"out.bias": np.ones(3, dtype=np.float32)}),
        lambda arrays, facts: arrays["out.bias"].fill(np.nan),
    ],
)
def test_a_forged_artefact_is_refused_on_loading(change: Any) -> None:
    """A valid checksum around nonsense is noticed when the file is read, not when it is used."""
    refused(forged(change), "Align again")


def test_nothing_changed_is_accepted() -> None:
    """The forger's tools alone do no harm."""
    assert Alignment.from_bytes(forged(lambda arrays, facts: None)).fingerprint == FINGERPRINT


def test_missing_files_and_folders_are_named(alignment: Alignment, tmp_path: Path) -> None:
    """Loading from nowhere, and saving into nowhere, say which path."""
    with pytest.raises(FileError, match=r"no\.safetensors: cannot be read \(No such file"):
        Alignment.load(tmp_path / "no.safetensors")
    with pytest.raises(FileError, match=r"cannot be read \(Is a directory\)"):
        Alignment.load(tmp_path)
    with pytest.raises(FileError, match=r"the folder .*none does not exist"):
        alignment.save(tmp_path / "none" / "a.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_aligned_is_a_checked_value() -> None:
    """Aligned vectors are finite and have one variance each."""
    with pytest.raises(ShapeError, match=r"variance: .* 2 aligned vectors, got shape \(3,\)"):
        Aligned([[1.0], [2.0]], [1.0, 2.0, 3.0])
    with pytest.raises(NonFiniteError, match=r"aligned vectors: .* rows 1"):
        Aligned([[1.0], [np.nan]], [1.0, 2.0])
