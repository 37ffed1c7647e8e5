"""Writing .beton: the layout, images in every mode, and what is refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.columns.types import ImageType, fixed_tensors
from penstock.formats.beton._layout import read_layout
from penstock.formats.beton.options import BetonOptions
from penstock.payloads.images import decode_images, encode_images, image_sizes
from penstock.storage import MemoryStorage

PAGE = 1 << 21


def stored(columns: Any, **options: Any) -> MemoryStorage:
    storage = MemoryStorage()
    options = {"page_bytes": PAGE, **options}
    ps.write(columns, "a.beton", storage=storage, index=False, **options)  # type: ignore[arg-type]
    return storage


def written(columns: Any, **options: Any) -> bytes:
    return stored(columns, **options).files["a.beton"]


def read(storage: MemoryStorage, **options: Any) -> pa.Table:
    dataset = ps.open("a.beton", storage=storage, index="never", **options)  # type: ignore[arg-type]
    return pa.Table.from_batches(list(dataset.scan()), schema=dataset.schema)


def back(columns: Any, **options: Any) -> pa.Table:
    return read(stored(columns, **options))


def images(values: list[bytes]) -> pa.Array:
    return pa.ExtensionArray.from_storage(ImageType(), pa.array(values, pa.binary()))


def pixels(count: int, height: int, width: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, height, width, 3), np.uint8)


def as_ppm(array: np.ndarray) -> list[bytes]:
    return encode_images(array, "ppm").storage.to_pylist()


def modes(data: bytes, count: int) -> list[int]:
    """The mode bytes of a file of one image field."""
    return [data[24 + 1041 + 13 * n] for n in range(count)]


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pa.array([1, -2], pa.int8()), [1, -2]),
        (pa.array([1, (1 << 63) - 1], pa.uint64()), [1, (1 << 63) - 1]),
        (pa.array([True, False]), [1, 0]),
        (pa.array([0.5, 2.0], pa.float16()), [0.5, 2.0]),
        (pa.array([0.5, 2.0], pa.float32()), [0.5, 2.0]),
        (pa.array(["é", ""]), ["é".encode(), b""]),
        (pa.array(["é", ""], pa.large_string()), ["é".encode(), b""]),
        (pa.array(["é", ""], pa.string_view()), ["é".encode(), b""]),
        (pa.array([b"ab", b"cd"], pa.binary(2)), [b"ab", b"cd"]),
        (pa.array([b"ab", b""], pa.large_binary()), [b"ab", b""]),
        (pa.array([b"ab", b""], pa.binary_view()), [b"ab", b""]),
        (pa.array(["cat", "dog"]).dictionary_encode(), [0, 1]),
        (pa.array(['{"é": 1}', "[]"], pa.json_()), ['{"\\u00e9": 1}', "[]"]),
        (pa.array(['"\U0001f600"', "0"], pa.json_()), ['"\\ud83d\\ude00"', "0"]),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.int16(), 2)), [[1, 2], [3, 4]]),
        (fixed_tensors(np.zeros((2, 0, 3), np.float32)), [[], []]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_values_come_back_as_the_documented_type(column: Any, wanted: list[Any]) -> None:
    assert back(pa.table({"x": column})).column("x").to_pylist() == wanted
    whole = pa.concat_arrays([column, column])
    assert back(pa.table({"x": whole.slice(1, 2)})).column("x").to_pylist() == wanted[::-1]


def test_empty_values_get_a_separate_byte() -> None:
    data = written({"b": [b"aa", b"", b"bcd", b"", b"", b"efgh"]})
    table = struct.unpack_from("<Q", data, 16)[0]
    entries = list(struct.iter_unpack("<QQQ", data[table:]))
    assert [size for _, _, size in entries] == [2, 1, 3, 1, 1, 4]
    assert len({place for _, place, _ in entries}) == 6
    sizes = [struct.unpack_from("<Q", data, 24 + 1041 + 16 * n + 8)[0] for n in range(6)]
    assert sizes == [2, 0, 3, 0, 0, 4]


def test_a_record_that_does_not_fit_begins_a_page() -> None:
    sizes = [PAGE - 10, 10, 1, PAGE, PAGE // 2, PAGE // 2, 1]
    columns = {
        "a": [bytes([1]) * (n - n // 2) for n in sizes],
        "b": [b"b" * (n // 2) for n in sizes],
    }
    storage = stored(columns)
    table = read(storage)
    assert [
        len(a) + max(len(b), 0) for a, b in zip(*table.to_pydict().values(), strict=True)
    ] == sizes
    data = storage.files["a.beton"]
    start = struct.unpack_from("<Q", data, 16)[0]
    pages: dict[int, set[int]] = {}
    for record, place, _ in struct.iter_unpack("<QQQ", data[start:]):
        pages.setdefault(record, set()).add(place // PAGE)
    # Record 2 has an empty value, which takes a byte as well.
    assert [sorted(found) for found in pages.values()] == [[1], [1], [2], [3], [4], [4], [5]]
    assert start == 6 * PAGE


def test_rows_that_outgrow_a_page_move_the_pages_in_their_way(tmp_path: Path) -> None:
    count = 200_000
    values = [b"%d" % n if n % 3 else b"" for n in range(count)]
    table = pa.table({"data": values, "n": np.arange(count)})
    for storage in (None, MemoryStorage()):
        path = str(tmp_path / "a.beton")
        ps.write(table, path, page_bytes=PAGE, storage=storage, index=False)  # type: ignore[arg-type]
        dataset = ps.open(path, storage=storage, index="never")  # type: ignore[arg-type]
        layout = read_layout(dataset.files.reader(0)._source, {})  # type: ignore[attr-defined]
        assert layout.first_page == 3 * PAGE
        assert pa.Table.from_batches(list(dataset.scan())).equals(table.cast(dataset.schema))
        data = Path(path).read_bytes() if storage is None else storage.files[path]
        rows_end = layout.rows_start + count * layout.row.itemsize
        assert not any(data[rows_end : layout.first_page])


def test_batch_sizes_and_threads_do_not_change_the_bytes() -> None:
    pictures = images(as_ppm(pixels(90, 5, 7)))
    table = pa.table(
        {"image": pictures, "n": np.arange(90), "b": [b"x" * (n % 4) for n in range(90)]}
    )
    for mode in ("jpg", "raw", "smart", "proportion"):
        one = written(table, image_mode=mode, threads=1)
        for cut, threads in ((1, 1), (7, 3), (90, 2)):
            batches = pa.Table.from_batches(table.to_batches(max_chunksize=cut))
            assert written(batches, image_mode=mode, threads=threads) == one


def test_writing_no_records_is_valid() -> None:
    table = pa.table({"b": pa.array([], pa.binary()), "n": pa.array([], pa.int64())})
    storage = stored(table)
    assert len(storage.files["a.beton"]) == 24 + 2 * 1041
    assert read(storage).num_rows == 0
    assert read(storage).schema.names == ["b", "n"]


# -- images ---------------------------------------------------------------------------------------


def test_jpegs_that_fit_are_copied_and_others_are_made() -> None:
    slope = np.arange(20)[:, None, None] * 6 + np.arange(30)[:, None] * 3 + np.arange(3) * 9
    array = np.stack([slope, slope[::-1], slope[:, ::-1]]).astype(np.uint8)
    jpeg = encode_images(array[:1], "jpeg", quality=30).storage[0].as_py()
    png = encode_images(array[1:2], "png").storage[0].as_py()
    grey = encode_images(array[2:3, :, :, 0], "jpeg").storage[0].as_py()
    table = back({"image": images([jpeg, png, grey])}, jpeg_quality=100)
    found = table.column("image").to_pylist()
    assert found[0] == jpeg
    assert found[2] == grey
    assert image_sizes([found[1]]).to_pylist() == [
        {"codec": "jpeg", "width": 30, "height": 20, "channels": 3}
    ]
    assert abs(decode_images([found[1]])[0].astype(int) - array[1]).mean() < 3
    small = back({"image": images([jpeg, png, grey])}, max_side=15)
    sizes = image_sizes(small.column("image").combine_chunks()).to_pylist()
    assert {(one["width"], one["height"], one["codec"]) for one in sizes} == {(15, 10, "jpeg")}


def test_a_jpeg_of_four_colours_is_encoded_again(corpus: Path) -> None:
    """ffcv cannot decode such a JPEG."""
    cmyk = (corpus / "jpeg" / "pillow-tests" / "pil_sample_cmyk.jpg").read_bytes()
    (found,) = back({"image": images([cmyk])}).column("image").to_pylist()
    (wanted,) = encode_images(decode_images([cmyk]), "jpeg").storage.to_pylist()
    assert found == wanted


def test_raw_images_keep_every_pixel() -> None:
    array = pixels(4, 6, 9)
    mixed = as_ppm(array[:2]) + encode_images(array[2:], "png").storage.to_pylist()
    data = written({"image": images(mixed)}, image_mode="raw")
    assert modes(data, 4) == [1] * 4
    found = back({"image": images(mixed)}, image_mode="raw").column("image").combine_chunks()
    assert found.storage.to_pylist() == as_ppm(array)
    uneven = as_ppm(array[:1]) + as_ppm(pixels(1, 3, 2))
    assert back({"image": images(uneven)}, image_mode="raw").column("image").to_pylist() == uneven
    small = back({"image": images(mixed)}, image_mode="raw", max_side=3).column("image")
    assert decode_images(small).shape == (4, 2, 3, 3)


def test_smart_stores_pixels_if_they_are_small() -> None:
    values = as_ppm(pixels(1, 2, 2)) + as_ppm(pixels(1, 50, 50)) + as_ppm(pixels(1, 10, 10))
    assert modes(written({"i": images(values)}, image_mode="smart", smart_threshold=300), 3) == [
        1,
        0,
        1,
    ]
    assert modes(written({"i": images(values)}, image_mode="smart", smart_threshold=299), 3) == [
        1,
        0,
        0,
    ]
    data = written({"i": images(values)}, image_mode="smart")
    jpegs = encode_images(decode_images([values[1]]), "jpeg").storage[0].as_py()
    assert modes(data, 3) == [1, int(len(jpegs) > 7500), 1]
    assert back({"i": images(values)}, image_mode="smart").column("i").to_pylist()[0] == values[0]


def test_proportion_chooses_by_its_seed() -> None:
    values = images(as_ppm(pixels(200, 4, 4)))
    one = written({"i": values}, image_mode="proportion", compress_probability=0.3, seed=1)
    other = written({"i": values}, image_mode="proportion", compress_probability=0.3, seed=2)
    assert modes(one, 200) != modes(other, 200)
    assert 100 < sum(modes(one, 200)) < 180
    assert (
        sum(modes(written({"i": values}, image_mode="proportion", compress_probability=1), 200))
        == 0
    )
    assert (
        sum(modes(written({"i": values}, image_mode="proportion", compress_probability=0), 200))
        == 200
    )


@pytest.mark.parametrize("mode", ["jpg", "raw", "smart", "proportion"])
def test_a_non_image_is_located(mode: str) -> None:
    values = [*as_ppm(pixels(2, 3, 3)), b"no image at all"]
    with pytest.raises(ps.SchemaError, match="the image cannot be stored") as caught:
        written({"n": [1, 2, 3], "i": images(values)}, image_mode=mode)
    assert (caught.value.record, caught.value.field) == (2, "i")


# -- what is refused ------------------------------------------------------------------------------

REFUSED: dict[str, tuple[str, Any]] = {
    "a long name": ("a" * 17, pa.array([1])),
    "a name beyond ASCII": ("é", pa.array([1])),
    "an empty name": ("", pa.array([1])),
    "a list": ("x", pa.array([[1]])),
    "a struct": ("x", pa.array([{"a": 1}])),
    "a timestamp": ("x", pa.array([1], pa.timestamp("s"))),
    "nulls": ("x", pa.array([None])),
    "a tensor without elements in a row": ("x", fixed_tensors(np.zeros((1, 3, 0), np.int8))),
    "a tensor of times": ("x", pa.array([[1]], pa.list_(pa.timestamp("s"), 1))),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_a_field_that_cannot_be_held_is_refused_before_anything_is_written(
    case: str, tmp_path: Path
) -> None:
    name, column = REFUSED[case]
    with pytest.raises(ps.SchemaError) as caught:
        ps.write(pa.table({name: column}), tmp_path / "a.beton")
    assert caught.value.field == name
    assert list(tmp_path.iterdir()) == []


VALUES: dict[str, Any] = {
    "a missing number": pa.array([1, None]),
    "a missing text": pa.array(["a", None]),
    "a missing tensor": pa.array([[1, 2], None], pa.list_(pa.int64(), 2)),
    "a missing element": pa.array([[1, 2], [3, None]], pa.list_(pa.int64(), 2)),
    "a number beyond int64": pa.array([1, 1 << 63], pa.uint64()),
    "a NUL in JSON": pa.array(["1", '"\0"'], pa.json_()),
    "a record larger than a page": pa.array([b"", bytes(PAGE + 1)]),
}


@pytest.mark.parametrize("case", list(VALUES))
def test_a_value_that_cannot_be_held_is_named_and_nothing_is_left(
    case: str, tmp_path: Path
) -> None:
    first = VALUES[case].slice(0, 1)
    chunks = pa.chunked_array([first, first, VALUES[case]])
    with pytest.raises(ps.SchemaError) as caught:
        ps.write(pa.table({"x": chunks}), tmp_path / "a.beton", page_bytes=PAGE)
    assert (caught.value.record, caught.value.field) == (3, "x")
    assert list(tmp_path.iterdir()) == []


def test_the_error_gives_page_bytes_for_a_large_record() -> None:
    with pytest.raises(ps.SchemaError, match=f"page_bytes={2 * PAGE}"):
        written({"x": [bytes(PAGE + 1)]})
    assert len(back({"x": [bytes(PAGE + 1)]}, page_bytes=2 * PAGE)) == 1


def test_clashing_label_names_are_refused() -> None:
    one = pa.array(["a", "b"]).dictionary_encode()
    other = pa.array(["b", "a"]).dictionary_encode()
    with pytest.raises(ps.SchemaError, match="names") as caught:
        written(pa.table({"x": pa.chunked_array([one, other])}))
    assert caught.value.record == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"image_mode": "png"},
        {"page_bytes": 1 << 20},
        {"page_bytes": 3 << 20},
        {"page_bytes": 1 << 32},
        {"jpeg_quality": 0},
        {"max_side": 0},
        {"compress_probability": 1.5},
    ],
    ids=str,
)
def test_options_beyond_their_bounds_are_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ps.write({"x": [1]}, tmp_path / "a.beton", **wrong)
    assert BetonOptions().page_bytes == 8 << 20
