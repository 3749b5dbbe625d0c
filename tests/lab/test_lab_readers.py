"""Readers of the published layouts, each built small."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastfill.errors import FileError, InputError, LabelError
from fastfill.lab.data import DATASETS, load, parse
from fastfill.lab.data.cifar import cifar100
from fastfill.lab.data.folders import decode
from fastfill.lab.data.image_sets import Listing, Split
from fastfill.lab.data.pickled_tables import read_tables


def picture(path: Path, value: int = 0, size: tuple[int, int] = (20, 12)) -> None:
    """A plain image of one grey."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, value, value)).save(path)


def planes(count: int) -> np.ndarray:
    """Rows of three 32×32 planes, as CIFAR has them: each channel one value."""
    rows = np.zeros((count, 3, 32, 32), np.uint8)
    for i in range(count):
        rows[i] = np.array([i, 2 * i, 3 * i])[:, None, None]
    return rows.reshape(count, -1)


def check_cifar(root: Path) -> Listing:
    """Six train and four test images of three classes in two super-classes."""
    listing = cifar100(root)
    assert listing is not None
    assert listing.classes == ("apple", "bear", "castle")
    assert listing.train.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert listing.test.labels.tolist() == [2, 1, 0, 2]
    assert listing.groups is not None
    assert listing.groups.tolist() == [0, 1, 1]
    images = listing.train.read(1, 3)
    assert images.shape == (2, 32, 32, 3)
    assert images[1, 5, 7].tolist() == [2, 4, 6]
    return listing


def tables(split: str) -> dict[bytes, Any]:
    """The dict in a published file."""
    fine = [0, 1, 2, 0, 1, 2] if split == "train" else [2, 1, 0, 2]
    coarse = [[0, 1, 1][label] for label in fine]
    return {b"data": planes(len(fine)), b"fine_labels": fine, b"coarse_labels": coarse}


@pytest.mark.parametrize("protocol", [3, 4])
def test_cifar_100_python_is_read(tmp_path: Path, protocol: int) -> None:
    """The pickled tables are understood without unpickling."""
    for split in ("train", "test"):
        content = pickle.dumps(tables(split), protocol=protocol)
        (tmp_path / "cifar-100-python").mkdir(exist_ok=True)
        (tmp_path / "cifar-100-python" / split).write_bytes(content)
    names = {b"fine_label_names": [b"apple", b"bear", b"castle"]}
    (tmp_path / "cifar-100-python" / "meta").write_bytes(pickle.dumps(names, protocol=protocol))
    check_cifar(tmp_path)


def test_a_table_written_by_python_2_is_read(tmp_path: Path) -> None:
    """The published archive is of Python 2: texts are byte strings, arrays are of numpy.core."""
    data = planes(2).tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
        b"(K\x01K\x02M\x00\x0c\x86cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNN"
        b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T" + len(data).to_bytes(4, "little") + data
    ) + b"tb"  # fmt: skip
    path = tmp_path / "train"
    path.write_bytes(b"\x80\x02}q\x01(U\x04dataq\x02" + array + b"U\x06labels](K\x07K\x09eu.")
    found = read_tables(path)
    assert found["labels"] == [7, 9]
    np.testing.assert_array_equal(found["data"], planes(2))


class Evil:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch broken-in",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_file_that_would_run_code_is_refused(
    tmp_path: Path, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is executed, and the message names what the file asks for."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train"
    path.write_bytes(pickle.dumps({"data": Evil()}, protocol=protocol))
    asked = "system, which is code" if protocol else "the instruction DICT"  # comes first in 0
    with pytest.raises(FileError, match=f"train: asks for .*{asked}"):
        read_tables(path)
    assert not (tmp_path / "broken-in").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"not a pickle", pickle.dumps([1, 2]), pickle.dumps({1: 2.5}), pickle.dumps({1: {2}}),
     pickle.dumps({"data": np.zeros(3)}), b"\x80\x02}(K\x01e.", b"\x80\x02h\x05."],
)  # fmt: skip
def test_damaged_tables_are_refused(tmp_path: Path, content: bytes) -> None:
    """Whatever a file holds, the answer is one sentence with its name."""
    path = tmp_path / "train"
    path.write_bytes(content)
    with pytest.raises(FileError, match="train"):
        read_tables(path)


def test_a_table_without_labels_is_refused(tmp_path: Path) -> None:
    """The message names the table that is missing and those that are there."""
    (tmp_path / "meta").write_bytes(pickle.dumps({b"fine_label_names": [b"a"]}, protocol=3))
    (tmp_path / "train").write_bytes(pickle.dumps({b"data": planes(1)}, protocol=3))
    with pytest.raises(FileError, match=r"no table 'fine_labels', only data"):
        cifar100(tmp_path)


def binary(folder: Path) -> None:
    """`cifar-100-binary` of the same ten images."""
    folder.mkdir(parents=True)
    (folder / "fine_label_names.txt").write_text("apple\nbear\ncastle\n")
    for split in ("train", "test"):
        of = tables(split)
        columns = np.array([of[b"coarse_labels"], of[b"fine_labels"]], np.uint8).T
        np.hstack([columns, of[b"data"]]).tofile(folder / f"{split}.bin")


def test_cifar_100_binary_is_read(tmp_path: Path) -> None:
    """Records of two labels and three planes."""
    binary(tmp_path / "cifar-100-binary")
    check_cifar(tmp_path)


def test_a_truncated_binary_is_refused(tmp_path: Path) -> None:
    """A file that is cut off is not read half."""
    binary(tmp_path / "cifar-100-binary")
    path = tmp_path / "cifar-100-binary" / "train.bin"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(FileError, match="truncated"):
        cifar100(tmp_path)


def test_sheets_of_tiles_are_read(tmp_path: Path) -> None:
    """A sheet holds 64×64 tiles row by row; test images follow the train images."""
    greys = (np.arange(4096) % 16 * 16).astype(np.uint8)
    tiles = np.broadcast_to(greys.reshape(64, 1, 64, 1), (64, 32, 64, 32)).reshape(2048, 2048)
    Image.fromarray(tiles).save(tmp_path / "c100_000.jpg", quality=95)
    labels = (greys // 16).astype(np.int64)
    np.savez(
        tmp_path / "labels.npz", y_train=labels[:4000], y_test=labels[4000:],
        coarse_train=labels[:4000] % 2, coarse_test=labels[4000:] % 2,
        fine_names=[f"class {i}" for i in range(16)],
    )  # fmt: skip
    listing = cifar100(tmp_path)
    assert listing is not None
    for part, first in ((listing.train, 0), (listing.test, 4000)):
        found = part.read(5, 40)[:, 16, 16, 0].astype(int)
        assert np.abs(found - greys[first + 5 : first + 40].astype(int)).max() <= 3


def test_the_sheets_at_hand_are_read() -> None:
    """CIFAR-100 as it lies in the data folder has 60,000 images of 100 classes."""
    if not os.environ.get("FASTFILL_DATA"):
        pytest.skip("FASTFILL_DATA is not set")
    listing = cifar100(Path(os.environ["FASTFILL_DATA"]) / "cifar100")
    assert listing is not None
    assert (len(listing.train), len(listing.test), len(listing.classes)) == (50_000, 10_000, 100)
    assert listing.test.read(9_998, 10_000).shape == (2, 32, 32, 3)
    assert listing.groups is not None
    assert np.bincount(listing.groups).tolist() == [5] * 20


def class_folders(root: Path, test: str = "val", suffix: str = "png") -> None:
    """Three classes of two training images and one test image."""
    for number, name in enumerate(("ant", "bee", "cow")):
        for i in range(2):
            picture(root / "train" / name / f"{i}.{suffix}", 50 * number)
        picture(root / test / name / f"9.{suffix}", 50 * number)


@pytest.mark.parametrize("test", ["val", "test"])
def test_class_folders_are_read_and_decoded_once(tmp_path: Path, test: str) -> None:
    """Images become squares of one size in a memory-mapped cache that is used again."""
    class_folders(tmp_path / "mine", test)
    for _ in range(2):
        images = load(f"folder={tmp_path / 'mine'}", tmp_path / "cache", pixels=8)
        assert (images.name, images.classes) == ("mine", ("ant", "bee", "cow"))
        assert images.shape == (8, 8, 3)
        assert images.train.labels.tolist() == [0, 0, 1, 1, 2, 2]
        assert isinstance(images.train.pixels, np.memmap)
        assert images.test.pixels[:, 4, 4, 0].tolist() == [0, 50, 100]
        for path in (tmp_path / "mine" / "train").rglob("*.png"):
            path.write_bytes(b"never read again")


def test_a_decoding_that_fails_leaves_no_half_cache(tmp_path: Path) -> None:
    """The file at fault is named, and the next call does not find a broken set."""
    class_folders(tmp_path / "mine")
    (tmp_path / "mine" / "train" / "bee" / "1.png").write_bytes(b"no image")
    for _ in range(2):
        with pytest.raises(FileError, match=r"1\.png: cannot be decoded"):
            load(f"folder={tmp_path / 'mine'}", tmp_path / "cache", pixels=8)
    assert list((tmp_path / "cache").iterdir()) == []


def test_imagenet_with_a_flat_validation_folder_is_read(tmp_path: Path) -> None:
    """The labels of a flat val/ come from LOC_val_solution.csv."""
    base = tmp_path / "ILSVRC" / "Data" / "CLS-LOC"
    for number, wnid in enumerate(("n01", "n02")):
        picture(base / "train" / wnid / "a.JPEG", number)
    rows = ["ImageId,PredictionString"]
    for number, wnid in ((1, "n02"), (2, "n01"), (3, "n02")):
        picture(base / "val" / f"ILSVRC_val_{number}.JPEG")
        rows.append(f"ILSVRC_val_{number},{wnid} 1 2 3 4 ")
    with pytest.raises(FileError, match=r"LOC_val_solution\.csv: missing"):
        load(f"imagenet={tmp_path}", tmp_path / "cache", pixels=8)
    (tmp_path / "LOC_val_solution.csv").write_text("\n".join(rows))
    images = load(f"imagenet={tmp_path}", tmp_path / "cache", pixels=8)
    assert images.classes == ("n01", "n02")
    assert images.test.labels.tolist() == [1, 0, 1]


def test_imagenet_with_class_folders_is_read(tmp_path: Path) -> None:
    """`train/WNID` and `val/WNID`, as most people unpack it."""
    class_folders(tmp_path, suffix="JPEG")
    assert load(f"imagenet={tmp_path}", tmp_path / "cache", pixels=8).classes[0] == "ant"


def test_tiny_imagenet_is_read(tmp_path: Path) -> None:
    """Classes are in the order of wnids.txt, validation labels in the annotations."""
    base = tmp_path / "tiny-imagenet-200"
    for wnid in ("n07", "n03"):
        picture(base / "train" / wnid / "images" / f"{wnid}_0.JPEG")
    (base / "wnids.txt").write_text("n07\nn03\n")
    picture(base / "val" / "images" / "val_0.JPEG")
    (base / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn03\t0\t0\t9\t9\n")
    images = load(f"tiny-imagenet={tmp_path}", tmp_path / "cache", pixels=8)
    assert images.classes == ("n07", "n03")
    assert (images.train.labels.tolist(), images.test.labels.tolist()) == ([0, 1], [1])


def test_places_with_the_published_lists_is_read(tmp_path: Path) -> None:
    """Lists of `path number` beside data_256/ and val_256/."""
    picture(tmp_path / "data_256" / "a" / "abbey" / "1.jpg")
    picture(tmp_path / "data_256" / "z" / "zoo" / "1.jpg")
    picture(tmp_path / "val_256" / "v.jpg")
    (tmp_path / "places365_train_standard.txt").write_text("/a/abbey/1.jpg 0\n/z/zoo/1.jpg 1\n")
    (tmp_path / "places365_val.txt").write_text("v.jpg 1\n")
    (tmp_path / "categories_places365.txt").write_text("/a/abbey 0\n/z/zoo 1\n")
    images = load(f"places365={tmp_path}", tmp_path / "cache", pixels=8)
    assert images.classes == ("/a/abbey", "/z/zoo")
    assert (images.train.labels.tolist(), images.test.labels.tolist()) == ([0, 1], [1])


def test_vggface2_has_the_genders_of_its_identities(tmp_path: Path) -> None:
    """Test identities are others than the trained ones; groups: 1 female, 0 male, −1 unknown."""
    for split, name in (("train", "n001"), ("train", "n002"), ("test", "n003")):
        picture(tmp_path / split / name / "0001_01.jpg")
    with pytest.raises(FileError, match=r"identity_meta\.csv: missing"):
        load(f"vggface2={tmp_path}", tmp_path / "cache", pixels=8)
    header = "Class_ID, Name, Sample_Num, Flag, Gender\n"
    lines = 'n001, "A, B", 9, 1, f\nn002, "C", 9, 1, m\n'
    (tmp_path / "identity_meta.csv").write_text(header + lines)
    images = load(f"vggface2={tmp_path}", tmp_path / "cache", pixels=8)
    assert images.groups is not None
    assert images.groups.tolist() == [1, 0, -1]
    assert images.test.labels.tolist() == [2]


@pytest.mark.parametrize("name", DATASETS)
def test_a_missing_data_set_says_what_to_put_where(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence with the folder and its expected content, with and without a folder given."""
    with pytest.raises(FileError) as found:
        load(f"{name}={tmp_path}", tmp_path / "cache")
    assert f"{tmp_path}: {name} was not found there. Put {DATASETS[name].expects}" in str(
        found.value
    )
    monkeypatch.delenv("FASTFILL_DATA", raising=False)
    with pytest.raises(FileError, match=f"Use {name}=DIR, or set FASTFILL_DATA"):
        load(name, tmp_path / "cache")
    monkeypatch.setenv("FASTFILL_DATA", str(tmp_path))
    with pytest.raises(FileError, match=f"{name} was not found there"):
        load(name, tmp_path / "cache")


def test_an_unknown_data_set_is_refused_with_the_known_names() -> None:
    """The message lists what there is."""
    with pytest.raises(InputError, match="digits, cifar100, imagenet"):
        parse("cifar10")


def test_labels_beyond_the_classes_are_refused() -> None:
    """A class list that is too short is not silently cut."""
    part = Split(np.array([0, 3]), lambda first, last: np.zeros((2, 4, 4, 3), np.uint8), "x")
    with pytest.raises(LabelError, match="label 3 in a set of 2 classes"):
        Listing("mine", ("a", "b"), part, part, (4, 4, 3))


@pytest.mark.parametrize("size", [(40, 20), (20, 40), (7, 9), (16, 16)])
def test_images_are_cut_to_their_middle(tmp_path: Path, size: tuple[int, int]) -> None:
    """Whatever the shape, the short side becomes the size and the middle is kept."""
    width, height = size
    image = Image.new("RGB", size, (255, 0, 0))
    image.paste((0, 255, 0), (width // 4, height // 4, width - width // 4, height - height // 4))
    data = io.BytesIO()
    image.save(data, "PNG")
    (tmp_path / "a.png").write_bytes(data.getvalue())
    found = decode(tmp_path / "a.png", 16)
    assert found.shape == (16, 16, 3)
    assert found[8, 8].tolist() == [0, 255, 0]
