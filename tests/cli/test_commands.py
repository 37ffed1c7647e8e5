"""What each command prints, as a table and as JSON, and the status it ends with."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from running import run, run_process

import penstock as ps
from conftest import HOSTILE

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
    assert "lacks b" in run("schema", tmp_path / "x-*.tfrecord").out


def test_schema_of_parquet_is_stored_in_it(tmp_path: Path, table: pa.Table) -> None:
    ps.write(table, tmp_path / "a.parquet")
    assert (
        run("schema", "--json", "--all", tmp_path / "a.parquet").document["inferred_from"] is None
    )
    assert "stored in the file" in run("schema", tmp_path / "a.parquet").out


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


def test_verify_of_good_files_is_well(shards: Path) -> None:
    done = run("verify", shards)
    assert done.status == 0
    assert done.out.startswith("well: 300 records right")


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
