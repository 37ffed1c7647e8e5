"""`penstock info`, `head`, `schema` and `stats`: what they print, as a table and as JSON."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from running import run, run_process

import penstock as ps
from penstock.columns.types import ImageType, fixed_tensors
from reading import HOSTILE, index_of

# -- info -----------------------------------------------------------------------------------------


def test_info_shows_files_records_and_sizes(shards: Path) -> None:
    document = run("info", "--json", shards).document
    assert document["num_files"] == 3
    assert document["num_records"] == 300
    assert document["num_bytes"] == sum(p.stat().st_size for p in shards.glob("*.tfrecord"))
    first = document["files"][0]
    assert first["format"] == "tfrecord"
    assert first["compression"] == ""
    assert first["index"] == "found"
    spread = first["record_bytes"]
    assert spread["count"] == 100
    # 16 bytes of frame surround each record.
    assert round(spread["mean"] * 100) + 1600 == first["num_bytes"]
    assert [field["name"] for field in document["fields"]] == ["id", "name", "score", "tokens"]


def test_info_shows_whether_there_was_an_index(damaged: Path) -> None:
    assert (
        run("info", "--json", "--index", "never", damaged).document["files"][0]["index"] == "none"
    )
    assert not index_of(damaged).exists()
    made = run("info", "--json", "--index", "beside", damaged).document["files"][0]
    assert made["index"] == "made"
    assert made["index_path"] == str(index_of(damaged))
    assert run("info", "--json", damaged).document["files"][0]["index"] == "found"


def test_info_of_gzip_and_parquet(tmp_path: Path, table: pa.Table) -> None:
    ps.write(table, tmp_path / "a.tfrecord.gz")
    ps.write(table, tmp_path / "a.parquet")
    packed = run("info", "--json", tmp_path / "a.tfrecord.gz").document["files"][0]
    assert packed["compression"] == "gzip"
    assert packed["plain_bytes"] > packed["num_bytes"]
    parquet = run("info", "--json", tmp_path / "a.parquet").document["files"][0]
    assert parquet["format"] == "parquet"
    assert parquet["index"] == "not needed"
    assert parquet["num_bytes"] == (tmp_path / "a.parquet").stat().st_size
    assert "when inflated" in run("info", tmp_path / "a.tfrecord.gz").out


# -- head -----------------------------------------------------------------------------------------


def test_head_gives_the_first_records_whole_in_json(single: Path) -> None:
    document = run("head", "--json", "-n", "3", single).document
    assert [record["id"] for record in document["records"]] == [0, 1, 2]
    assert document["records"][2]["name"] == HOSTILE
    assert document["records"][0]["score"] is None
    assert document["records"][2]["tokens"] == [0, 1]


def test_head_starts_anywhere_and_ends_with_the_data(shards: Path) -> None:
    document = run("head", "--json", "--start", "298", "-n", "10", shards).document
    assert document["first_record"] == 298
    assert [record["id"] for record in document["records"]] == [298, 299]
    assert run("head", "--json", "--start", "1000", shards).document["records"] == []
    assert run("head", "--json", "-n", "0", shards).document["records"] == []


def test_head_escapes_control_characters(single: Path) -> None:
    shown = run("head", "-n", "3", "--columns", "name", single).out
    assert "cat\\x1b[31m\\u202etac\\x07" in shown


def test_head_of_bytes_and_odd_numbers_is_json(tmp_path: Path) -> None:
    table = pa.table(
        {"x": pa.array([float("nan"), float("-inf")]), "b": pa.array([b"\xff\x00", b"ok"])}
    )
    ps.write(table, tmp_path / "odd.parquet")
    first, second = run("head", "--json", tmp_path / "odd.parquet").document["records"]
    assert first["x"] == "NaN"
    assert second["x"] == "-Infinity"
    assert base64.b64decode(first["b"]["base64"]) == b"\xff\x00"
    assert second["b"] == "ok"


def test_head_of_many_columns_gives_a_line_to_each(tmp_path: Path) -> None:
    table = pa.table({f"column_{n}": ["some words here"] for n in range(12)})
    ps.write(table, tmp_path / "wide.parquet")
    lines = run("head", tmp_path / "wide.parquet").out.splitlines()
    assert lines[0] == "record 0"
    assert lines[1].split() == ["column_0", "some", "words", "here"]


@pytest.mark.parametrize("width", [80, 120])
def test_head_fits_the_terminal(width: int, shards: Path) -> None:
    shown = run_process("head", shards, COLUMNS=str(width)).out
    assert max(len(line) for line in shown.splitlines()) <= width


def test_raw_head_shows_the_payload(single: Path) -> None:
    (record,) = run("head", "--raw", "-n", "1", "--json", single).document["records"]
    assert list(record) == ["record"]


# -- schema ---------------------------------------------------------------------------------------


def test_schema_compares_the_files_of_a_damaged_set(tmp_path: Path) -> None:
    ps.write({"a": [1] * 9}, tmp_path / "x-0.tfrecord", index=False)
    ps.write({"a": [1] * 9, "b": [2] * 9}, tmp_path / "x-1.tfrecord", index=False)
    with open(tmp_path / "x-0.tfrecord", "r+b") as file:
        file.write(b"\xff")
    assert run("schema", tmp_path).status == 1
    lacking = {
        field["name"]: field["num_lacking"]
        for field in run("schema", "--json", "--damage", "skip", tmp_path).document["fields"]
    }
    assert lacking == {"a": 0, "b": 1}


def test_schema_says_what_it_was_inferred_from(single: Path) -> None:
    document = run("schema", "--json", single).document
    assert next(field["type"] for field in document["fields"]) == "int64"
    assert "all 300 records" in document["inferred_from"]
    assert "300 records" in run("schema", single).out


def test_schema_of_all_records_sees_a_late_field(tmp_path: Path) -> None:
    early = pa.table({"a": list(range(1500))})
    late = pa.table({"a": [1, 2], "b": ["x", "y"]})
    ps.write(early, tmp_path / "x-00000-of-00002.tfrecord", index=False)
    ps.write(late, tmp_path / "x-00001-of-00002.tfrecord", index=False)
    shown = run("schema", "--json", "--all", tmp_path / "x-*.tfrecord").document
    assert [field["name"] for field in shown["fields"]] == ["a", "b"]
    (differing,) = shown["files_that_differ"]
    assert differing["path"].endswith("x-00000-of-00002.tfrecord")
    assert differing["lacks"] == ["b"]
    shown = run("schema", tmp_path / "x-*.tfrecord").out
    assert "b: missing in 1 of 2 files" in shown
    assert "inferred from all records of 1 and the first records of 1 files" in shown


def test_schema_names_the_files_that_lack_a_field(tmp_path: Path) -> None:
    for number in range(8):
        more = {"b": ["x", "y"]} if number == 3 else {}
        ps.write({"a": [1, 2], **more}, tmp_path / f"x-{number}.tfrecord")
    document = run("schema", "--json", f"{tmp_path}/x-*.tfrecord").document
    a, b = document["fields"]
    assert (a["num_files"], a["num_lacking"], a["lacking"]) == (8, 0, [])
    assert (b["num_files"], b["num_lacking"]) == (1, 7)
    assert b["lacking"] == [str(tmp_path / f"x-{n}.tfrecord") for n in range(8) if n != 3]
    # The files are so small that the first records are all records.
    assert document["is_whole"] is True
    out = " ".join(run_process("schema", f"{tmp_path}/x-*.tfrecord", COLUMNS="1000").out.split())
    assert "b: missing in 7 of 8 files" in out
    assert "x-2.tfrecord and 4 more" in out


def test_schema_does_not_mention_files_it_has_not_read(tmp_path: Path) -> None:
    for number in range(103):
        ps.write({"a": [1]}, tmp_path / f"x-{number:03}.tfrecord", index=False)
    ps.write({"b": [1]}, tmp_path / "x-102.tfrecord", index=False, overwrite=True)
    some = run("schema", "--json", tmp_path / "x-*.tfrecord").document
    assert (some["num_files"], some["num_files_compared"], some["is_whole"]) == (103, 101, False)
    assert [field["name"] for field in some["fields"]] == ["a"]
    assert "compared 101 of 103 files" in run("schema", tmp_path / "x-*.tfrecord").out
    whole = run("schema", "--json", "--all", tmp_path / "x-*.tfrecord").document
    assert (whole["num_files_compared"], whole["is_whole"]) == (103, True)
    assert [field["num_lacking"] for field in whole["fields"]] == [1, 102]


def test_a_file_without_records_does_not_count_as_lacking_fields(tmp_path: Path) -> None:
    ps.write({"a": [1]}, tmp_path / "x-0.tfrecord", index=False)
    (tmp_path / "x-1.tfrecord").write_bytes(b"")
    document = run("schema", "--json", tmp_path / "x-*.tfrecord").document
    assert [(f["name"], f["num_files"], f["lacking"]) for f in document["fields"]] == [("a", 1, [])]
    assert document["files_without_records"] == [str(tmp_path / "x-1.tfrecord")]


def test_images_and_tensors_are_named_in_words_and_in_json_as_arrow_names_them(
    tmp_path: Path,
) -> None:
    images = pa.ExtensionArray.from_storage(ImageType("jpeg"), pa.array([b"x"], pa.binary()))
    table = pa.table({"image": images, "mask": fixed_tensors(np.zeros((1, 2, 3), np.uint8))})
    path = tmp_path / "a.parquet"
    ps.write(table, path)
    for command in ("info", "schema", "stats"):
        shown = run(command, path).out
        assert "image (jpeg)" in shown, command
        assert "tensor uint8 [2, 3]" in shown
        assert "extension<" not in shown
    for command in ("info", "schema"):
        types = [field["type"] for field in run(command, path, "--json").document["fields"]]
        assert types == [str(field.type) for field in table.schema]


def test_schema_of_parquet_is_stored_in_it(tmp_path: Path, table: pa.Table) -> None:
    ps.write(table, tmp_path / "a.parquet")
    assert (
        run("schema", "--json", "--all", tmp_path / "a.parquet").document["inferred_from"] is None
    )
    assert "stored in the file" in run("schema", tmp_path / "a.parquet").out


def test_records_that_are_not_examples_have_an_inferred_schema(tmp_path: Path) -> None:
    ps.write([b"no message"] * 7, tmp_path / "a.tfrecord")
    assert "inferred from all 7 records of a.tfrecord" in run("schema", tmp_path / "a.tfrecord").out
    assert "undecoded records" in run("schema", "--raw", tmp_path / "a.tfrecord").out


def test_a_description_for_tensorflow_says_that_it_was_inferred_from_a_sample(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"a": range(1200)}, path)
    some = run("schema", "--tensorflow", path).out
    assert some.startswith("# inferred from the first 1000 records of a.tfrecord; --all")
    whole = run("schema", "--tensorflow", "--all", path).out
    assert whole.startswith("import tensorflow as tf\n\nfeatures = {\n")
    assert some.endswith(whole)


@pytest.mark.parametrize("is_sequence", [False, True])
def test_a_description_for_tensorflow_is_a_module(
    is_sequence: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import penstock.tf as tf

    path = tmp_path / "a.tfrecord"
    frames = {"frames": [[[1, 2]], [[3], [4]]]} if is_sequence else {}
    ps.write({"a": [1, 2], **frames}, path)
    monkeypatch.setitem(sys.modules, "tensorflow", tf)
    module: dict[str, object] = {}
    exec(run("schema", "--tensorflow", path).out, module)
    names = {"context_features", "sequence_features"} if is_sequence else {"features"}
    assert names == set(module) - {"__builtins__", "tf"}
    described = module["context_features" if is_sequence else "features"]
    assert described == {"a": tf.io.FixedLenFeature([], tf.int64)}


# -- stats ----------------------------------------------------------------------------------------


def test_stats_match_the_records(shards: Path) -> None:
    document = run("stats", "--json", shards).document
    fields = {field["name"]: field for field in document["fields"]}
    assert document["num_records"] == 300
    assert fields["id"]["values"] == {"count": 300, "min": 0, "mean": 149.5, "max": 299}
    assert fields["score"]["num_null"] == 75
    assert fields["name"]["num_distinct"] == 3
    assert fields["name"]["most_common"][0]["count"] == 100
    assert fields["name"]["is_text"] is True
    assert fields["tokens"]["lengths"] == {"count": 300, "min": 0, "mean": 2.0, "max": 4}
    assert sum(fields["id"]["histogram"]["counts"]) == 300


def test_stats_of_some_columns(shards: Path) -> None:
    document = run("stats", "--json", "--columns", "score,id", shards).document
    assert [field["name"] for field in document["fields"]] == ["score", "id"]


# -- values that Python cannot represent ----------------------------------------------------------


@pytest.mark.parametrize("name", ["head", "stats"])
@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["table", "json"])
@pytest.mark.parametrize(
    ("type_", "shown"),
    [
        (pa.timestamp("s"), "<value out of range: 1000000000000>"),
        (pa.timestamp("s", "No/Where"), "<value out of range: 1000000000000>"),
        (pa.timestamp("us", "No/Where"), "1970-01-12 13:46:40.000000Z"),
    ],
    ids=["a far year", "a far year in a time zone", "an unknown time zone"],
)
def test_times_that_python_cannot_represent_are_shown_as_arrow_shows_them(
    name: str, as_json: list[str], type_: pa.DataType, shown: str, tmp_path: Path
) -> None:
    ps.write(pa.table({"x": pa.array([10**12], type_)}), tmp_path / "x.arrow")
    done = run(name, *as_json, tmp_path / "x.arrow")
    assert (done.status, done.err) == (0, "")
    assert shown in done.out
