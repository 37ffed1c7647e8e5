"""`penstock.to_hf`."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import datasets
import penstock as ps


def test_records_images_and_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    labels = pa.array(["cat", "dog"]).dictionary_encode()
    table = pa.table(
        {
            "image": ps.encode_images(pixels, "png"),
            "label": labels,
            "tokens": [[1, 2], []],
            "text": ["a", None],
            "vector": pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((2, 3))),
        }
    )
    ps.write(table, tmp_path / "data.parquet")
    ds = ps.open(tmp_path / "data.parquet")
    found = ps.to_hf(ds, tmp_path / "cache")
    assert isinstance(found, datasets.Dataset)
    assert np.array_equal(np.asarray(found[1]["image"]), pixels[1])
    assert isinstance(found.features["image"], datasets.Image)
    assert found.features["label"].names == ["cat", "dog"]
    assert found["label"][:] == [0, 1]
    assert found[0]["tokens"] == [1, 2]
    assert found["text"][:] == ["a", None]
    assert found[0]["vector"] == [1.0, 1.0, 1.0]
    assert Image.open(io.BytesIO(ds[0]["image"])).size == (4, 4)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the records are in the cache")

    monkeypatch.setattr("penstock.adapters.hf._write", refuse)
    assert ps.to_hf(ps.open(tmp_path / "data.parquet"), tmp_path / "cache")[0]["tokens"] == [1, 2]
    view = ps.open(tmp_path / "data.parquet").select(["tokens"])
    with pytest.raises(AssertionError, match="in the cache"):
        ps.to_hf(view, tmp_path / "cache")  # other columns make a different cache file
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".arrow"]


def test_views(tmp_path: Path) -> None:
    ps.write({"id": np.arange(10)}, tmp_path / "ids.tfrecord")
    view = ps.open(tmp_path / "ids.tfrecord").filter("id > 6")
    assert ps.to_hf(view, tmp_path / "cache")["id"][:] == [7, 8, 9]
