"""`split=` of `open`: the files of one split, by the names of files and folders."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import penstock as ps

LAYOUTS = {
    "numbers behind": [
        "train-00000-of-00002.tfrecord",
        "train-00001-of-00002.tfrecord",
        "val-00000-of-00001.tfrecord",
    ],
    "one file each": ["train.tfrecord", "val.tfrecord"],
    "compressed": ["train-0.tfrecord.gz", "val-0.tfrecord.gz"],
    "folders": ["train/0.tfrecord", "train/1.tfrecord", "val/0.tfrecord"],
    "a name before": ["data-train-7.tfrecord", "data-val-7.tfrecord"],
    "tfds": ["mnist-train.tfrecord-00000-of-00001", "mnist-val.tfrecord-00000-of-00001"],
    "tfds, a version": [
        "1.0.0/mnist-train.tfrecord-00000-of-00001",
        "1.0.0/mnist-val.tfrecord-00000-of-00001",
    ],
    "a name behind": ["train-part-3.tfrecord", "val-part-3.tfrecord"],
    "no separator": ["train00001.tfrecord", "val00001.tfrecord"],
}


def written(folder: Path, names: list[str]) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        compression = "gzip" if name.endswith(".gz") else None
        ps.write({"name": [name]}, folder / name, format="tfrecord", compression=compression)
    return folder


def names_in(ds: ps.Dataset) -> list[str]:
    return ds.to_table()["name"].to_pylist()


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_a_folder_or_a_pattern_opens_the_files_of_a_split(layout: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "set", LAYOUTS[layout])
    for split in ("train", "val"):
        wanted = [name for name in LAYOUTS[layout] if split in name]
        assert names_in(ps.open(folder, split=split)) == wanted
        assert names_in(ps.open(str(folder / "**" / "*"), split=split)) == wanted
        assert names_in(ps.open([folder / name for name in LAYOUTS[layout]], split=split)) == wanted
    with pytest.raises(ValueError, match=r"no files of the split 'dev'; there are: .*train.*val"):
        ps.open(folder, split="dev")


def test_an_exact_name_comes_before_a_longer_name(tmp_path: Path) -> None:
    folder = written(tmp_path, ["val-0.tfrecord", "val_unseen-0.tfrecord", "fold-1.tfrecord"])
    assert names_in(ps.open(folder, split="val")) == ["val-0.tfrecord"]
    assert names_in(ps.open(folder, split="val_unseen")) == ["val_unseen-0.tfrecord"]
    assert names_in(ps.open(folder, split="fold-1")) == ["fold-1.tfrecord"]


def test_a_split_of_images_is_a_folder(tmp_path: Path) -> None:
    import numpy as np

    pixels = np.zeros((4, 4, 3), np.uint8)
    (tmp_path / "set").mkdir()
    for split in ("train", "val"):
        images = ps.encode_images([pixels] * 2, "png")
        ps.write(
            {"image": images, "label": ["a", "b"]}, tmp_path / "set" / split, format="imagefolder"
        )
    assert len(ps.open(tmp_path / "set", split="train")) == 2


def test_it_pickles(tmp_path: Path) -> None:
    import pickle

    folder = written(tmp_path, LAYOUTS["numbers behind"])
    again = pickle.loads(pickle.dumps(ps.open(folder, split="val")))
    assert names_in(again) == ["val-00000-of-00001.tfrecord"]


def test_splits_with_other_classes_are_reported(tmp_path: Path) -> None:
    pixel = ps.encode_images(np.zeros((1, 2, 2, 3), np.uint8), "png")[0].as_py()
    classes = {"train": "abc", "val": "ac", "test": "ab", "masks": "xyz"}
    for split, names in classes.items():
        for name in names:
            (tmp_path / split / name).mkdir(parents=True)
            (tmp_path / split / name / "0.png").write_bytes(pixel)
    with pytest.warns(UserWarning, match=r"'val' and 't.*the same classes.*class_names=\{'label'"):
        val = ps.open(tmp_path, split="val")
    train = ps.open(tmp_path / "train")
    names = ps.Loader(train, 3).class_names
    (batch,) = ps.Loader(val, 2, class_names=names)
    assert batch["label"].tolist() == [0, 2]
    assert len(ps.open(tmp_path, split="masks")) == 3
    shutil.rmtree(tmp_path / "val")
    assert len(ps.open(tmp_path, split="test")) == 2  # its classes have the numbers of train
