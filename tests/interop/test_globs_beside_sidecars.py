"""Globs of other readers must not match the files that penstock stores next to data. The readers are TensorFlow,
webdataset, torch, pyarrow and datasets, with `*` and `**`, and with every kind of file that penstock stores there."""

from __future__ import annotations

import glob
import os
from pathlib import Path

import pytest

import penstock as ps
from penstock.storage import append_journal as journal
from penstock.storage.hidden import is_own

# webdataset does not close the files that it reads.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two shards in a folder of folders, with indexes, kept types, overlays, notes and journals next to them."""
    root = tmp_path / "data"
    for part in ("one", "two"):
        (root / part).mkdir(parents=True)
        path = str(root / part / "train-00000-of-00001")
        made = ps.write({"text": ["a", "b"]}, f"{path}.tfrecord").paths[0]
        os.rename(made, path)
        ps.index(path)
        ps.add_fields(path, {"score": [1, 2]})
        Path(journal.path_for(path)).write_bytes(b"{}")
        (root / part / ".penstock-fields-0123456789ab.json").write_bytes(b"{}")
        (root / part / ".penstock-convert-0123456789ab.json").write_bytes(b"{}")
        (root / part / f".{os.path.basename(path)}.0123456789ab.penstock-tmp").write_bytes(b"x")
        kept = [name for name in os.listdir(root / part) if is_own(name)]
        assert len(kept) >= 6
    return root


def wanted(folder: Path) -> list[str]:
    return sorted(str(folder / part / "train-00000-of-00001") for part in ("one", "two"))


def test_python(folder: Path) -> None:
    assert sorted(glob.glob(f"{folder}/*/*")) == wanted(folder)
    found = [path for path in glob.glob(f"{folder}/**", recursive=True) if os.path.isfile(path)]
    assert sorted(found) == wanted(folder)


def test_penstock(folder: Path) -> None:
    assert sorted(ps.open(f"{folder}/*/*").paths) == wanted(folder)
    assert sorted(ps.open(folder).paths) == wanted(folder)


def test_tensorflow(folder: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    found = sorted(tf.io.gfile.glob(f"{folder}/*/train-*"))
    assert found == wanted(folder)
    assert sorted(tf.io.matching_files(f"{folder}/*/train-*").numpy()) == [
        os.fsencode(path) for path in found
    ]
    assert sum(1 for _ in tf.data.TFRecordDataset(found)) == 4


def test_webdataset_and_torch(tmp_path: Path) -> None:
    wds = pytest.importorskip("webdataset")
    for number in range(2):
        ps.write({"__key__": ["a", "b"], "txt": ["x", "y"]}, tmp_path / f"t-{number}.tar")
    found = sorted(glob.glob(f"{tmp_path}/t-*"))
    assert [os.path.basename(path) for path in found] == ["t-0.tar", "t-1.tar"]
    data = wds.WebDataset(found, shardshuffle=False)
    assert sum(1 for _ in data) == 4
    torch_data = pytest.importorskip("torch.utils.data")
    assert sum(1 for _ in torch_data.DataLoader(data.to_tuple("txt"), batch_size=None)) == 4


def test_pyarrow(tmp_path: Path) -> None:
    import pyarrow.dataset

    folder = tmp_path / "tables"
    folder.mkdir()
    for number in range(2):
        ps.write({"n": [1, 2]}, folder / f"t-{number}.parquet")
        ps.add_fields(folder / f"t-{number}.parquet", {"m": [3, 4]})
    assert pyarrow.dataset.dataset(str(folder), format="parquet").count_rows() == 4


def test_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))  # datasets reads this when it is imported
    datasets = pytest.importorskip("datasets")
    tables = tmp_path / "tables"
    (tables / "more").mkdir(parents=True)
    for name in ("t-0.parquet", "t-1.parquet", "more/t-2.parquet"):
        ps.write({"n": [1, 2]}, tables / name)
        ps.index(tables / name, checksums=True)
        ps.add_fields(tables / name, {"m": [3, 4]})
        assert [other for other in os.listdir((tables / name).parent) if is_own(other)]
    for pattern, count in (("t-*", 4), ("*/t-*", 2), ("**", 6)):
        made = datasets.load_dataset(
            "parquet",
            data_files=str(tables / pattern),
            split="train",
            cache_dir=str(tmp_path / "cache"),
        )
        assert len(made) == count, pattern
