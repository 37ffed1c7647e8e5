"""What each command prints, as a table and as JSON, and the status it ends with."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from running import run, run_process

import penstock as ps
from conftest import HOSTILE
from penstock.types import ImageType, fixed_tensors

READERS = ("info", "head", "schema", "stats")


@pytest.mark.parametrize("name", [*READERS, "verify", "index"])
def test_json_is_one_document_and_nothing_else(name: str, shards: Path) -> None:
    done = run(name, "--json", shards)
    assert done.status == 0
    assert isinstance(done.document, dict)
    assert done.err == ""


@pytest.mark.parametrize("name", [*READERS, "verify", "index"])
def test_piped_output_has_no_escapes_and_no_progress(name: str, shards: Path) -> None:
    done = run_process(name, shards)
    assert done.status == 0
    assert done.err == ""
    assert done.out
    assert "\x1b" not in done.out
    assert "\x07" not in done.out
    assert "\u202e" not in done.out
    assert not any(line.endswith(" ") for line in done.out.splitlines())


@pytest.mark.parametrize("name", [*READERS, "verify", "index"])
def test_missing_file_is_misuse(name: str, tmp_path: Path) -> None:
    done = run(name, tmp_path / "nothing.tfrecord")
    assert done.status == 2
    assert "no such file" in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


@pytest.mark.parametrize("name", ["head", "stats"])
def test_damage_ends_with_status_1_and_a_whole_message(name: str, damaged: Path) -> None:
    done = run(name, "-n", "300", damaged) if name == "head" else run(name, damaged)
    assert done.status == 1
    assert "data checksum does not match" in done.err
    assert str(damaged) in done.err
    assert "record " in done.err
    assert "byte " in done.err
    assert "Traceback" not in done.err


def test_damage_with_json_is_an_error_document(damaged: Path) -> None:
    done = run("stats", "--json", damaged)
    assert done.status == 1
    error = done.document["error"]
    assert error["type"] == "ChecksumError"
    assert error["file"] == str(damaged)
    assert isinstance(error["record"], int)
    assert isinstance(error["byte"], int)
    assert "does not match" in done.err


def test_damage_that_is_to_be_skipped_is_told(damaged: Path) -> None:
    done = run("stats", "--damage", "skip", "--json", damaged)
    assert done.status == 0
    assert done.document["num_records"] == 299
    (region,) = done.document["damage"]
    assert region["num_records"] == 1
    assert region["file"] == str(damaged)
    assert "passed over" in run("stats", "--damage", "skip", damaged).err


@pytest.mark.parametrize(
    "arguments",
    [
        ("head", "--columns", "nonsense", "FILE"),
        ("head", "--format", "nonsense", "FILE"),
        ("head", "--nonsense", "FILE"),
        ("head", "--infer", "some", "FILE"),
        ("head", "-n", "-1", "FILE"),
        ("head",),
        ("nonsense",),
        ("stats", "--threads", "0", "FILE"),
        ("schema", "--json", "--tensorflow", "FILE"),
        ("diff", "FILE"),
        ("diff", "FILE", "FILE", "FILE"),
        ("diff", "--by", "nonsense", "FILE", "FILE"),
        ("diff", "--columns", "nonsense", "FILE", "FILE"),
    ],
)
def test_misuse_ends_with_status_2(arguments: tuple[str, ...], single: Path) -> None:
    done = run(*(single if word == "FILE" else word for word in arguments))
    assert done.status == 2
    assert "Error:" in done.err
    assert done.out == ""


def test_unknown_column_names_those_that_are_there(single: Path) -> None:
    assert "id, name, score, tokens" in run("head", "--columns", "label", single).err


def test_closed_pipe_is_silent(single: Path) -> None:
    command = f"{sys.executable} -m penstock head -n 300 --json {single} | head -c 10"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=False)
    assert done.stderr == b""
    assert len(done.stdout) == 10


def test_output_without_utf8_is_escaped_rather_than_an_error(single: Path) -> None:
    done = run_process("stats", single, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.status == 0
    assert "\\u2026" in done.out


# -- info -----------------------------------------------------------------------------------------


def test_info_tells_files_records_and_sizes(shards: Path) -> None:
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


def test_info_tells_whether_an_index_was_there(damaged: Path) -> None:
    assert (
        run("info", "--json", "--index", "never", damaged).document["files"][0]["index"] == "none"
    )
    assert not Path(f"{damaged}.penstock").exists()
    made = run("info", "--json", damaged).document["files"][0]
    assert made["index"] == "made"
    assert made["index_path"] == f"{damaged}.penstock"
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


def test_head_escapes_what_would_steer_the_terminal(single: Path) -> None:
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


def test_schema_says_what_it_was_told_from(single: Path) -> None:
    document = run("schema", "--json", single).document
    assert next(field["type"] for field in document["fields"]) == "int64"
    assert "all 300 records" in document["inferred_from"]
    assert "300 records" in run("schema", single).out


def test_schema_of_all_records_sees_a_late_field(tmp_path: Path) -> None:
    early = pa.table({"a": list(range(1500))})
    late = pa.table({"a": [1, 2], "b": ["x", "y"]})
    ps.write(early, tmp_path / "x-00000-of-00002.tfrecord")
    ps.write(late, tmp_path / "x-00001-of-00002.tfrecord")
    shown = run("schema", "--json", "--all", tmp_path / "x-*.tfrecord").document
    assert [field["name"] for field in shown["fields"]] == ["a", "b"]
    (differing,) = shown["files_that_differ"]
    assert differing["path"].endswith("x-00000-of-00002.tfrecord")
    assert differing["lacks"] == ["b"]
    shown = run("schema", tmp_path / "x-*.tfrecord").out
    assert "b: lacking in 1 of 2 files" in shown
    assert "told from all records of 1 and the first records of 1 files" in shown


def test_schema_names_the_files_that_lack_a_field(tmp_path: Path) -> None:
    for number in range(8):
        more = {"b": ["x", "y"]} if number == 3 else {}
        ps.write({"a": [1, 2], **more}, tmp_path / f"x-{number}.tfrecord")
    document = run("schema", "--json", f"{tmp_path}/x-*.tfrecord").document
    a, b = document["fields"]
    assert (a["num_files"], a["num_lacking"], a["lacking"]) == (8, 0, [])
    assert (b["num_files"], b["num_lacking"]) == (1, 7)
    assert b["lacking"] == [str(tmp_path / f"x-{n}.tfrecord") for n in range(8) if n != 3]
    assert document["is_whole"] is True  # they are so small that the first records are all
    out = " ".join(run_process("schema", f"{tmp_path}/x-*.tfrecord", COLUMNS="1000").out.split())
    assert "b: lacking in 7 of 8 files" in out
    assert "x-2.tfrecord and 4 more" in out


def test_schema_does_not_speak_of_files_it_has_not_looked_at(tmp_path: Path) -> None:
    for number in range(103):
        ps.write({"a": [1]}, tmp_path / f"x-{number:03}.tfrecord", index=False)
    ps.write({"b": [1]}, tmp_path / "x-102.tfrecord", index=False, overwrite=True)
    some = run("schema", "--json", tmp_path / "x-*.tfrecord").document
    assert (some["num_files"], some["num_files_compared"], some["is_whole"]) == (103, 101, False)
    assert [field["name"] for field in some["fields"]] == ["a"]
    assert "looked at 101 of 103 files" in run("schema", tmp_path / "x-*.tfrecord").out
    whole = run("schema", "--json", "--all", tmp_path / "x-*.tfrecord").document
    assert (whole["num_files_compared"], whole["is_whole"]) == (103, True)
    assert [field["num_lacking"] for field in whole["fields"]] == [1, 102]


def test_schema_of_a_file_without_records_lacks_nothing(tmp_path: Path) -> None:
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


def test_records_that_are_no_examples_have_a_schema_that_was_told(tmp_path: Path) -> None:
    ps.write([b"no message"] * 7, tmp_path / "a.tfrecord")
    assert "told from all 7 records of a.tfrecord" in run("schema", tmp_path / "a.tfrecord").out
    assert "as they stand" in run("schema", "--raw", tmp_path / "a.tfrecord").out


def test_a_description_for_tensorflow_says_that_it_was_told_from_a_sample(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"a": range(1200)}, path)
    some = run("schema", "--tensorflow", path).out
    assert some.startswith("# told from the first 1000 records of a.tfrecord; --all")
    whole = run("schema", "--tensorflow", "--all", path).out
    assert whole.startswith("{")
    assert some.endswith(whole)


# -- stats ----------------------------------------------------------------------------------------


def test_stats_are_those_of_the_records(shards: Path) -> None:
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


# -- index and verify -----------------------------------------------------------------------------


def test_index_makes_sidecars_and_prints_their_paths(single: Path, tmp_path: Path) -> None:
    os.unlink(f"{single}.penstock")
    assert run("index", single).out.strip() == f"{single}.penstock"
    assert Path(f"{single}.penstock").exists()
    folder = tmp_path / "kept"
    (path,) = run("index", "--json", "--folder", folder, single).document["paths"]
    assert Path(path).parent == folder


def test_index_of_a_damaged_head_ends_with_status_1(single: Path) -> None:
    data = bytearray(single.read_bytes())
    data[0] ^= 1
    single.write_bytes(data)
    os.unlink(f"{single}.penstock")
    done = run_process("index", single)
    assert done.status == 1
    assert "record 0" in done.err


def test_verify_names_the_damage_and_ends_with_status_1(damaged: Path) -> None:
    done = run("verify", damaged)
    assert done.status == 1
    assert "data_checksum" in done.out
    assert "1 record lost" in done.out
    document = run("verify", "--json", damaged)
    assert document.status == 1
    (finding,) = document.document["findings"]
    assert document.document["ok"] is False
    assert finding["kind"] == "data_checksum"
    assert finding["start_byte"] <= damaged.stat().st_size // 2 < finding["end_byte"]


def test_verify_advises_repair_only_where_it_helps(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"a": range(1200)}, path, index=False)
    ps.write([b"no message"], tmp_path / "b.tfrecord", index=False)
    path.write_bytes(path.read_bytes() + (tmp_path / "b.tfrecord").read_bytes())
    ps.write({"a": range(1200)}, tmp_path / "c.parquet")
    cut = (tmp_path / "c.parquet").read_bytes()[:-9]
    (tmp_path / "c.parquet").write_bytes(cut)
    for name, said in (("a.tfrecord", "no Example"), ("c.parquet", "footer")):
        done = run("verify", tmp_path / name)
        assert done.status == 1
        assert said in done.out
        assert "penstock repair" not in done.out


def test_verify_of_good_files_is_well(shards: Path) -> None:
    done = run("verify", shards)
    assert done.status == 0
    assert done.out.startswith("well: 300 records right")


def test_repair_is_advised_by_names_that_fit(damaged: Path, tmp_path: Path) -> None:
    tar = tmp_path / "a.tar"
    ps.write({"txt": ["a"] * 50}, tar)
    tar.write_bytes(tar.read_bytes()[:40_000])
    assert f"try: penstock repair {tar} --into repaired.tar\n" in run("verify", tar).out
    assert "try: penstock repair FILE... --into repaired/\n" in run("verify", tar, damaged).out


def test_repair_is_not_advised_where_it_could_do_nothing(tmp_path: Path) -> None:
    np.savez(tmp_path / "uneven.npz", x=np.zeros(2), y=np.zeros(3))
    (tmp_path / "pets" / "cat").mkdir(parents=True)
    (tmp_path / "pets" / "cat" / "a.jpg").write_bytes(b"")
    for name in ("uneven.npz", "pets"):
        done = run("verify", tmp_path / name)
        assert done.status == 1
        assert "penstock repair" not in done.out


def test_repair_writes_what_is_whole(damaged: Path, tmp_path: Path) -> None:
    target = tmp_path / "repaired.tfrecord"
    done = run("repair", damaged, "--into", target)
    assert done.status == 0
    assert f"wrote {target}" in done.out
    assert "1 record lost" in done.out
    assert run("verify", "--json", target).document["num_records"] == 299
    assert run("repair", damaged, "--into", target).status == 2
    document = run("repair", "--json", damaged, "--into", target, "--overwrite").document
    assert document["num_records"] == 299
    assert document["paths"] == [str(target)]


@pytest.mark.parametrize("where", [(), ("--in-place", "--into", "x")])
def test_repair_wants_one_place_to_write_to(where: tuple[str, ...], damaged: Path) -> None:
    assert run("repair", damaged, *where).status == 2


# -- options of formats -----------------------------------------------------------------------------


def test_a_part_of_an_archive_is_read_by_an_option_of_its_format(tmp_path: Path) -> None:
    path = tmp_path / "uneven.npz"
    np.savez(path, x=np.zeros((2, 3)), y=np.arange(3))
    for command in ("info", "head", "schema", "stats", "verify"):
        assert run(command, path).status == 1
        assert run(command, path, "--read", 'arrays=["y"]').status == 0
    target = tmp_path / "y.parquet"
    assert run("convert", path, target, "--prove", "--read", 'arrays=["y"]').status == 0
    assert ps.open(target).take([2]).to_pylist() == [{"y": 2}]


@pytest.mark.parametrize("read", ["arrays=x", "array=[]", "index=1", "arrays"])
def test_a_wrong_option_of_a_format_is_misuse(tmp_path: Path, read: str) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(2))
    done = run("head", tmp_path / "a.npz", "--read", read)
    assert done.status == 2
    assert read.partition("=")[0] in done.err


# -- convert --------------------------------------------------------------------------------------


def test_convert_there_and_back_keeps_every_value(shards: Path, tmp_path: Path) -> None:
    there, back = tmp_path / "a.parquet", tmp_path / "back.tfrecord"
    document = run("convert", "--json", shards, there).document
    assert document["paths"] == [str(there)]
    assert document["num_records"] == 300
    assert run("convert", "--prove", there, back).status == 0
    before = run("head", "--json", "-n", "300", shards).document["records"]
    assert run("head", "--json", "-n", "300", back).document["records"] == before


def test_convert_takes_options_of_both_sides(damaged: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.tfrecord"
    options = ("--damage", "skip", "--columns", "id", "--rename", "id=number", "--num-shards", "2")
    document = run("convert", "--json", damaged, target, *options, "--option", "level=9").document
    assert len(document["paths"]) == 2
    assert len(document["damage"]) == 1
    assert document["num_records"] == 299
    (record,) = run("head", "-n", "1", "--json", document["paths"][0]).document["records"]
    assert record == {"number": 0}


def test_convert_overwrites_only_where_told(single: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.parquet"
    target.write_bytes(b"mine")
    assert run("convert", single, target).status == 2
    assert target.read_bytes() == b"mine"
    assert run("convert", single, target, "--overwrite").status == 0


@pytest.mark.parametrize(
    "options", [("x.nonsense",), ("x.parquet", "--option", "no=1"), ("x.parquet", "--rename", "id")]
)
def test_convert_refuses_what_it_does_not_know(
    options: tuple[str, ...], single: Path, tmp_path: Path
) -> None:
    assert run("convert", single, tmp_path / options[0], *options[1:]).status == 2
    assert not (tmp_path / options[0]).exists()


def test_convert_of_damaged_data_ends_with_status_1(damaged: Path, tmp_path: Path) -> None:
    done = run("convert", damaged, tmp_path / "a.parquet")
    assert done.status == 1
    assert "checksum" in done.err
    assert not (tmp_path / "a.parquet").exists()


# -- progress -------------------------------------------------------------------------------------


def test_progress_is_shown_on_a_terminal_only(shards: Path) -> None:
    pty = pytest.importorskip("pty", reason="there are no pseudo-terminals on this system")
    shown: list[bytes] = []

    def read(fd: int) -> bytes:
        data = os.read(fd, 1024)
        shown.append(data)
        return data

    with open(os.devnull, "wb") as nowhere:
        saved = os.dup(1)
        os.dup2(nowhere.fileno(), 1)
        try:
            status = pty.spawn([sys.executable, "-m", "penstock", "verify", str(shards)], read)
        finally:
            os.dup2(saved, 1)
            os.close(saved)
    assert status == 0
    assert b"verify" in b"".join(shown)
    assert b"300 records" in b"".join(shown)


# -- diff -----------------------------------------------------------------------------------------


def test_diff_of_equal_files_ends_with_status_0(single: Path, shards: Path) -> None:
    done = run("diff", single, shards)
    assert done.status == 0
    assert done.out == "equal: 300 records\n"
    assert run("diff", "--json", single, shards).document["equal"] is True


def test_diff_names_what_differs_and_ends_with_status_1(
    single: Path, tmp_path: Path, table: pa.Table
) -> None:
    names = ["other" if n == 7 else name for n, name in enumerate(table["name"].to_pylist())]
    other = table.set_column(1, "name", pa.array(names)).append_column("new", table["id"])
    ps.write(other, tmp_path / "other.parquet")
    done = run("diff", single, tmp_path / "other.parquet")
    assert done.status == 1
    assert "different: 300 of 300 records" in done.out
    assert re.search(r"^new +300 +0 +null +0$", done.out, re.MULTILINE)
    assert "only in B" in done.out
    done = run("diff", "--json", single, tmp_path / "other.parquet")
    assert done.status == 1
    fields = {field["name"]: field for field in done.document["fields"]}
    assert fields["name"]["num_records"] == 1
    assert fields["name"]["examples"] == [
        {"record_a": 7, "record_b": 7, "a": "dog", "b": "other", "place": 0}
    ]
    assert (fields["new"]["kind"], fields["new"]["num_only_in_b"]) == ("only in b", 300)
    assert run("diff", "--columns", "id", single, tmp_path / "other.parquet").status == 0


def test_diff_shows_hostile_values_as_escapes(
    single: Path, tmp_path: Path, table: pa.Table
) -> None:
    ps.write(table.set_column(1, "name", pa.array(["x"] * 300)), tmp_path / "other.parquet")
    done = run_process("diff", single, tmp_path / "other.parquet")
    assert done.status == 1
    assert "\\x1b" in done.out
    assert "\x1b" not in done.out
    assert not any(line.endswith(" ") for line in done.out.splitlines())


def test_diff_by_a_key_names_the_keys_of_one_side(
    single: Path, tmp_path: Path, table: pa.Table
) -> None:
    ps.write(table[::-1][:299], tmp_path / "other.arrow")
    done = run("diff", "--by", "id", single, tmp_path / "other.arrow")
    assert done.status == 1
    assert "1 record only in A: 0" in done.out


def test_diff_of_damage_is_an_error_and_can_be_passed_over(single: Path, damaged: Path) -> None:
    done = run("diff", single, damaged)
    assert done.status == 1
    assert "data checksum does not match" in done.err
    done = run("diff", "--json", "--damage", "skip", single, damaged)
    assert done.status == 1
    assert len(done.document["damage"]) == 1
    assert done.document["records"]["num_b"] == 299
    assert run("diff", single, damaged.parent / "nothing.tfrecord").status == 2


@pytest.mark.parametrize("name", ["head", "stats"])
@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["table", "json"])
@pytest.mark.parametrize(
    ("type_", "shown"),
    [
        (pa.timestamp("s"), "<value out of range: 1000000000000>"),
        (pa.timestamp("s", "No/Where"), "<value out of range: 1000000000000>"),
        (pa.timestamp("us", "No/Where"), "1970-01-12 13:46:40.000000Z"),
    ],
    ids=["a far year", "a far year in a time zone", "a time zone that nobody knows"],
)
def test_moments_that_python_does_not_know_are_shown_as_arrow_shows_them(
    name: str, as_json: list[str], type_: pa.DataType, shown: str, tmp_path: Path
) -> None:
    ps.write(pa.table({"x": pa.array([10**12], type_)}), tmp_path / "x.arrow")
    done = run(name, *as_json, tmp_path / "x.arrow")
    assert (done.status, done.err) == (0, "")
    assert shown in done.out
