"""Hints about types that a format cannot write, or that records do not fit."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
from PIL import Image
from steps import Case, Cases, equal_in, left_out, rows

import penstock as ps
from penstock.columns.types import ImageType

# -- writing --------------------------------------------------------------------------------------

DECIMALS = pa.array([1, 2], pa.decimal128(5, 2))
MAPS = pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64()))
INTERVALS = pa.array([(1, 2, 3), (4, 5, 6)], pa.month_day_nano_interval())


def unheld(ending: str, cast: dict[str, pa.Array], values: pa.Array = INTERVALS) -> Case:
    """A column that a format cannot hold, and the type that it was cast to."""
    table = pa.table({"a": values, "b": [1, 2]})

    def advised() -> None:
        for name, column in cast.items():
            path = f"{name}.{ending}"
            ps.write({"a": column, "b": [1, 2]}, path)
            found = pa.table(ps.open(path)).column(_called(path, "a")).to_pylist()
            assert found == column.to_pylist(), path
        ps.write(table, "all.arrow", overwrite=True)
        ps.convert("all.arrow", f"rest.{ending}", columns=["b"])
        rest = f"rest.{ending}"
        assert pa.table(ps.open(rest)).column(_called(rest, "b")).to_pylist() == [1, 2]

    return Case(lambda: ps.write(table, f"a.{ending}"), advised)


def _called(path: str, name: str) -> str:
    """The name of a column's field; in a tar it gets an ending."""
    return next(field for field in ps.open(path).schema.names if field.split(".")[0] == name)


def and_arrow(case: Case, values: pa.Array) -> Case:
    def advised() -> None:
        case.advised()
        equal_in(pa.table({"a": values, "b": [1, 2]}), "b.arrow")

    return case._replace(advised=advised)


NUMBERS = {
    "integers": pa.array([1, 2]),
    "floats": pa.array([1.0, 2.0], pa.float32()),
    "text": pa.array(["1.00", "2.00"]),
    "binary": pa.array([b"1.00", b"2.00"]),
    "lists": pa.array([[1], [2]]),
}
STRUCTS = {"structs": pa.array([{"p": 1}, {"p": 2}]), "times": pa.array([1, 2], pa.timestamp("us"))}


def intervals_in_tfrecord() -> Case:
    return and_arrow(unheld("tfrecord", NUMBERS), INTERVALS)


def maps_in_tfrecord() -> Case:
    return and_arrow(unheld("tfrecord", {}, MAPS), MAPS)


def intervals_in_msgpack() -> Case:
    case = unheld("msgpack", NUMBERS | STRUCTS)
    hint = (
        "cast it to numbers, strings, binary, timestamps, or lists or structs of these, leave it "
    )
    return and_arrow(case, INTERVALS)._replace(hint=f"{hint}out (columns=), or write Arrow")


def decimals_of_msgpack() -> Case:
    ps.write({"a": [1.5, 2.25]}, "a.msgpack")

    def read(type_: pa.DataType) -> Any:
        return pa.table(ps.open("a.msgpack", schema=pa.schema([("a", type_)]))).column("a")

    def advised() -> None:
        found = read(pa.float64()).cast(pa.decimal128(5, 2))
        assert [str(value) for value in found.to_pylist()] == ["1.50", "2.25"]

    hint = (
        "read it as numbers, strings, binary, timestamps, or lists or structs of these, and cast "
    )
    return Case(lambda: read(DECIMALS.type), advised, f"{hint}it afterwards")


def decimals_beyond_int64() -> Case:
    values = pa.array([1, 2**70], pa.decimal128(38, 0))
    cast = {"floats": values.cast(pa.float64()).cast(pa.float32()), "text": pa.array(["1", "2"])}
    case = and_arrow(unheld("tfrecord", cast, values), values)

    def advised() -> None:
        case.advised()
        equal_in(pa.table({"a": values}), "c.parquet")

    return case._replace(advised=advised)


def unheld_in_tar() -> Case:
    return and_arrow(unheld("tar", NUMBERS), INTERVALS)


def intervals_in_tar() -> Case:
    return and_arrow(unheld("tar", {}, INTERVALS), INTERVALS)


def intervals_in_beton() -> Case:
    tensors = pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2))
    texts = [json.dumps({"value": text}) for text in ("1.00", "2.00")]
    values = pa.ExtensionArray.from_storage(pa.json_(), pa.array(texts))
    some = {name: NUMBERS[name] for name in ("integers", "text")}
    return unheld("beton", {**some, "tensors": tensors, "json": values})


def pack(**columns: Any) -> dict[str, Any]:
    return {"label": [1, 2], "image": [b"p", b"q"], **columns}


def _recordio(wrong: dict[str, Any], right: dict[str, Any], **expected: list[Any]) -> Case:
    def advised() -> None:
        ps.write(right, "b.rec")
        found = pa.table(ps.open("b.rec")).to_pydict()
        assert {name: found[name] for name in expected} == expected
        ps.write(wrong, "b.arrow")
        assert pa.table(ps.open("b.arrow")).equals(pa.table(wrong))

    return Case(lambda: ps.write(wrong, "a.rec"), advised)


def texts_as_data() -> Case:
    right = {"data": pa.array(["p", "q"]).cast(pa.binary())}
    return _recordio({"data": ["p", "q"]}, right, data=[b"p", b"q"])


def texts_as_images() -> Case:
    texts = pa.array(["p", "q"])
    right = pack(image=texts.cast(pa.binary()))
    return _recordio(pack(image=texts), right, image=[b"p", b"q"], label=[1, 2])


def intervals_as_labels() -> Case:
    return _recordio(
        pack(label=INTERVALS), pack(label=pa.array([1, 2], pa.float32())), label=[1, 2]
    )


def texts_as_labels() -> Case:
    texts = pa.array(["cat", "dog"])
    return _recordio(pack(label=texts), pack(label=texts.dictionary_encode()), label=["cat", "dog"])


def texts_as_ids() -> Case:
    texts = pa.array(["7", "8"])
    case = _recordio(pack(id=texts), pack(id=texts.cast(pa.int64())), id=[7, 8])

    def advised() -> None:
        case.advised()
        left_out(pa.table(pack(id=texts)), "id", "c.arrow")
        ps.convert("all.arrow", "c.rec", columns=["label", "image"])
        assert [record["id"] for record in rows("c.rec")] == [0, 1]

    return case._replace(advised=advised)


def no_labels() -> Case:
    empty, right = ({"label": [[1], last], "image": [PNG] * 2} for last in ([], [0]))
    case = _recordio(empty, right, label=[[1], [0]])

    def advised() -> None:
        case.advised()
        found = [list(record["label"]) for record in rows("b.rec", label="list", index="never")]
        assert found == [[1], [0]]

    return case._replace(advised=advised)


def scalar_in_feature_lists() -> Case:
    def advised() -> None:
        ps.write({"feature_lists/a": [[1], [2]]}, "a.tfrecord", payload="sequence")
        assert rows("a.tfrecord") == [{"a": [1]}, {"a": [2]}]
        ps.write({"a": [1, 2], "feature_lists/b": [[3], []]}, "b.tfrecord", payload="sequence")
        assert rows("b.tfrecord") == [{"a": 1, "b": [3]}, {"a": 2, "b": []}]

    wrong = {"feature_lists/a": [1, 2]}
    return Case(lambda: ps.write(wrong, "c.tfrecord", payload="sequence"), advised)


def image_file(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), (9, 8, 7)).save(file, "PNG")
    return file.getvalue()


PNG = image_file(2, 1)


def wide_image(**how: Any) -> Case:
    images = pa.ExtensionArray.from_storage(ImageType("png"), pa.array([image_file(66_000, 1)]))

    def advised() -> None:
        ps.write({"image": images}, "a.beton", max_side=1000, **how)
        (pixels,) = ps.decode_images(pa.table(ps.open("a.beton")).column("image"))
        assert pixels.shape == (1, 1000, 3)
        assert np.abs(pixels.astype(int) - [9, 8, 7]).max() <= 2

    return Case(lambda: ps.write({"image": images}, "a.beton", **how), advised)


def wide_pixels() -> Case:
    return wide_image(image_mode="raw")


# -- reading --------------------------------------------------------------------------------------


def permuted() -> Case:
    ps.write({"a": [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]}, "a.tfrecord")

    def read(**options: Any) -> Any:
        type_ = pa.fixed_shape_tensor(pa.float32(), [2, 3], **options)
        return rows("a.tfrecord", schema=pa.schema([("a", type_)]))[0]["a"].tolist()

    def advised() -> None:
        assert read() == [[1, 2, 3], [4, 5, 6]]

    return Case(lambda: read(permutation=[1, 0]), advised)


def tar(path: str, members: list[tuple[str, bytes]]) -> None:
    with tarfile.open(path, "w") as file:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))


def late_float64() -> Case:
    def npy(n: int) -> bytes:
        made = io.BytesIO()
        np.save(made, np.array([n, 0.1], np.float32 if n < 1000 else np.float64))
        return made.getvalue()

    tar("a.tar", [(f"{n:04}.x.npy", npy(n)) for n in range(1001)])

    def read(**options: Any) -> Any:
        return ps.open("a.tar", **options).take([1000]).column("x.npy")[0].as_py()

    def advised() -> None:
        assert read(infer_records="all") == [1000, 0.1]
        wide = pa.schema([("x.npy", pa.fixed_shape_tensor(pa.float64(), [2]))])
        assert read(schema=wide) == [1000, 0.1]

    return Case(read, advised)


def value_where_none_was() -> Case:
    tar("a.tar", [("0.x.bin", b"q")])

    def read(type_: pa.DataType) -> Any:
        return rows("a.tar", schema=pa.schema([("x.bin", type_)]))

    def advised() -> None:
        assert read(pa.binary()) == [{"x.bin": b"q"}]

    return Case(lambda: read(pa.null()), advised)


def images_with(labels: list[Any]) -> dict[str, Any]:
    return {"label": labels, "image": [PNG] * len(labels)}


def other_number_of_labels() -> Case:
    labels = [[1, 2]] * 1001 + [[3]]
    ps.write(images_with(labels), "a.rec", index=False)

    def advised() -> None:
        assert [list(record["label"]) for record in rows("a.rec", label="list")] == labels

    return Case(lambda: rows("a.rec"), advised, 'open(..., label="list")')


def cut_header() -> Case:
    ps.write(images_with([1] * 1001), "a.rec", index=False)
    ps.write({"data": [b"short"]}, "b.rec")
    Path("a.rec").write_bytes(Path("a.rec").read_bytes() + Path("b.rec").read_bytes())

    def advised() -> None:
        kept = rows("a.rec", damage="skip")
        assert [(record["label"], record["image"]) for record in kept] == [(1, PNG)] * 1001
        whole = [record["data"] for record in rows("a.rec", header=False)]
        assert len(whole) == 1002 and whole[0].endswith(PNG) and whole[-1] == b"short"

    hint = 'open(..., damage="skip") leaves such records out, header=False gives whole payloads'
    return Case(lambda: rows("a.rec"), advised, hint)


def values_behind_an_array() -> Case:
    Path("a.msgpack").write_bytes(b"\x92\x81\xa1a\x01\x81\xa1a\x02" + b"\x91\x81\xa1a\x03")

    def advised() -> None:
        found = [record["record"] for record in rows("a.msgpack", layout="values")]
        assert list(map(msgpack.unpackb, found)) == [[{"a": 1}, {"a": 2}], [{"a": 3}]]

    return Case(lambda: rows("a.msgpack"), advised)


def two_kinds_to_compare() -> Case:
    for name, first, last in (("a", 1, 0.5), ("b", 2, 0.75)):
        ps.write({"x": [first] * 1001, "y": [5] * 1001}, "one.tfrecord", overwrite=True)
        ps.write({"x": [last], "y": [6]}, "two.tfrecord", overwrite=True)
        parts = [Path(f"{one}.tfrecord").read_bytes() for one in ("one", "two")]
        Path(f"{name}.tfrecord").write_bytes(b"".join(parts))

    def same(**options: Any) -> bool:
        return ps.diff(*(ps.open(f"{name}.tfrecord", **options) for name in "ab")).equal

    def advised() -> None:
        assert not same(raw=True)
        assert same(schema=pa.schema([("y", pa.int64())]))

    return Case(lambda: ps.diff("a.tfrecord", "b.tfrecord"), advised)


CASES: Cases = {
    "'cast it to float64 or text, or write Parquet or Arrow, which hold decimals'": decimals_beyond_int64,
    "'cast it to integers, floats, strings, binary or lists of these, leave it out (columns=), or write Arrow'": (
        intervals_in_tfrecord,
        maps_in_tfrecord,
    ),
    "'cast it to numbers, strings, binary, timestamps, or lists or structs of these, leave it out (columns=), or write Arrow' if use == 'write' else 'read it as numbers, strings, binary, timestamps, or lists or structs of these, and cast it afterwards'": (
        intervals_in_msgpack,
        decimals_of_msgpack,
    ),
    "'cast it to a number, a string, binary or a list of these, leave it out (columns=), or write Arrow'": (
        unheld_in_tar,
        intervals_in_tar,
    ),
    "'cast it to a number, text or a tensor, write it as JSON, or leave it out (columns=)'": (
        intervals_in_beton
    ),
    "'cast it to binary, or write Arrow'": (texts_as_data, texts_as_images),
    "'cast it to numbers, dictionary_encode() it, or write Arrow'": (
        intervals_as_labels,
        texts_as_labels,
    ),
    "'cast it to integers, or leave it out (columns=)'": texts_as_ids,
    "'give each record at least one label'": no_labels,
    "'[value] instead of value, or another name for a feature of the context'": (
        scalar_in_feature_lists
    ),
    "'max_side=, to shrink it'": (wide_image, wide_pixels),
    "'a tensor type without a permutation, with the shape of the values'": permuted,
    "'open(..., infer_records=\"all\"), or schema= with the wider type'": late_float64,
    "'open(..., schema=...) with a type for it'": value_where_none_was,
    "'open(..., label=\"list\")'": other_number_of_labels,
    "'open(..., damage=\"skip\") leaves such records out, header=False gives whole payloads'": cut_header,
    "'open(..., layout=\"values\") reads each top-level value as a record'": values_behind_an_array,
    "'open(..., raw=True) to compare payloads, or a schema without this field'": (
        two_kinds_to_compare
    ),
}
