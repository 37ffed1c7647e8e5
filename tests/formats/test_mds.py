"""MDS: files written by mosaicml-streaming, every encoding, and everything that can be wrong with a shard."""

from __future__ import annotations

import json
import random
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from fuzz.mds_shards import index_of, one_column, shard, simple
from penstock.columns.types import is_fixed_tensor, is_image, is_json, is_variable_tensor
from penstock.storage import MemoryStorage


def opened(data: bytes, path: str = "x.mds", **options: Any) -> ps.Dataset:
    return ps.open(path, storage=MemoryStorage({path: data}), **options)


def column(data: bytes, **options: Any) -> list[Any]:
    return [row["x"] for row in opened(data, **options)]


def as_arrays(field: pa.Field, values: list[Any]) -> list[Any]:
    """Values of a tensor column as nested lists."""
    if is_fixed_tensor(field.type):
        return [np.reshape(value, field.type.shape).tolist() for value in values]
    if is_variable_tensor(field.type):
        return [np.reshape(value["data"], value["shape"]).tolist() for value in values]
    return [json.loads(value) for value in values] if is_json(field.type) else values


# -- the peer's files -----------------------------------------------------------------------------


def test_golden_records_equal_what_the_peer_wrote(golden: Path) -> None:
    rows = json.loads((golden / "neighbours" / "mds.expected.json").read_text())["rows"]
    dataset = ps.open(golden / "neighbours" / "mds")
    table = pa.Table.from_batches(dataset.scan())
    for row in rows:
        row["b"] = bytes.fromhex(row["b"]["bytes_hex"])
    for field in dataset.schema:
        values = as_arrays(field, table[field.name].to_pylist())
        assert values == [row[field.name] for row in rows], field.name


def test_golden_compressed_shards_come_in_order(golden: Path) -> None:
    dataset = ps.open(golden / "neighbours" / "mds_zstd")
    assert len(dataset.paths) == 2
    assert list(dataset) == [{"t": f"t{x}", "x": x} for x in range(40)]
    assert dataset.take([39, 0, 21, 20])["x"].to_pylist() == [39, 0, 21, 20]


def test_all_encodings_of_the_corpus_are_read(corpus: Path) -> None:
    folder = corpus / "mds" / "peer-made"
    rows = json.loads((folder / "mds_all_encodings.expected.json").read_text())["samples"]
    dataset = ps.open(folder / "mds_all_encodings")
    table = pa.Table.from_batches(dataset.scan())
    for field in dataset.schema:
        values = as_arrays(field, table[field.name].to_pylist())
        wanted = [row[field.name] for row in rows]
        if field.name == "n_bytes":
            wanted = [bytes.fromhex(value["hex"]) for value in wanted]
        elif field.name in ("p_nd", "q_nd_t", "r_nd_ts"):
            wanted = [value["data"] for value in wanted]
        elif field.name == "t_pil":
            sizes = [b"%d %d" % tuple(value["size"]) for value in wanted]
            assert [value.split(b"\n")[1] for value in values] == sizes
            continue
        elif field.name == "s_png":
            assert all(value.startswith(b"\x89PNG") for value in values)
            continue
        assert values == wanted, field.name
    assert is_image(dataset.schema.field("s_png").type)
    assert dataset.schema.field("t_pil").type.codec == "ppm"


@pytest.mark.parametrize(
    ("name", "num_records"),
    [
        ("naive_MDSdataset", 5),
        ("naive_MDSdataset/25", 2),
        ("naive_MDSdataset/26", 3),
        ("sample_dataset-y", 100),
        ("sample_dataset-color", 100),
    ],
)
def test_corpus_folders_hold_what_the_manifest_states(
    corpus: Path, name: str, num_records: int
) -> None:
    dataset = ps.open(corpus / "mds" / "streaming" / name)
    assert len(dataset) == sum(batch.num_rows for batch in dataset.scan()) == num_records


def test_shards_are_known_by_their_bytes(corpus: Path, golden: Path) -> None:
    files = [*corpus.glob("mds/**/*.mds"), *golden.glob("neighbours/mds/*.mds")]
    assert len(files) >= 5
    for path in files:
        dataset = opened(path.read_bytes(), "neutral")
        assert dataset.shards[0].format == "mds"


# -- encodings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "uint64", "float16", "float64"])
def test_numbers_keep_their_type(dtype: str) -> None:
    values = np.array([0, 1, 77], dtype)
    data = one_column(dtype, [value.tobytes() for value in values], values.itemsize)
    assert column(data) == values.tolist()
    assert opened(data).schema.field("x").type == pa.from_numpy_dtype(values.dtype)


def test_exact_numbers_stay_exact() -> None:
    big = 10**37 + 1
    assert column(one_column("str_int", [b"5", str(-big).encode()])) == [Decimal(5), Decimal(-big)]
    assert column(one_column("str_float", [b"0.1", b"-inf", b"1e-300"])) == [
        0.1,
        -float("inf"),
        1e-300,
    ]
    assert column(one_column("str_decimal", [b"1.10"])) == ["1.10"]


def test_a_number_that_no_column_can_hold_can_be_read_as_text() -> None:
    data = one_column("str_int", [b"1", b"9" * 50])
    with pytest.raises(ps.SchemaError, match="string") as caught:
        column(data)
    assert (caught.value.record, caught.value.field) == (1, "x")
    assert column(data, schema=pa.schema([("x", pa.string())])) == ["1", "9" * 50]
    small = one_column("str_int", [b"7"])
    assert column(small, schema=pa.schema([("x", pa.int16())])) == [7]


def array(dtype: str, values: np.ndarray, code: int, shape_code: int) -> bytes:
    head = bytes([code, values.ndim << 2 | shape_code])
    shape = np.array(values.shape, f"<u{1 << shape_code}").tobytes()
    return head + shape + values.astype(dtype).tobytes()


def test_arrays_of_any_shape_code_are_read() -> None:
    values = [np.arange(3), np.arange(300), np.arange(2)]
    data = [array("int16", v, 17, code) for v, code in zip(values, (0, 1, 3), strict=True)]
    assert column(one_column("ndarray", data)) == [v.tolist() for v in values]
    assert column(one_column("ndarray:int16", [d[1:] for d in data])) == [
        v.tolist() for v in values
    ]


def test_arrays_of_several_axes_are_tensors() -> None:
    values = [np.arange(6).reshape(2, 3), np.arange(4).reshape(4, 1)]
    dataset = opened(one_column("ndarray", [array("float32", v, 34, 0) for v in values]))
    field = dataset.schema.field("x")
    assert is_variable_tensor(field.type)
    wanted = [v.tolist() for v in values]
    assert [row["x"].tolist() for row in dataset] == wanted
    assert as_arrays(field, dataset.take([0, 1])["x"].to_pylist()) == wanted


def test_an_array_unlike_the_first_can_be_read_as_stored() -> None:
    data = [array("int16", np.arange(3), 17, 0), array("int32", np.arange(3), 33, 0)]
    with pytest.raises(ps.SchemaError, match="binary") as caught:
        column(one_column("ndarray", data))
    assert caught.value.record == 1
    assert column(one_column("ndarray", data), schema=pa.schema([("x", pa.binary())])) == data


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\x11",
        b"\x11\x08\x02",
        b"\x11\x04\x02\x00",
        b"\x63\x04\x01\x00",
        b"\x11\x07\xff\xff\xff\xff\xff\xff\xff\xff\0\0",
        b"\x11\x04\x03\0\0\0\0\0\0\0",
    ],
)
def test_a_broken_array_is_an_error_with_its_place(damage: bytes) -> None:
    good = array("int16", np.arange(3), 17, 0)
    for values, record in ([good, damage], 1), ([damage, good], 0):
        with pytest.raises((ps.FormatError, ps.SchemaError)) as caught:
            column(one_column("ndarray", values))
        assert caught.value.record == record
        assert caught.value.file == "x.mds"


def pil(mode: bytes, width: int, height: int, pixels: bytes) -> bytes:
    return struct.pack("<III", width, height, len(mode)) + mode + pixels


def test_pixels_travel_as_portable_pixmaps() -> None:
    data = one_column("pil", [pil(b"RGB", 2, 1, b"abcdef"), pil(b"L", 1, 2, b"xy")])
    assert column(data) == [b"P6\n2 1\n255\nabcdef", b"P5\n1 2\n255\nxy"]


def test_pixels_of_other_modes_stay_as_they_are() -> None:
    rgba, grey = pil(b"RGBA", 1, 1, b"abcd"), pil(b"L", 1, 1, b"x")
    assert column(one_column("pil", [rgba, grey])) == [rgba, grey]
    with pytest.raises(ps.SchemaError, match="RGBA"):
        column(one_column("pil", [grey, rgba]))
    assert column(one_column("pil", [grey, rgba]), schema=pa.schema([("x", pa.binary())])) == [
        grey,
        rgba,
    ]


@pytest.mark.parametrize(
    "damage", [b"", b"\1", pil(b"L", 2, 2, b"x"), pil(b"L", 1 << 31, 1 << 31, b""), b"\1" * 12]
)
def test_a_broken_image_is_an_error(damage: bytes) -> None:
    with pytest.raises((ps.FormatError, ps.SchemaError)) as caught:
        column(one_column("pil", [pil(b"L", 1, 1, b"x"), damage]))
    assert caught.value.record == 1


def items(*values: bytes) -> bytes:
    sizes = b"".join(struct.pack("<I", len(value)) for value in values)
    return struct.pack("<II", 0, len(values)) + sizes + b"".join(values)


def test_lists_of_images_are_lists() -> None:
    data = one_column("list[jpeg]", [items(b"one", b"two"), items(), items(b"")])
    assert column(data) == [[b"one", b"two"], [], [b""]]
    assert is_image(opened(data).schema.field("x").type.value_type)
    grey = pil(b"L", 1, 1, b"x")
    assert column(one_column("list[pil]", [items(), items(grey, grey)])) == [
        [],
        [b"P5\n1 1\n255\nx"] * 2,
    ]
    with pytest.raises(ps.FormatError) as caught:
        column(one_column("list[pil]", [items(grey), items(grey, b"bad")]))
    assert caught.value.record == 1


@pytest.mark.parametrize("damage", [b"", b"\0" * 7, b"\1" + b"\0" * 7, items(b"abc")[:-1]])
def test_a_broken_list_is_an_error(damage: bytes) -> None:
    with pytest.raises(ps.FormatError) as caught:
        column(one_column("list[png]", [items(b"good"), damage]))
    assert caught.value.record == 1


def test_a_pickle_is_refused_unless_its_column_is_left_out() -> None:
    columns = {"bad": ("pkl", None), "x": ("uint8", 1)}
    data = shard(columns, [{"bad": b"cos\nsystem\n(S'false'\ntR.", "x": b"\7"}])
    with pytest.raises(ps.UnsupportedError, match="pickle") as caught:
        list(opened(data))
    assert caught.value.field == "bad"
    with pytest.raises(ps.UnsupportedError, match="pickle"):
        opened(data, schema=pa.schema([("bad", pa.binary())])).take([0])
    assert list(opened(data, columns=["x"])) == [{"x": 7}]
    with pytest.raises(ps.UnsupportedError, match="pickle"):
        list(opened(one_column("list[pkl]", [items(b"N.")])))


def test_text_that_is_not_utf8_is_an_error_with_its_place() -> None:
    with pytest.raises(ps.FormatError, match="UTF-8") as caught:
        column(one_column("str", [b"good", b"\xff", b"good"]))
    assert (caught.value.record, caught.value.field) == (1, "x")


def test_long_and_short_values_are_truncated_at_the_right_length() -> None:
    values = [bytes([n % 251]) * n for n in (0, 1, 11, 12, 13, 14, 100, 5000, 12, 3)]
    assert column(one_column("bytes", values)) == values
    dataset = opened(one_column("bytes", values))
    order = [9, 0, 7, 7, 3, 4]
    assert dataset.take(order)["x"].to_pylist() == [values[n] for n in order]


# -- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mmap", [False, True])
def test_scan_and_take_agree_over_many_chunks(tmp_path: Path, mmap: bool) -> None:
    rng = random.Random(3)
    values = [rng.randbytes(rng.choice((0, 10, 3000))) for _ in range(6000)]
    path = tmp_path / "x.mds"
    path.write_bytes(one_column("bytes", values))
    dataset = ps.open(path, mmap=mmap)
    batches = list(dataset.scan())
    assert len(batches) > 2
    assert [v for batch in batches for v in batch["x"].to_pylist()] == values
    order = [rng.randrange(6000) for _ in range(500)]
    assert dataset.take(order)["x"].to_pylist() == [values[n] for n in order]


def test_columns_and_schema_choose_and_cast() -> None:
    data = simple(list(range(5)))
    assert opened(data, columns=["x"])[4] == {"x": 4}
    schema = pa.schema([("x", pa.int8()), ("text", pa.large_string())])
    assert opened(data, schema=schema)[3] == {"x": 3, "text": "t3"}
    assert [batch.num_rows for batch in opened(data).scan(columns=[])] == [5]
    with pytest.raises(ps.SchemaError, match="no such column"):
        opened(data, schema=pa.schema([("y", pa.int8())]))
    with pytest.raises(ps.SchemaError):
        list(opened(simple([300]), schema=pa.schema([("x", pa.int8())])))
    with pytest.raises(ps.UnsupportedError):
        opened(data, raw=True)
    with pytest.raises(TypeError, match="no option"):
        opened(data, shuffle=True)


def test_an_empty_shard_has_no_records() -> None:
    dataset = opened(simple([]))
    assert (len(dataset), list(dataset), dataset.schema.names) == (0, [], ["text", "x"])


def test_records_beyond_the_limit_are_refused() -> None:
    data = one_column("bytes", [bytes(5000)])
    with pytest.raises(ps.LimitError, match="record_bytes") as caught:
        column(data, limits={"record_bytes": 4999})
    assert caught.value.record == 0
    assert len(column(data, limits={"record_bytes": 5100})) == 1
    with pytest.raises(ps.LimitError, match="footer_bytes"):
        opened(simple(list(range(100))), limits={"footer_bytes": 100})


def test_it_is_read_and_not_written(tmp_path: Path) -> None:
    with pytest.raises(ps.UnsupportedError, match="cannot write"):
        ps.write({"x": [1]}, tmp_path / "x.mds")
    assert list(tmp_path.iterdir()) == []


# -- what is wrong --------------------------------------------------------------------------------


def test_every_truncation_is_an_error_with_its_place() -> None:
    data = simple([1, 2, 3])
    for length in range(1, len(data)):
        with pytest.raises(ps.PenstockError) as caught:
            list(opened(data[:length]))
        assert caught.value.file == "x.mds"
    with pytest.raises(ps.FormatError, match="after the last"):
        opened(data + b"\0")


def test_flipped_bits_end_in_records_or_an_error() -> None:
    good = (
        simple([1, 2, 3]) + b"",
        one_column("ndarray", [array("int16", np.arange(3), 17, 0)]),
        one_column("list[pil]", [items(pil(b"L", 1, 1, b"x"))]),
    )
    rng = random.Random(9)
    for data in good:
        for _ in range(1500):
            bad = bytearray(data)
            for _ in range(rng.choice((1, 1, 1, 3))):
                bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
            try:
                for batch in opened(bytes(bad)).scan():
                    batch.validate(full=True)
                    batch.to_pylist()
            except ps.PenstockError:
                pass


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"version": 3}, "another format"),
        ({"format": "json"}, "another format"),
        ({"column_names": ["text"]}, "of the same length"),
        ({"column_names": None}, "of the same length"),
        ({"column_names": ["x", "x"]}, "twice"),
        ({"column_names": ["text", 5]}, "not text"),
        ({"column_encodings": ["str", "complex64"]}, "unknown encoding"),
        ({"column_encodings": ["str", "list[list[jpeg]]"]}, "unknown encoding"),
        ({"column_encodings": ["str", "ndarray:object"]}, "unknown encoding"),
        ({"column_encodings": ["str", "ndarray:int8:0"]}, "unknown encoding"),
        ({"column_encodings": ["str", "ndarray:int64:9999999999,9999999999"]}, "more bytes"),
        ({"column_sizes": [None, 4]}, "a wrong size"),
        ({"column_sizes": [None, None]}, "a wrong size"),
        ({"column_sizes": [2, 8]}, "a wrong size"),
        ({"column_sizes": [None, -8]}, "not a valid number"),
        ({"column_sizes": [None, True]}, "not a valid number"),
        ({"column_sizes": [None, 8.0]}, "not a valid number"),
    ],
)
def test_a_wrong_config_is_refused(config: dict[str, Any], message: str) -> None:
    columns = {"text": ("str", None), "x": ("int", 8)}
    data = shard(columns, [{"text": b"a", "x": bytes(8)}], **config)
    with pytest.raises(ps.PenstockError, match=message):
        opened(data)


@pytest.mark.parametrize("text", [b"{", b"[]", b"7", b"\xff", b"[" * 100_000])
def test_a_config_that_is_not_a_config_is_refused(text: bytes) -> None:
    end = 12 + len(text)
    with pytest.raises(ps.FormatError, match="config"):
        opened(struct.pack("<III", 1, end, end) + text)


def test_records_with_wrong_sizes_are_refused() -> None:
    data = bytearray(simple([1, 2, 3]))
    start = struct.unpack_from("<I", data, 8)[0]  # the position of record 1
    for size in (0, 1, 3, 1 << 31, (1 << 32) - 1):
        struct.pack_into("<I", data, start, size)
        with pytest.raises(ps.FormatError, match="do not add up") as caught:
            list(opened(bytes(data)))
        assert (caught.value.record, caught.value.byte) == (1, start)


def test_reading_continues_after_a_damaged_record() -> None:
    data = bytearray(simple([1, 2, 3]))
    struct.pack_into("<I", data, struct.unpack_from("<I", data, 8)[0], 9)
    dataset = opened(bytes(data), damage="skip")
    assert [row["x"] for row in dataset] == [1, 3]
    assert [region.num_records for region in dataset.damage] == [1]


def test_other_files_are_not_taken_for_shards() -> None:
    from penstock.formats.mds.format import MDSFormat

    fmt = MDSFormat()
    rng = random.Random(4)
    heads = [bytes(4096), b"\xff" * 4096, *(rng.randbytes(4096) for _ in range(500))]
    heads += [index_of(), b"{}", struct.pack("<III", 1, 12, 12), struct.pack("<4I", 0, 9, 9, 9)]
    assert not any(fmt.sniff(head, 1 << 20) for head in heads)
    many = simple(list(range(5000)))
    assert fmt.sniff(many[:4096], len(many))


def test_only_the_needed_bytes_of_large_records_are_read() -> None:
    columns = {"big": ("bytes", None), "t": ("str", None), "x": ("uint16", 2)}
    rows = [{"big": bytes([n]) * 40_000, "t": b"t%d" % n, "x": bytes([n, 0])} for n in range(120)]
    data = bytearray(shard(columns, rows))
    order = [119, 3, 3, 50]
    dataset = opened(bytes(data))
    assert [row["big"] for row in dataset] == [row["big"] for row in rows]
    assert dataset.take(order).to_pylist() == [
        {"big": rows[n]["big"], "t": f"t{n}", "x": n} for n in order
    ]
    assert opened(bytes(data), columns=["x"]).take(order)["x"].to_pylist() == order
    start = struct.unpack_from("<I", data, 4 + 4 * 60)[0]
    data[start] ^= 1
    with pytest.raises(ps.FormatError, match="do not add up") as caught:
        list(opened(bytes(data)))
    assert (caught.value.record, caught.value.byte) == (60, start)
