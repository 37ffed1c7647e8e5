"""`penstock index`, `verify` and `repair`: what they print and advise, and their exit status."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import numpy as np
import pytest
from running import run, run_process

import penstock as ps
from reading import index_of


def test_index_makes_sidecars_and_prints_their_paths(single: Path, tmp_path: Path) -> None:
    os.unlink(str(index_of(single)))
    assert run("index", single).out.strip() == str(index_of(single))
    assert index_of(single).exists()
    folder = tmp_path / "kept"
    (path,) = run("index", "--json", "--folder", folder, single).document["paths"]
    assert Path(path).parent == folder


def test_index_of_a_damaged_head_ends_with_status_1(single: Path) -> None:
    data = bytearray(single.read_bytes())
    data[0] ^= 1
    single.write_bytes(data)
    os.unlink(str(index_of(single)))
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


def test_verify_advises_repair_only_if_it_helps(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"a": range(1200)}, path, index=False)
    ps.write([b"no message"], tmp_path / "b.tfrecord", index=False)
    path.write_bytes(path.read_bytes() + (tmp_path / "b.tfrecord").read_bytes())
    ps.write({"a": range(1200)}, tmp_path / "c.parquet")
    cut = (tmp_path / "c.parquet").read_bytes()[:-9]
    (tmp_path / "c.parquet").write_bytes(cut)
    for name, said, helps in (
        ("a.tfrecord", "cannot be decoded", True),
        ("c.parquet", "footer", False),
    ):
        done = run("verify", tmp_path / name)
        assert done.status == 1
        assert said in done.out
        assert ("penstock repair" in done.out) == helps


def test_verify_of_intact_files_ends_with_status_0(shards: Path) -> None:
    done = run("verify", shards)
    assert done.status == 0
    assert done.out.startswith("ok: 300 records intact")


def test_repair_is_advised_with_a_target_that_fits(damaged: Path, tmp_path: Path) -> None:
    tar = tmp_path / "a.tar"
    ps.write({"txt": ["a"] * 50}, tar)
    tar.write_bytes(tar.read_bytes()[:40_000])
    assert f"try: penstock repair {tar} --into repaired.tar\n" in run("verify", tar).out
    assert "try: penstock repair FILE... --into repaired/\n" in run("verify", tar, damaged).out


def test_repair_is_not_advised_if_it_could_do_nothing(tmp_path: Path) -> None:
    np.savez(tmp_path / "uneven.npz", x=np.zeros(2), y=np.zeros(3))
    (tmp_path / "pets" / "cat").mkdir(parents=True)
    (tmp_path / "pets" / "cat" / "a.jpg").write_bytes(b"")
    for name in ("uneven.npz", "pets"):
        done = run("verify", tmp_path / name)
        assert done.status == 1
        assert "penstock repair" not in done.out


def test_repair_writes_the_intact_records(damaged: Path, tmp_path: Path) -> None:
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
def test_repair_needs_exactly_one_target(where: tuple[str, ...], damaged: Path) -> None:
    assert run("repair", damaged, *where).status == 2


def test_the_advice_has_the_options_that_were_given(damaged: Path) -> None:
    given = ("--format", "tfrecord", "--read", 'compression=""', "--limit", "record_bytes=1MiB")
    done = run("verify", damaged, *given, "--decode")
    words = """--format tfrecord --read 'compression=""' --limit record_bytes=1048576 --decode"""
    advice = f"penstock repair {words} {damaged} --into repaired.tfrecord"
    assert f"try: {advice}\n" in done.out
    assert run(*shlex.split(advice)[1:-1], damaged.with_name("whole.tfrecord")).status == 0


def test_the_advice_for_a_file_with_added_fields_keeps_them(tmp_path: Path) -> None:
    path, whole = tmp_path / "a.tfrecord", tmp_path / "whole.tfrecord"
    ps.write({"id": range(100)}, path)
    ps.add_fields(path, {"more": range(100)})
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2 + 20)
        file.write(b"??")
    (advice,) = [line for line in run("verify", path).out.splitlines() if line.startswith("try: ")]
    command = f"penstock convert {path} repaired.tfrecord --damage skip"
    assert advice == f"try: {command} keeps the fields that are stored next to this file"
    assert run("convert", path, whole, "--damage", "skip").status == 0
    assert ps.open(whole).schema.names == ["id", "more"]
    assert len(ps.open(whole)) == 99


def test_damaged_pictures_are_counted_and_the_first_are_named(tmp_path: Path) -> None:
    right = ps.encode_images([np.zeros((8, 8, 3), np.uint8)], codec="png")[0].as_py()
    for name in ("a", "b"):
        images = [right if n % 2 else right[:-20] for n in range(10)]
        ps.write({"image": images}, tmp_path / f"{name}.tfrecord")
    done = run("verify", "--decode", tmp_path)
    assert "10 pictures in 2 files cannot be decoded; the first:" in done.out
    assert done.out.count("the picture cannot be decoded") == 3
    assert "and 7 more: findings, or --json, lists all" in done.out
    assert len(run("verify", "--decode", "--json", tmp_path).document["findings"]) == 10
    one = tmp_path / "a.tfrecord"
    ps.add_fields(one, {"more": range(10)})
    bake = f"penstock fields bake {one} --in-place"
    repair = f"penstock repair --decode {one} --into repaired.tfrecord"
    assert f"try: {bake}, then {repair}\n" in run("verify", "--decode", one).out


def test_info_says_that_it_counts_damaged_records(damaged: Path) -> None:
    def counted(command: str, *words: str) -> int:
        return run(command, "--json", damaged, *words).document["num_records"]

    found = run("info", "--json", damaged, "--damage", "skip").document
    assert found["num_records"] > counted("stats", "--damage", "skip")
    assert found["counts_damaged"] is True
    shown = run("info", damaged, "--damage", "skip").out
    assert "found without reading them; stats counts the undamaged ones" in shown
    assert "without reading" not in run("info", damaged).out
