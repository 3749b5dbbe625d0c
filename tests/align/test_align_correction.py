"""Maps corrected by a gallery's own pairs."""

import numpy as np
import pytest

from fastfill.align import Alignment, Corrected, Correction, correct
from fastfill.errors import ArtefactError, InputError, ShapeError
from fastfill.features import Features, Pairs


def gallery(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Old and new vectors of a gallery whose new model bends the old space."""
    rng = np.random.default_rng(seed)
    old = rng.normal(size=(rows, 6)).astype(np.float32)
    return old, (np.tanh(1.5 * old) + 0.3 * np.square(old)).astype(np.float32)


def pairs_of(old: np.ndarray, new: np.ndarray) -> Pairs:
    return Pairs(Features(old), Features(new))


@pytest.fixture(scope="module")
def elsewhere() -> Alignment:
    """A map learned from other data, where the new model did something else."""
    old, new = gallery(500, seed=1)
    return Alignment.fit(pairs_of(old, 0.8 * new + 0.5), method="ridge")


def error(alignment: Alignment, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    return np.square(alignment(old).vectors - new, dtype=np.float64).sum(1)


def test_a_correction_learns_what_the_gallery_shows(elsewhere: Alignment) -> None:
    """On items that are no pairs most of the error is gone, and what is left is foretold."""
    old, new = gallery(1_500)
    corrected = correct(elsewhere, pairs_of(old[:500], new[:500]))
    before, after = error(elsewhere, old[500:], new[500:]), error(corrected, old[500:], new[500:])
    assert after.mean() < 0.5 * before.mean()
    foretold = corrected(old[500:]).variance
    assert np.corrcoef(np.log(foretold), np.log(after))[0, 1] > 0.2


def test_several_maps_are_averaged_first(elsewhere: Alignment) -> None:
    """h is the mean of the maps: a correction of two equal ones is that of one."""
    old, new = gallery(300)
    pairs = pairs_of(old, new)
    one, two = correct(elsewhere, pairs), correct([elsewhere, elsewhere], pairs)
    assert np.allclose(one(old).vectors, two(old).vectors, atol=1e-5)
    assert len(two.bases) == 2


def test_correcting_again_starts_from_the_maps(elsewhere: Alignment) -> None:
    """A second correction replaces the first; corrections do not pile up."""
    old, new = gallery(400)
    first = correct(elsewhere, pairs_of(old[:100], new[:100]))
    again = correct(first, pairs_of(old, new))
    assert again.bases == first.bases
    assert again.fingerprint == correct(elsewhere, pairs_of(old, new)).fingerprint
    assert again.fingerprint != first.fingerprint


def test_it_is_saved_and_read_as_one_artefact(elsewhere: Alignment, tmp_path) -> None:
    """Vectors, errors and fingerprint survive; a file without one of its parts is refused."""
    old, new = gallery(200)
    corrected = correct(elsewhere, pairs_of(old, new))
    corrected.save(tmp_path / "corrected.safetensors")
    read = Alignment.load(tmp_path / "corrected.safetensors")
    assert isinstance(read, Corrected)
    assert np.array_equal(read(old).vectors, corrected(old).vectors)
    assert np.array_equal(read(old).variance, corrected(old).variance)
    assert read.fingerprint == corrected.fingerprint
    assert (read.old_dim, read.new_dim, read.distance) == (6, 6, "l2")
    del corrected.arrays["0/out.bias"]
    with pytest.raises(ArtefactError, match="lacks or does not know"):
        Alignment.from_bytes(corrected.to_bytes())


def test_lengths_go_half_way_to_those_of_the_gallery() -> None:
    """The geometric mean of a vector's own length and the mean length of the new ones."""
    old, new = gallery(300)
    correction = Correction.fit(old, old, new)
    lengths = np.linalg.norm(correction(old, old).vectors, axis=1)
    own = np.linalg.norm(old + correction.kernel(_inputs(correction, old)).vectors, axis=1)
    mean = np.linalg.norm(new, axis=1).mean()
    assert np.allclose(lengths, np.sqrt(own * mean), rtol=1e-4)


def test_new_vectors_of_unit_length_give_aligned_ones_of_unit_length() -> None:
    """As for any other map."""
    old, new = gallery(300)
    new /= np.linalg.norm(new, axis=1, keepdims=True)
    lengths = np.linalg.norm(Correction.fit(old, old, new)(old, old).vectors, axis=1)
    assert np.allclose(lengths, 1, atol=1e-5)


def test_items_move_towards_the_mean_of_their_class() -> None:
    """The surer the classifier is, the nearer; without means nothing moves."""
    rng = np.random.default_rng(0)
    means = 5 * np.eye(4, 6, dtype=np.float32)
    labels = rng.integers(0, 4, 400)
    new = (means[labels] + rng.normal(size=(400, 6))).astype(np.float32)
    plain = Correction.fit(new, new, new)(new, new).vectors
    pulled = Correction.fit(new, new, new, head=means, means=means)(new, new).vectors

    def cosine(vectors: np.ndarray) -> np.ndarray:
        return (vectors * means[labels]).sum(1) / np.linalg.norm(vectors, axis=1) / 5

    assert cosine(pulled).mean() > cosine(plain).mean() + 0.02
    lengths = [np.linalg.norm(vectors, axis=1) for vectors in (plain, pulled)]
    assert np.allclose(*lengths, rtol=1e-3)


def test_what_does_not_fit_is_refused(elsewhere: Alignment) -> None:
    """No map, too few pairs, means of other classes than the classifier's."""
    old, new = gallery(100)
    with pytest.raises(ShapeError, match="10 pairs are too few"):
        correct(elsewhere, pairs_of(old[:10], new[:10]))
    with pytest.raises(InputError, match="no alignment to correct"):
        Corrected([], Correction.fit(old, old, new), {})
    with pytest.raises(ShapeError, match="one mean for each class"):
        Correction.fit(old, old, new, head=np.zeros((3, 6)), means=np.zeros((2, 6)))


def _inputs(correction: Correction, old: np.ndarray) -> np.ndarray:
    return np.concatenate([old / correction.units[0], old / correction.units[1]], axis=1).astype(
        np.float32
    )
