"""Behaviour that all commands share: output, JSON, misuse, damage, progress, and exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from running import run, run_process

import penstock as ps

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


def test_skipped_damage_is_reported(damaged: Path) -> None:
    done = run("stats", "--damage", "skip", "--json", damaged)
    assert done.status == 0
    assert done.document["num_records"] == 299
    (region,) = done.document["damage"]
    assert region["num_records"] == 1
    assert region["file"] == str(damaged)
    assert "skipped in" in run("stats", "--damage", "skip", damaged).err


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
    if "--json" in arguments:
        assert done.document["error"]["type"] == "UsageError"
    else:
        assert done.out == ""


def test_only_repair_salvages_damage(single: Path) -> None:
    done = run("head", "--damage", "salvage", single)
    assert done.status == 2
    assert "penstock repair --salvage" in done.err


def test_an_unknown_column_names_the_existing_columns(single: Path) -> None:
    assert "id, name, score, tokens" in run("head", "--columns", "label", single).err


def test_closed_pipe_is_silent(single: Path) -> None:
    command = f"{sys.executable} -m penstock head -n 300 --json {single} | head -c 10"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=False)
    assert done.stderr == b""
    assert len(done.stdout) == 10


@pytest.mark.parametrize("stream", ["0<&-", "1>&-", "2>&-", "1>&- 2>&-"])
def test_commands_work_if_a_standard_stream_is_closed(
    single: Path, tmp_path: Path, stream: str
) -> None:
    target = tmp_path / "x.parquet"
    for command in (f"verify {single}", f"convert {single} {target}", f"head {target}", "--help"):
        shell = f"{sys.executable} -m penstock {command} {stream}"
        done = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, check=False)
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False), command
    assert len(ps.open(target)) == len(ps.open(single))


def test_output_without_utf8_is_escaped_rather_than_an_error(single: Path) -> None:
    done = run_process("stats", single, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.status == 0
    assert "\\u2026" in done.out


# -- options of formats ---------------------------------------------------------------------------


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


@pytest.mark.parametrize("read", ["payloads=false", "progress=1", "storage=1", "limits={}"])
def test_an_option_of_the_read_format_is_not_an_option_of_the_verb(single: Path, read: str) -> None:
    done = run("verify", single, "--read", read)
    assert done.status == 2
    assert f"{read.partition('=')[0]!r} is not an option of a format" in done.err
    assert run("head", single, "--read", "mmap=true").status == 2


@pytest.mark.parametrize("value", ["[1]", "1", '{"a":1}', "x"])
def test_an_option_of_names_must_be_a_list(tmp_path: Path, value: str) -> None:
    ps.write({"x": [1]}, tmp_path / "a.h5")
    done = run("head", tmp_path / "a.h5", "--read", f"datasets={value}")
    assert done.status == 2
    assert "hdf5: option datasets is a list of names or None, not" in done.err


# -- the width of the terminal, and interrupts ----------------------------------------------------


@pytest.mark.parametrize("columns", ["abc", "-3", "0", "", "1.5", "99999999999"])
def test_an_invalid_width_is_ignored(single: Path, columns: str) -> None:
    usual = run_process("head", "-n", "1", single, COLUMNS="100")
    assert run_process("head", "-n", "1", single, COLUMNS=columns) == usual
    assert usual.out


def test_an_interrupt_while_the_program_is_imported_is_reported() -> None:
    script = """if True:
        import sys
        class Finder:
            def find_spec(self, name, *rest):
                if name == "click":
                    raise KeyboardInterrupt
        sys.meta_path.insert(0, Finder())
        from penstock.cli import main
        main()
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (130, b"interrupted\n")


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
