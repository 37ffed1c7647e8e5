"""Reading .beton: golden files and options."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from fuzz.beton import plain
from penstock.columns.types import ImageType, fixed_tensors
from penstock.formats.beton.format import BetonFormat
from penstock.payloads.images import decode_images
from penstock.storage import MemoryStorage

PAGE = 1 << 21
HEADER = struct.Struct("<HHIQQ")


def golden_bytes(golden: Path, name: str) -> bytes:
    path = golden / "beton" / name
    return gzip.decompress(path.with_name(name + ".gz").read_bytes())


def expected(golden: Path, name: str) -> Any:
    return json.loads((golden / "beton" / f"{name}.expected.json").read_text())


def opened(data: bytes, **options: Any) -> ps.Dataset:
    storage = MemoryStorage({"a.beton": data})
    return ps.open("a.beton", storage=storage, index="never", **options)  # type: ignore[arg-type]


def read(data: bytes, **options: Any) -> pa.Table:
    dataset = opened(data, **options)
    table = pa.Table.from_batches(list(dataset.scan(threads=1)), schema=dataset.schema)
    table.validate(full=True)
    return table


def written(columns: Any, **options: Any) -> bytes:
    storage = MemoryStorage()
    options = {"page_bytes": PAGE, **options}
    ps.write(columns, "a.beton", storage=storage, index=False, **options)  # type: ignore[arg-type]
    return storage.files["a.beton"]


def put(data: bytes, at: int, form: str, *values: Any) -> bytes:
    changed = bytearray(data)
    struct.pack_into("<" + form, changed, at, *values)
    return bytes(changed)


def ppm(pixels: np.ndarray) -> bytes:
    return b"P6\n%d %d\n255\n" % (pixels.shape[1], pixels.shape[0]) + pixels.tobytes()


# -- golden files -------------------------------------------------------------------------------


def test_every_kind_of_field_reads_as_ffcv_wrote_it(golden: Path) -> None:
    said = expected(golden, "all_fields.beton")
    table = read(golden_bytes(golden, "all_fields.beton"))
    assert table.schema.names == said["field_names"]
    for record, sample in zip(table.to_pylist(), said["samples"], strict=True):
        assert record["image"] == ppm(np.array(sample["image_rgb"], np.uint8))
        assert (record["label"], record["w"]) == (sample["label"], sample["w"])
        assert list(record["by"]) == sample["by"]
        assert record["nd"] == np.array(sample["nd"]).reshape(-1).tolist()
        assert json.loads(record["js"]) == sample["js"]
        assert record["tt"] == sample["tt"]
    assert table.schema.field("nd").type == pa.fixed_shape_tensor(pa.float32(), (2, 3))
    assert table.schema.field("image").type == ImageType()


def test_jpegs_are_the_stored_bytes(golden: Path) -> None:
    data = golden_bytes(golden, "jpg.beton")
    said = expected(golden, "jpg.beton")
    table = read(data)
    stored = [data[ptr : ptr + size] for _, ptr, size in said["alloc_table"]]
    assert table.column("image").to_pylist() == stored
    (key,) = (key for key in said if key.startswith("decoded"))
    found = decode_images(table.column("image")).astype(int)
    assert abs(found - np.array(said[key])).max() <= 5


def test_pages_and_scalars_read_as_ffcv_wrote_them(golden: Path) -> None:
    table = read(golden_bytes(golden, "pages.beton"))
    wanted = [{"a": bytes([n]) * 700_000, "b": bytes([n]) * 300_000, "l": n} for n in range(12)]
    assert table.to_pylist() == wanted
    rows = expected(golden, "scalars.beton")["rows"]
    table = read((golden / "beton" / "scalars.beton").read_bytes())
    assert [list(record.values()) for record in table.to_pylist()] == rows


@pytest.mark.parametrize("name", ["pages.beton", "jpg.beton", "all_fields.beton"])
def test_written_again_the_golden_files_are_the_same_bytes(golden: Path, name: str) -> None:
    data = golden_bytes(golden, name)
    mode = "raw" if name == "all_fields.beton" else "jpg"
    again = bytearray(written(read(data), image_mode=mode))
    if name == "all_fields.beton":
        again[24 + 6 * 1041] = (
            6  # a tensor of torch is written as an array: other number, same bytes
        )
    assert bytes(again) == data


def test_a_file_of_another_peer_reads_as_stated(corpus: Path) -> None:
    folder = corpus / "ffcv" / "peer-made"
    data = gzip.decompress((folder / "ffcv_mixed.beton.gz").read_bytes())
    said = json.loads((folder / "ffcv_mixed.expected.json").read_text())["samples"]
    table = read(data)
    assert plain(data) == [column.to_pylist() for column in table.columns]
    for record, sample in zip(table.to_pylist(), said, strict=True):
        assert (record["label"], record["weight"]) == (sample["int"], sample["float"])
        assert list(decode_images([record["image"]]).shape[1:3]) == sample["image_hw"]
        assert hashlib.sha256(record["blob"]).hexdigest() == sample["bytes_sha256"]
        vector = np.array(record["nd"], "<f4").tobytes()
        assert hashlib.sha256(vector).hexdigest() == sample["nd_sha256"]
        assert json.loads(record["meta"]) == sample["json"]


@pytest.mark.parametrize("neutral", [False, True])
def test_a_file_that_its_writer_never_finished_says_so(
    corpus: Path, tmp_path: Path, neutral: bool
) -> None:
    path = corpus / "ffcv" / "Self-Supervised-Learning" / "dataset.beton"
    if neutral:
        path = Path(tmp_path / "neutral")
        path.write_bytes((corpus / "ffcv/Self-Supervised-Learning/dataset.beton").read_bytes())
    with pytest.raises(ps.TruncatedError, match="never finished"):
        list(ps.open(str(path), index="never").scan())


# -- ways of reading ----------------------------------------------------------------------------


def mixed(count: int = 40) -> pa.Table:
    rng = np.random.default_rng(2)
    pictures = [ppm(rng.integers(0, 256, (3, 2 + n % 3, 3), np.uint8)) for n in range(count)]
    return pa.table(
        {
            "id": np.arange(count),
            "data": [rng.bytes(n % 5) for n in range(count)],
            "vector": fixed_tensors(rng.standard_normal((count, 2, 2)).astype(np.float32)),
            "text": pa.array([f'{{"n": {n}}}' for n in range(count)], pa.json_()),
            "image": pa.ExtensionArray.from_storage(ImageType(), pa.array(pictures)),
        }
    )


def test_a_map_and_plain_reads_give_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.beton"
    ps.write(mixed(), path, image_mode="raw")
    wanted = mixed().to_pylist()
    for mmap in (False, True):
        dataset = ps.open(path, mmap=mmap, index="never")
        assert pa.Table.from_batches(list(dataset.scan())).to_pylist() == wanted
        some = [7, 3, 3, 39]
        assert dataset.take(some).to_pylist() == [wanted[n] for n in some]


def test_mapped_values_that_follow_one_another_are_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "a.beton"
    ps.write({"data": [bytes([n]) * 1000 for n in range(100)]}, path)
    reader = ps.open(path, mmap=True, index="never").files.reader(0)
    (chunk,) = reader.chunks()
    one, two = (reader.decode(chunk, None, None).column(0).buffers()[2] for _ in range(2))
    assert one.address == two.address


def test_a_schema_chooses_and_casts_fields() -> None:
    data = written({"name": ["a", "é"], "n": [1, 2]})
    table = read(data, schema=pa.schema([("n", pa.int8()), ("name", pa.string())]))
    assert table.to_pylist() == [{"n": 1, "name": "a"}, {"n": 2, "name": "é"}]
    with pytest.raises(ps.SchemaError):
        read(written({"n": [300]}), schema=pa.schema([("n", pa.int8())]))
    with pytest.raises(ps.SchemaError, match="no such column"):
        read(data, schema=pa.schema([("m", pa.int8())]))


def test_raw_records_are_not_to_be_had() -> None:
    with pytest.raises(ps.UnsupportedError, match="raw=True"):
        read(written({"n": [1]}), raw=True)


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "<i2", "<u4", "<i8", "<u8", "<f2", "<f8"])
def test_tensors_keep_dtype_and_shape(dtype: str) -> None:
    values = np.random.default_rng(1).integers(0, 2, (7, 3, 1, 2)).astype(dtype)
    table = read(written({"v": fixed_tensors(values)}))
    assert table.schema.field("v").type.shape == [3, 1, 2]
    found = table.column("v").combine_chunks().to_numpy_ndarray() if dtype != "?" else None
    if found is None:
        flat = table.column("v").combine_chunks().storage.flatten().to_numpy(zero_copy_only=False)
        found = flat.reshape(values.shape)
    assert found.dtype == values.dtype
    assert (found == values).all()


def test_tensors_of_big_numbers_are_turned_round() -> None:
    data = written({"v": fixed_tensors(np.array([[1, 2]], "<i4"))})
    table = read(data.replace(b'[["", "<i4"]]', b'[["", ">i4"]]'))
    assert table.column("v").to_pylist() == [[1 << 24, 2 << 24]]


@pytest.mark.parametrize("described", [b'[["", "<c8"]]', b'[["", "|O8"]]', b'[["", "<U1"]]'])
def test_a_dtype_that_arrow_lacks_spares_the_other_fields(described: bytes) -> None:
    data = written({"n": [5], "v": fixed_tensors(np.array([[1, 2]], "<i4"))})
    data = data.replace(b'[["", "<i4"]]', described)
    assert read(data, columns=["n"]).to_pylist() == [{"n": 5}]
    with pytest.raises(ps.UnsupportedError, match="no type") as caught:
        read(data)
    assert caught.value.field == "v"


def test_a_custom_field_type_must_be_given() -> None:
    data = put(written({"box": np.arange(3), "n": [4, 5, 6]}), 24, "B", 255)
    with pytest.raises(ps.UnsupportedError, match="user-defined") as caught:
        read(data)
    assert caught.value.field == "box"
    assert "custom_fields" in str(caught.value)
    table = read(data, custom_fields={"box": "<i4,<i4"})
    assert table.column("n").to_pylist() == [4, 5, 6]
    assert table.column("box").to_pylist()[1] == struct.pack("<q", 1)
    assert read(data, columns=["n"], custom_fields={"box": "<u8"}).schema.names == ["n"]
    with pytest.raises(ps.UnsupportedError, match="lacks"):
        read(data, custom_fields={"box": "<u8", "other": "<u8"})


def test_the_table_may_be_in_any_order() -> None:
    jpegs = ps_jpegs(30)
    data = written({"image": jpegs, "data": [b"x"] * 30})
    start = HEADER.unpack_from(data)[4]
    entries = [data[n : n + 24] for n in range(start, len(data), 24)]
    random.Random(1).shuffle(entries)
    shuffled = data[:start] + b"".join(entries)
    assert read(shuffled).to_pylist() == read(data).to_pylist()
    assert (
        opened(shuffled).take([4, 29, 4]).to_pylist() == opened(data).take([4, 29, 4]).to_pylist()
    )


def test_values_without_bytes_as_ffcv_writes_them() -> None:
    """ffcv gives an empty value the place of the next one, and an entry of no bytes."""
    data = written({"b": [b"", b"ab"], "image": ps_jpegs(2)})
    start = HEADER.unpack_from(data)[4]
    (ptr,) = struct.unpack_from("<Q", data, start + 24 + 8)
    data = put(data, start, "QQQ", 0, ptr, 0)
    data = put(data, 24 + 2 * 1041, "QQ", ptr, 0)
    assert read(data).column("b").to_pylist() == [b"", b"ab"]
    far = put(data, 24 + 2 * 1041, "QQ", (1 << 64) - 5, 0)
    assert read(far).column("b").to_pylist() == [b"", b"ab"]


def test_json_ends_at_its_first_nul() -> None:
    data = written({"j": pa.array(['{"a": 1}', "[2, 3]"], pa.json_())})
    cut = put(data, PAGE + 4, "B", 0)
    assert read(cut).column("j").to_pylist() == ['{"a"', "[2, 3]"]
    with pytest.raises(ps.FormatError, match="UTF-8") as caught:
        read(put(data, PAGE + 10, "B", 0xFF))
    assert (caught.value.record, caught.value.field) == (1, "j")


def ps_jpegs(count: int) -> pa.ExtensionArray:
    from penstock.payloads.images import encode_images

    pixels = np.random.default_rng(7).integers(0, 256, (count, 4, 6, 3), np.uint8)
    return pa.ExtensionArray.from_storage(ImageType(), encode_images(pixels, "jpeg").storage)


def two_fields() -> bytes:
    return written({"data": [b"abc", b"defg"], "n": [1, 2]})


# -- telling the format -------------------------------------------------------------------------


def test_only_a_beton_is_taken_for_a_beton(golden: Path) -> None:
    data = two_fields()
    sniff = BetonFormat().sniff
    assert sniff(data[:4096], len(data))
    assert not sniff(data[:1000], 1000)
    assert not sniff(put(data, 4, "I", 1 << 20)[:4096], len(data))
    assert not sniff(put(data, 24, "B", 9)[:4096], len(data))
    assert not sniff(put(data, 24 + 1041 + 8, "B", 65)[:4096], len(data))  # after a name's end
    others = [path for path in golden.rglob("*") if path.is_file() and "beton" not in str(path)]
    assert len(others) > 50
    for path in others:
        with path.open("rb") as file:
            assert not sniff(file.read(4096), path.stat().st_size), path


def test_values_beyond_the_limit_of_a_batch_are_scanned_in_smaller_batches(tmp_path: Path) -> None:
    ps.write({"a": [b"x" * 9] * 3}, tmp_path / "a.beton")
    limited = ps.open(tmp_path / "a.beton", limits={"batch_bytes": 20})
    assert [batch.num_rows for batch in limited.scan()] == [1, 2]
    with pytest.raises(ps.LimitError, match="batch would take 27 bytes") as refused:
        limited.take([0, 1, 2])
    assert refused.value.record is None
