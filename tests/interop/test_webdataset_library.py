"""webdataset and penstock read each other's archives, with the same records."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import webdataset

import penstock as ps
from penstock.columns.types import ImageType

# webdataset leaves its files to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

OWN = ("__key__", "__url__", "__local_path__")


def by_webdataset(path: Path, *, decoded: bool = False) -> list[dict[str, Any]]:
    dataset = webdataset.WebDataset(str(path), shardshuffle=False)
    samples = list(dataset.decode() if decoded else dataset)
    return [{k: v for k, v in s.items() if k not in OWN[1:]} for s in samples]


def by_penstock(path: Path, **options: Any) -> list[dict[str, Any]]:
    rows = list(ps.open(str(path), index="never", **options))
    return [{k: v for k, v in row.items() if v is not None and k not in OWN[1:]} for row in rows]


def test_webdataset_reads_the_decoded_values_of_a_shard_of_penstock(tmp_path: Path) -> None:
    count = 300
    images = pa.array([b"\xff\xd8 %d" % n for n in range(count)], pa.binary())
    table = pa.table(
        {
            "__key__": [f"{n:05}" if n % 7 else f"dir.x/long-{'é' * 80}{n}" for n in range(count)],
            "jpg": pa.ExtensionArray.from_storage(ImageType("jpeg"), images),
            "cls": range(count),
            "caption": [f"number {n} ü" if n % 3 else None for n in range(count)],
            "vector": pa.array(
                [[n / 3] * (n % 4 + 1) for n in range(count)], pa.list_(pa.float32())
            ),
            "meta": pa.array([json.dumps({"n": n}) for n in range(count)]).cast(pa.json_()),
        }
    )
    rows = table.to_pylist()
    for name, how in {"a.tar": {}, "a.tar.gz": {"compression": "gzip"}}.items():
        ps.write(table, str(tmp_path / name), **how)
        found = by_webdataset(tmp_path / name, decoded=True)
        assert len(found) == count
        for sample, row in zip(found, rows, strict=True):
            assert sample["__key__"] == row["__key__"]
            assert sample["cls"] == row["cls"]
            assert sample["jpg"] == row["jpg"]
            assert sample.get("caption.txt") == row["caption"]
            assert sample["meta.json"] == json.loads(row["meta"])
            assert sample["vector.npy"].dtype == np.float32
            assert sample["vector.npy"].tolist() == row["vector"]
        assert by_webdataset(tmp_path / name) == by_penstock(tmp_path / name, decode=False)


def test_a_note_says_how_webdataset_decodes_images_of_several_codecs(tmp_path: Path) -> None:
    pixels = np.zeros((1, 4, 6, 3), np.uint8)
    mixed = [ps.encode_images(pixels, codec).storage[0].as_py() for codec in ("jpeg", "png")]
    ps.write({"image": mixed, "cls": [0, 1]}, tmp_path / "in.parquet")

    def types_of(path: Path, name: str) -> list[str]:
        dataset = webdataset.WebDataset(str(path), shardshuffle=False).decode("pil")
        return [type(sample[name]).__name__ for sample in dataset]

    made = ps.convert(tmp_path / "in.parquet", tmp_path / "a.tar")
    assert types_of(tmp_path / "a.tar", "image.img") == ["bytes", "bytes"]
    (note,) = made.notes
    assert "convert(..., rename={'image': 'jpg'}, image_mode='jpg') writes .jpg" in note
    made = ps.convert(
        tmp_path / "in.parquet", tmp_path / "b.tar", rename={"image": "jpg"}, image_mode="jpg"
    )
    assert types_of(tmp_path / "b.tar", "jpg") == ["Image", "Image"]
    assert made.notes == ()


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
def test_penstock_reads_what_webdataset_writes(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    wanted = []
    with webdataset.TarWriter(str(path)) as writer:
        for n in range(300):
            key = f"{n:06}" if n % 5 else "k" * 120 + f"é{n}"
            sample = {
                "__key__": key,
                "cls": n,
                "txt": f"text é {n}",
                "json": {"n": [n]},
                "npy": np.full((2, n % 3 + 1), n, np.int16),
                "bin": bytes([n % 256]) * n,
            }
            writer.write(sample)
            wanted.append(sample)
    for found, sample in zip(by_penstock(path), wanted, strict=True):
        assert {k: found[k] for k in ("__key__", "cls", "txt", "bin")} == {
            k: sample[k] for k in ("__key__", "cls", "txt", "bin")
        }
        assert json.loads(found["json"]) == sample["json"]
        assert isinstance(found["npy"], np.ndarray)
        np.testing.assert_array_equal(found["npy"], sample["npy"], strict=True)
    assert by_penstock(path, decode=False) == by_webdataset(path)


def test_shards_are_named_in_braces_as_webdataset_names_them(tmp_path: Path) -> None:
    with webdataset.ShardWriter(str(tmp_path / "s-%04d.tar"), maxcount=7, verbose=0) as writer:
        for n in range(30):
            writer.write({"__key__": f"{n:04}", "cls": n})
    pattern = str(tmp_path / "s-{0000..0004}.tar")
    samples = [s["cls"] for s in webdataset.WebDataset(pattern, shardshuffle=False).decode()]
    assert [record["cls"] for record in ps.open(pattern)] == samples == list(range(30))


def test_numpy_reads_every_array_that_penstock_writes(tmp_path: Path) -> None:
    shapes = [(), (3,), (0,), (2, 0, 3), (1, 2, 3)]
    for dtype in ("int8", "uint16", "float16", "float32", "float64", "int64"):
        for shape in shapes[1:]:
            values = np.arange(4 * int(np.prod(shape))).reshape(4, *shape).astype(dtype)
            type_ = pa.fixed_shape_tensor(pa.from_numpy_dtype(values.dtype), shape)
            flat = pa.array(values.ravel())
            lists = pa.FixedSizeListArray.from_buffers(
                type_.storage_type, 4, [None], children=[flat]
            )
            column = pa.ExtensionArray.from_storage(type_, lists)
            ps.write(pa.table({"x": column}), str(tmp_path / "a.tar"), overwrite=True)
            for sample, value in zip(by_webdataset(tmp_path / "a.tar"), values, strict=True):
                found = np.load(io.BytesIO(sample["x.npy"]), allow_pickle=False)
                assert found.dtype == value.dtype
                np.testing.assert_array_equal(found, value)
            assert ps.open(str(tmp_path / "a.tar")).take([2]).column("x").equals(column.slice(2, 1))
