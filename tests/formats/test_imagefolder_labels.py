"""Tables of labels next to images, as text: JSON in its forms, and CSV, whose values must not change."""

from __future__ import annotations

import csv
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps

PIXELS = np.random.default_rng(8).integers(0, 256, (4, 6, 8, 3), np.uint8)
IMAGES = [one.as_py() for one in ps.encode_images(PIXELS, "png")]


def laid(folder: Path, images: int, **tables: str | bytes) -> Path:
    """A folder of images 0.png, 1.png, ... and of tables. In the names of tables, `__` stands for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(images):
        (folder / f"{number}.png").write_bytes(IMAGES[number])
    for name, text in tables.items():
        data = text.encode() if isinstance(text, str) else text
        (folder / name.replace("__", ".")).write_bytes(data)
    return folder


def of_csv(folder: Path, values: list[str]) -> tuple[str, list[Any]]:
    """The type and the values of a column of CSV cells with these texts."""
    rows = "".join(f"{n % 4}.png,{value}\n" for n, value in enumerate(values))
    images = min(len(values), 4)
    column = pa.table(ps.open(laid(folder, images, metadata__csv=f"file_name,v\n{rows}")))["v"]
    return str(column.type), column.to_pylist()


# -- JSON -------------------------------------------------------------------------------------------

ROWS = [
    {"file_name": "1.png", "label": 1, "tags": ["a,]", 'b"'], "box": {"x": 1.5}},
    {"file_name": "0.png", "label": 0, "tags": [], "box": {"x": 2.0}},
]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ROWS),
        json.dumps(ROWS, indent=2).replace("\n", "\r\n"),
        "\ufeff \n" + json.dumps(ROWS) + "\n\n",
        "\n".join(map(json.dumps, ROWS)),
    ],
    ids=["array", "indented", "mark", "lines"],
)
@pytest.mark.parametrize("name", ["metadata.json", "labels.json", "labels.jsonl"])
def test_json_gives_labels(tmp_path: Path, text: str, name: str) -> None:
    ds = ps.open(laid(tmp_path / "a", 2, **{name: text}))
    assert ds.schema.names == ["image", "label", "tags", "box"]
    assert [one["label"] for one in ds] == [1, 0]
    assert [one["image"] for one in ds] == [IMAGES[1], IMAGES[0]]
    assert [one["tags"] for one in ds] == [["a,]", 'b"'], []]
    other = laid(tmp_path / "b", 2, **{"train.json": text})
    assert [one["label"] for one in ps.open(other, table="train.json")] == [1, 0]


@pytest.mark.parametrize(
    "text",
    [
        '{"0.png": 1}',
        '{"0.png":\n 1}',
        '{"images": [{"file_name": "0.png"}], "annotations": []}',
        '{"file_name": ["0.png"], "label": [1]}',
        '["0.png"]',
        '[["0.png", 1]]',
        '["0.png", 1]\n["1.png", 2]',
        '[{"file_name": "0.png"}, null]',
        '[{"file_name": "0.png"}',
        '[{"file_name": "0.png"} {"file_name": "0.png"}]',
        '[{"file_name": "0.png"}] []',
        '[{"file_name": "0.png", "file_name": "0.png"}]',
        '[{"label": 1}]',
        "[",
        '["',
        "",
        "1",
        b'[{"file_name": "\xff.png"}]',
        "[" + "9" * 5000 + "]",
    ],
)
@pytest.mark.parametrize("name", ["metadata.json", "metadata.jsonl"])
def test_other_json_is_an_error_that_says_what_is_read(
    tmp_path: Path, text: str | bytes, name: str
) -> None:
    with pytest.raises(
        ps.FormatError, match="an array of objects, or one object per line"
    ) as caught:
        ps.open(laid(tmp_path, 1, **{name: text}), format="imagefolder")
    assert caught.value.file == str(tmp_path / name)
    assert (
        ps.open(tmp_path, format="imagefolder", table="", other_files="ignore")[0]["file_name"]
        == "0.png"
    )


def test_an_element_that_is_not_an_object_is_named(tmp_path: Path) -> None:
    with pytest.raises(ps.FormatError, match="has a number where") as caught:
        ps.open(laid(tmp_path, 1, metadata__json='[{"file_name": "0.png"}, 7]'))
    assert caught.value.record == 1


def test_an_array_names_every_image(tmp_path: Path) -> None:
    with pytest.raises(ps.FormatError, match=r"not named by the table metadata\.json"):
        ps.open(laid(tmp_path / "a", 1, metadata__json="[ ]"))
    with pytest.raises(ps.FormatError, match="not in the folder"):
        ps.open(laid(tmp_path / "b", 1, metadata__json='[{"file_name": "../0.png"}]'))


def test_a_second_table_is_reported(tmp_path: Path) -> None:
    folder = laid(tmp_path, 1, metadata__json="[]", metadata__csv="file_name,v\n0.png,1\n")
    with pytest.raises(ps.FormatError, match="several tables"):
        ps.open(folder)
    assert ps.open(folder, table="metadata.csv")[0]["v"] == 1


@pytest.mark.parametrize("quote", ["", '"', '\\"', '"\\'])
def test_json_beyond_the_limits_is_refused(tmp_path: Path, quote: str) -> None:
    deep = '[{"file_name": "0.png", "x": ' + "[" * 200_000 + quote
    with pytest.raises(ps.LimitError, match="nesting"):
        ps.open(laid(tmp_path / "a", 1, metadata__json=deep))
    rows = json.dumps([{"file_name": "0.png", f"k{n}": 1} for n in range(200)])
    folder = laid(tmp_path / "b", 1, metadata__json=rows)
    with pytest.raises(ps.LimitError, match="batch_bytes"):
        ps.open(folder, limits={"batch_bytes": 20_000})
    with pytest.raises(ps.LimitError, match="member_bytes"):
        ps.open(folder, limits={"member_bytes": 100})


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(json.dumps({"file_name": "0.png", f"k{n}": 1}) for n in range(4000)),
        "\n".join(json.dumps({"x": {f"k{n}": 1}}) for n in range(4000)),
        json.dumps({"x": [{f"k{n}": 1} for n in range(4000)]}),
        json.dumps({"x": [None] * 20_000}) + json.dumps({"x": [{f"k{n}": 1 for n in range(1000)}]}),
    ],
    ids=["rows", "objects", "lists", "nulls"],
)
def test_a_small_json_with_very_many_columns_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ps.LimitError, match="batch_bytes"):
        ps.open(laid(tmp_path, 1, metadata__jsonl=text), limits={"batch_bytes": 1 << 26})


@pytest.mark.parametrize("other", ['"x"', "true", "[1]", '[1, "x"]'])
@pytest.mark.parametrize("row", [1, 3000])
def test_a_value_of_another_type_is_an_error_that_names_the_row(
    tmp_path: Path, other: str, row: int
) -> None:
    lines = ['{"file_name": "0.png", "v": 1}'] * row
    lines.append(f'{{"file_name": "0.png", "v": {other}}}')
    with pytest.raises(ps.FormatError, match="cannot be read") as caught:
        ps.open(laid(tmp_path, 1, metadata__jsonl="\n".join(lines)))
    assert caught.value.record == row
    assert caught.value.file == str(tmp_path / "metadata.jsonl")


def test_json_rows_may_differ_in_names_and_in_kinds_of_number(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"v": 1, "x": None, "t": []} for _ in range(3000)]
    rows += [{"v": 2.5, "x": {"y": 1}}, {"t": [7], "w": "late", "v": 1 << 63}]
    text = json.dumps([{"file_name": "0.png", **row} for row in rows])
    ds = ps.open(laid(tmp_path, 1, metadata__json=text))
    last = {"v": 2.0**63, "x": None, "t": [7], "w": "late"}
    assert {**ds[3001], "image": None} == {"image": None, **last}
    assert [ds[0]["v"], ds[3000]["x"], ds[0]["w"]] == [1.0, {"y": 1}, None]


def test_strings_without_an_end_take_no_longer_than_others(tmp_path: Path) -> None:
    # An earlier version treated each quote as the start of a string up to the end of the file.
    with pytest.raises(ps.FormatError):
        ps.open(laid(tmp_path, 1, metadata__json='[{"' + '\\"' * 2_000_000))


def test_cut_and_changed_json_is_an_error_or_a_table(tmp_path: Path) -> None:
    whole = json.dumps(ROWS).encode()
    folder = laid(tmp_path, 2)
    for cut in range(len(whole)):
        (folder / "metadata.json").write_bytes(whole[:cut])
        with pytest.raises(ps.FormatError):
            ps.open(folder)
    rng = np.random.default_rng(3)
    for _ in range(300):
        broken = np.frombuffer(whole, np.uint8).copy()
        broken[rng.integers(0, len(broken), 2)] ^= rng.integers(1, 256, 2, np.uint8)
        (folder / "metadata.json").write_bytes(broken.tobytes())
        try:
            assert len(list(ps.open(folder))) == 2
        except ps.PenstockError:
            pass


def test_texts_like_times_stay_texts_in_json(tmp_path: Path) -> None:
    row = {"file_name": "0.png", "day": "2020-01-01", "days": ["2020-01-01T00:00:00Z"]}
    row["in"] = {"day": "2020-01-01"}
    for name, text in (("metadata.json", json.dumps([row])), ("labels.jsonl", json.dumps(row))):
        found = ps.open(laid(tmp_path / name, 1, **{name: text}))[0]
        assert {**found, "file_name": "0.png", "image": None} == {**row, "image": None}


# -- CSV --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "type_", "values"),
    [
        (["7", "-12", "0"], "int64", [7, -12, 0]),
        (["7", "", "NA"], "int64", [7, None, None]),
        (["7", '""', " 8"], "int64", [7, None, 8]),
        (["18446744073709551615", "1"], "uint64", [2**64 - 1, 1]),
        (["1", "2.5"], "double", [1.0, 2.5]),
        (["0.50", "1.25", "null"], "double", [0.5, 1.25, None]),
        (["1e-05", "1.5e+20", "3"], "double", [1e-05, 1.5e20, 3.0]),
        (["1.000e+00", "2.500e-01"], "double", [1.0, 0.25]),
        (["0.10000000000000001", "2.5"], "double", [0.1, 2.5]),
        (["inf", "-inf", "1"], "double", [math.inf, -math.inf, 1.0]),
        (["true", "false", ""], "bool", [True, False, None]),
        (["True", "False"], "bool", [True, False]),
        (["", ""], "null", [None, None]),
    ],
)
def test_numbers_in_csv_are_numbers(
    tmp_path: Path, cells: list[str], type_: str, values: list[Any]
) -> None:
    assert of_csv(tmp_path, cells) == (type_, values)


@pytest.mark.parametrize(
    "cells",
    [
        ["007", "010"],
        ["7", "010"],
        ["+1", "2"],
        ["1e5", "2"],
        ["12e4", "1.5"],
        ["1E5", "2.5"],
        ["1.9", "1.10"],
        [".5", "1"],
        ["0x10", "1"],
        ["18446744073709551616", "1"],
        ["9007199254740993", "0.5"],
        ["0.1234567890123456789", "0.5"],
        ["1e+999", "0.5"],
        ["true", "True"],
        ["true", "1"],
        ["2020-01-01", "2020-01-02"],
        ["2020-01-01 00:00:00", "2020-01-02 00:00:00"],
        ["12:30:00", "12:31:00"],
        ["NA", "null"],
        ["NA", "x"],
        ["nan", "x"],
    ],
)
def test_other_cells_in_csv_stay_the_same_text(tmp_path: Path, cells: list[str]) -> None:
    assert of_csv(tmp_path, cells) == ("string", cells)


def test_late_text_makes_a_column_text(tmp_path: Path) -> None:
    rows = 200_000  # after the first block, from which pyarrow would have inferred the types
    cells = [str(n) for n in range(rows)] + ["007"]
    lines = "".join(f"0.png,{cell}\n" for cell in cells)
    ds = ps.open(laid(tmp_path, 1, metadata__csv=f"file_name,v\n{lines}"))
    assert ds.take([0, rows]).column("v").to_pylist() == ["0", "007"]


def test_an_empty_cell_is_missing_and_empty_quotes_are_empty(tmp_path: Path) -> None:
    assert of_csv(tmp_path, ['"a ""b"", c"', "", '""']) == ("string", ['a "b", c', None, ""])


TEXTS = ["", "NA", "nan", "null", "a,b", 'say "so"', "line\nbreak\r\n", " x ", "ä;\t", None, "007"]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_texts_come_back_as_they_were(tmp_path: Path, kind: str) -> None:
    data = {
        "image": IMAGES[:2] * 6,
        "id": ["007", "010"] * 6,
        "n": ["", "NA"] * 6,
        "flag": ["true", "yes"] * 6,
        "day": ["2020-01-01"] * 12,
        'no, "yes"\n': [*TEXTS, "x"],
    }  # fmt: skip
    ps.write(data, tmp_path / "w", format="imagefolder", table=kind)
    back = pa.table(ps.open(tmp_path / "w"))
    for name, values in data.items():
        assert back[name].to_pylist() == values, name


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_numbers_come_back_as_they_were(tmp_path: Path, kind: str) -> None:
    columns = {
        "whole": pa.array([1.0, 2.0, None]),
        "float": pa.array([math.nan, math.inf, -0.0]),
        "tiny": pa.array([5e-324, 1.7976931348623157e308, 0.1]),
        "single": pa.array([0.1, math.nan, 1e20], pa.float32()),
        "half": pa.array(np.array([0.1, 1, 65504], np.float16)),
        "int": pa.array([-(2**63), None, 2**63 - 1]),
        "byte": pa.array([0, 1, 255], pa.uint8()),
        "bool": pa.array([True, False, None]),
        "none": pa.array([None, None, None], pa.int32()),
    }
    if kind == "csv":
        columns["unsigned"] = pa.array([2**64 - 1, 0, None], pa.uint64())
    table = pa.table({"image": pa.array(IMAGES[:3]), **columns})
    ps.write(table, tmp_path / "w", format="imagefolder", table=kind)
    back = pa.table(ps.open(tmp_path / "w"))
    for name in columns:
        # Python writes NaN and -0.0 so that they can be distinguished from others.
        assert repr(back[name].to_pylist()) == repr(table[name].to_pylist()), name
    assert ps.verify(tmp_path / "w").ok


@pytest.mark.parametrize(
    ("kind", "column", "record"),
    [
        ("csv", pa.array(["7", "10"]), 0),
        ("csv", pa.array(["1", "NA"]), 0),
        ("csv", pa.array(["0.5", "nan"]), 0),
        ("csv", pa.array(["true", "false"]), 0),
        ("csv", pa.array([None, "inf"]), 1),
        ("csv", pa.array([None, "1.50"]), 1),
        ("jsonl", pa.array([0, 2**64 - 1], pa.uint64()), 0),
    ],
)
def test_what_would_be_read_as_something_else_is_refused(
    tmp_path: Path, kind: str, column: pa.Array, record: int
) -> None:
    table = pa.table({"image": pa.array(IMAGES[:2]), "v": column})
    with pytest.raises(ps.SchemaError, match='table="parquet"') as caught:
        ps.write(table, tmp_path / "w", format="imagefolder", table=kind)
    assert (caught.value.field, caught.value.record) == ("v", record)
    assert os.listdir(tmp_path) == []
    ps.write(table, tmp_path / "w", format="imagefolder", table="parquet")
    assert pa.table(ps.open(tmp_path / "w"))["v"].to_pylist() == column.to_pylist()


def test_other_programs_read_the_csv_that_is_written(tmp_path: Path) -> None:
    data = {"image": IMAGES[:2], "id": ["007", 'a "b",\n'], "n": [1, 2], "x": [0.5, None]}
    ps.write(data, tmp_path / "w", format="imagefolder", table="csv")
    with open(tmp_path / "w" / "metadata.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows == [
        {"file_name": "00000000.png", "id": "007", "n": "1", "x": "0.5"},
        {"file_name": "00000001.png", "id": 'a "b",\n', "n": "2", "x": ""},
    ]


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_another_separator_is_reported(tmp_path: Path, separator: str) -> None:
    text = "\ufefffile_name;label\n0.png;0,5\n".replace(";", separator)
    with pytest.raises(ps.FormatError, match="reads only ','") as caught:
        ps.open(laid(tmp_path, 1, metadata__csv=text))
    assert repr(separator) in str(caught.value)
    assert caught.value.file == str(tmp_path / "metadata.csv")


def test_a_separator_in_a_name_is_not_a_separator(tmp_path: Path) -> None:
    ds = ps.open(laid(tmp_path, 1, metadata__csv="file_name,file;path\n0.png,1;2\n"))
    assert ds[0]["file;path"] == "1;2"


def test_a_table_of_an_unknown_kind_is_reported(tmp_path: Path) -> None:
    folder = laid(tmp_path, 1, train__txt="file_name\n0.png\n")
    with pytest.raises(ps.FormatError, match=r"ends with one of \.csv, \.json"):
        ps.open(folder, table="train.txt")


def test_the_ending_of_a_table_may_be_in_capitals(tmp_path: Path) -> None:
    assert ps.open(laid(tmp_path, 1, METADATA__CSV="file_name,v\n0.png,1\n"))[0]["v"] == 1
