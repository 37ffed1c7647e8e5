"""Values as text: truncated, escaped, and described by their kind."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import describe
from penstock.columns.types import ImageType, VariableShapeTensorType

VP8X = b"RIFF\0\0\0\0WEBPVP8X" + struct.pack("<IB", 10, 0) + b"\0\0\0" + b"\x3f\0\0" + b"\x1f\0\0"
VP8L = b"RIFF\0\0\0\0WEBPVP8L" + b"\0\0\0\0\x2f" + struct.pack("<I", 63 | 31 << 14)
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 64, 32)
GIF = b"GIF89a" + struct.pack("<HH", 64, 32)
# An APP0 segment, fill bytes, then the frame header.
JPEG = b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xff\xc2\0\x0b\x08" + struct.pack(">HH", 32, 64)


@pytest.mark.parametrize(
    ("kind", "data"), [("WebP", VP8X), ("WebP", VP8L), ("PNG", PNG), ("GIF", GIF), ("JPEG", JPEG)]
)
def test_headers_of_images_are_read(kind: str, data: bytes) -> None:
    assert describe.image_header(data) == describe.ImageHeader(kind, 64, 32)
    for end in range(len(data)):
        assert describe.image_header(data[:end]) is None
    assert describe.value(pa.scalar(data)) == f"{kind} 64x32, {len(data)} B"


def test_images_of_the_corpus_have_the_size_that_pillow_reads(corpus: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="compares with Pillow")
    kinds = {"jpeg": "JPEG", "png": "PNG", "webp": "WebP"}
    judged = 0
    for folder, kind in kinds.items():
        for path in sorted((corpus / folder).rglob("*")):
            if not path.is_file():
                continue
            try:
                with image.open(path) as opened:
                    size, found = opened.size, opened.format
            except Exception:
                continue
            if found == kind.upper():
                header = describe.image_header(path.read_bytes())
                assert header is not None, path
                assert (header.kind, header.width, header.height) == (kind, *size), path
                judged += 1
    assert judged > 50


@given(st.binary(max_size=200), st.sampled_from([b"", b"\xff\xd8", b"GIF8", PNG[:12], VP8X[:16]]))
def test_any_bytes_become_one_printable_line(data: bytes, start: bytes) -> None:
    for width in (8, 30):
        shown = describe.value(pa.scalar(start + data), width)
        assert shown.isprintable()
    assert len(describe.value(pa.scalar(data), 40)) <= 40 or describe.image_header(data)


@given(st.text(max_size=100))
def test_any_text_is_escaped_to_printable(text: str) -> None:
    assert describe.escape(text).isprintable()
    if text.isprintable():
        assert describe.escape(text) == text


@pytest.mark.parametrize(
    ("value", "type_", "shown"),
    [
        (None, pa.int64(), "null"),
        (0.1, pa.float32(), "0.1"),
        (b"caf\xc3\xa9", pa.binary(), "café"),
        (b"caf\xc3\xa9", pa.binary_view(), "café"),
        (b"\xff\x00", pa.binary(), "0xff00"),
        (b"", pa.binary(), ""),
        ([], pa.list_(pa.int8()), "[]"),
        (["a, b", None], pa.list_(pa.string()), "['a, b', null]"),
        (
            {"a": 1, "b": [1]},
            pa.struct({"a": pa.int8(), "b": pa.list_(pa.int8())}),
            "{a: 1, b: [1]}",
        ),
        ([("k", 1)], pa.map_(pa.string(), pa.int8()), "[('k', 1)]"),
    ],
)
def test_values_are_shown_by_their_type(value: object, type_: pa.DataType, shown: str) -> None:
    assert describe.value(pa.scalar(value, type_)) == shown


def test_tensors_are_shown_with_their_shape() -> None:
    type_ = pa.fixed_shape_tensor(pa.int32(), [2, 3])
    array = pa.ExtensionArray.from_storage(type_, pa.array([list(range(6))], type_.storage_type))
    assert describe.value(array[0]) == "int32[2, 3] [0, 1, 2, 3, 4, 5]"


def test_long_values_are_truncated_and_shown_with_their_length() -> None:
    assert describe.value(pa.scalar("x" * 5000), 20) == "x" * 11 + "… 5.00 kB"
    assert describe.value(pa.scalar(zlib.compress(b"x") * 100), 20).endswith("… 900 B")
    assert describe.value(pa.scalar(list(range(1000))), 20) == "[0, 1, … of 1,000]"


def test_a_huge_list_is_shown_quickly() -> None:
    values = pa.array([0]).take(pa.array([0] * 1_000_000))
    scalar = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)[0]
    assert describe.value(scalar, 400).endswith("… of 1,000,000]")


def test_sizes_have_three_digits() -> None:
    shown = [describe.size(n) for n in (0, 999, 1000, 12_345, 999_499, 999_500, 10**12)]
    assert shown == ["0 B", "999 B", "1.00 kB", "12.3 kB", "999 kB", "1.00 MB", "1.00 TB"]


def test_bars_are_empty_only_for_zero() -> None:
    assert describe.bars([0, 1, 1000]) == " ▁█"
    assert describe.bars([]) == ""
    assert len(describe.bars([1] * 64)) == 32


@pytest.mark.parametrize(
    ("type_", "words"),
    [
        (ImageType("jpeg"), "image (jpeg)"),
        (ImageType(), "image"),
        (pa.fixed_shape_tensor(pa.uint8(), [32, 32, 3]), "tensor uint8 [32, 32, 3]"),
        (VariableShapeTensorType(pa.float32(), 2), "tensor float [?, ?]"),
        (pa.json_(), "json"),
        (pa.dictionary(pa.int32(), pa.string()), "label (string)"),
        (pa.list_(ImageType("png")), "list<image (png)>"),
        (pa.list_(pa.int16(), 4), "list<int16>[4]"),
        (pa.struct([("a", pa.json_()), ("b", pa.int8())]), "struct<a: json, b: int8>"),
        (pa.int64(), "int64"),
        (pa.uuid(), "arrow.uuid (fixed_size_binary[16])"),
    ],
)
def test_types_are_described_in_words(type_: pa.DataType, words: str) -> None:
    assert describe.kind(type_) == words


def test_a_dtype_that_arrow_lacks_is_shown_with_the_type_that_stores_it() -> None:
    assert describe.kind(pa.uint16(), b"bfloat16") == "bfloat16 (kept as uint16)"
