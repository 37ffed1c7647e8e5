"""Hints about tables of labels, folders of images and packs of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from steps import IMAGES, Case, Cases, folder_of_images, png, rows

import penstock as ps

FORMS = (
    'use an array of objects, or one object per line, each with file_name; or open(..., table="", '
    'other_files="ignore"), which reads no table'
)
GOOD = '{"file_name": "0.png", "label": 7}\n{"file_name": "1.png", "label": 8}\n'


def labels() -> list[int]:
    return [record["label"] for record in rows("d")]


def odd_json(text: str) -> Case:
    folder_of_images(json=text)

    def advised() -> None:
        only = rows("d", table="", other_files="ignore")
        assert [record["image"] for record in only] == list(IMAGES.values())
        folder_of_images(json=GOOD)
        assert labels() == [7, 8]
        folder_of_images(json="[" + GOOD.strip().replace("\n", ",") + "]")
        assert labels() == [7, 8]

    return Case(lambda: rows("d"), advised, FORMS)


def numbers_in_json() -> Case:
    return odd_json("[1, 2]")


def broken_json() -> Case:
    return odd_json('{"file_name": ')


def text_like_a_number() -> Case:
    data = {"image": [png(1)], "code": ["7"]}

    def advised() -> None:
        for table in ("parquet", "jsonl"):
            ps.write(data, table, format="imagefolder", table=table)
            assert [record["code"] for record in rows(table)] == ["7"]

    hint = 'write(..., table="parquet") or table="jsonl", which keeps types'
    return Case(lambda: ps.write(data, "d", format="imagefolder", table="csv"), advised, hint)


def picture_column(wrong: dict[str, Any]) -> Case:
    def advised() -> None:
        pixels = np.full((1, 1, 2, 3), 9, np.uint8)
        ps.write({"image": ps.encode_images(pixels, "png")}, "e", format="imagefolder")
        (record,) = rows("e")
        (found,) = ps.decode_images([record["image"]])
        assert found.tolist() == [[[9] * 3] * 2]

    hint = "call the column of images 'image'; penstock.encode_images makes one of pixels"
    return Case(lambda: ps.write(wrong, "d", format="imagefolder"), advised, hint)


def no_picture_column() -> Case:
    return picture_column({"picture": [png(9)]})


def pixels_as_pictures() -> Case:
    return picture_column({"image": pa.array([[9, 9]])})


def other_columns() -> Case:
    data = {"cls": [7], "image": [png(1)], "more": [1]}
    ps.write(data, "all.arrow")

    def advised() -> None:
        how: dict[str, Any] = {"columns": ["cls", "image"], "rename": {"cls": "label"}}
        ps.convert("all.arrow", "b.rec", **how)
        (record,) = rows("b.rec", index="never")
        assert (record["label"], record["image"]) == (7, png(1))

    return Case(lambda: ps.write(data, "a.rec"), advised)


def large_label(label: float, right: dict[str, Any], hint: str, name: str) -> Case:
    def advised() -> None:
        ps.write({"image": [png(1)], **right}, "b.rec")
        (record,) = rows("b.rec", index="never")
        assert record[name] == right[name][0]

    return Case(lambda: ps.write({"label": [label], "image": [png(1)]}, "a.rec"), advised, hint)


def label_beyond_float32() -> Case:
    return large_label(1e300, {"label": [1e300 * 1e-300]}, "scale the labels", "label")


def label_that_rounds() -> Case:
    hint = "RecordIO stores labels as float32, which holds whole numbers up to 2^24; id is uint64"
    number = (1 << 24) + 1
    return large_label(number, {"label": [0], "id": [number]}, hint, "id")


def narrow_schema() -> Case:
    ps.write({"label": [300], "image": [png(1)]}, "a.rec")

    def read(type_: pa.DataType) -> Any:
        schema = pa.schema([("label", type_), ("image", pa.binary())])
        return rows("a.rec", schema=schema)[0]["label"]

    def advised() -> None:
        assert read(pa.int16()) == 300

    return Case(lambda: read(pa.int8()), advised)


CASES: Cases = {
    '\'use an array of objects, or one object per line, each with file_name; or open(..., table="", other_files="ignore"), which reads no table\'': (
        numbers_in_json
    ),
    "FORMS if kind == 'json' else None": broken_json,
    "'write(..., table=\"parquet\")' + (' or table=\"jsonl\"' if kind == 'csv' else '')": (
        text_like_a_number
    ),
    "f'call the column of images {IMAGE!r}; penstock.encode_images makes one of pixels'": (
        no_picture_column,
        pixels_as_pictures,
    ),
    '\'columns=["label", "image"] leaves the others out; rename={"cls": "label"} renames; other columns need another format\'': (
        other_columns
    ),
    "'scale the labels'": label_beyond_float32,
    "'RecordIO stores labels as float32, which holds whole numbers up to 2^24; id is uint64'": (
        label_that_rounds
    ),
    "'give a schema with types that can hold the values'": narrow_schema,
}
