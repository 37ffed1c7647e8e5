"""penstock reads the shards that mosaicml-streaming wrote (tests/golden/mds), with the values that were given to its
writer."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import penstock as ps

FOLDER = Path(__file__).parents[1] / "golden" / "mds"


def image(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def test_every_encoding_of_the_peer_is_read() -> None:
    dataset = ps.open(FOLDER / "all")
    assert len(dataset.paths) > 1
    rows = list(dataset)
    assert len(rows) == len(dataset) == 12
    for i, row in enumerate(rows):
        assert (row["a"], row["b"], row["s"]) == (i, bytes([i]) * (i * 7), f"é{i}")
        assert json.loads(row["j"]) == {"i": i, "x": [1]}
        assert (row["u"], row["h"], row["sf"]) == (i, i / 8, i / 7)
        assert (row["si"], Decimal(row["sd"])) == (-(10**25) + i, Decimal(i) / 4)
        assert row["n"] == list(range(i % 4 + 1))
        assert row["n2"].tolist() == [[float(i)] * 2] * (i % 3 + 1)
        assert row["nf"].tolist() == [[float(i)] * 3] * 2
        assert image(row["p"]).size == (i % 5 + 1, 3)
        assert image(row["p"]).getpixel((0, 0)) == (i, 2, 3)
        assert image(row["g"]).getpixel((3, 3)) == (1, 2, i)
        assert [image(data).getpixel((1, 1)) for data in row["lg"]] == [(i, 0, 0)] * (i % 2 + 1)
        assert [image(data).format for data in row["lj"]] == ["JPEG"] * (i % 3 + 1)
        assert [image(data).size for data in row["lp"]] == [(2, i % 3 + 1)] * (i % 3 + 1)
    order = [11, 0, 5, 5, 7]
    found = [row for n in order for row in dataset[n : n + 1].to_pylist()]
    assert dataset.take(order).to_pylist() == found
    for got, n in zip(dataset.__getitems__(order), order, strict=True):
        assert got.keys() == rows[n].keys()
        for name, value in rows[n].items():
            assert np.array_equal(got[name], value), name


@pytest.mark.parametrize("codec", ["zstd", "gz", "br", "bz2", "snappy"])
def test_every_compression_of_the_peer_is_read(codec: str) -> None:
    dataset = ps.open(FOLDER / codec)
    assert all(path.endswith(f".mds.{codec}") for path in dataset.paths)
    assert [(r["a"], r["b"], r["s"]) for r in dataset] == [
        (i, bytes([i]) * (i * 7), f"é{i}") for i in range(12)
    ]
    assert dataset.take([11, 3])["a"].to_pylist() == [11, 3]
