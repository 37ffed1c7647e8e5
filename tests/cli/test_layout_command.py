"""`penstock layout`: the table, JSON, and the exit status."""

from __future__ import annotations

from pathlib import Path

from running import run

import penstock as ps


def test_the_table_is_that_of_the_function(golden: Path) -> None:
    path = golden / "tfrecord" / "plain.tfrecord"
    shown = run("layout", path, "--record", 1)
    assert shown.status == 0
    assert shown.out == f"{ps.layout(path, record=1)}\n"
    assert "masked crc32c of data    0x191c1fbb  ok" in shown.out


def test_json_is_the_layout_as_a_dict(golden: Path) -> None:
    path = golden / "neighbours" / "two.npz"
    shown = run("layout", path, "--json")
    assert (shown.status, shown.document) == (0, ps.layout(path).to_dict())


def test_the_exit_status_is_1_if_something_differs_or_is_damaged(golden: Path) -> None:
    differs = run("layout", golden / "tfrecord" / "bad_data_crc.tfrecord", "--record", 1)
    damaged = run("layout", golden / "tfrecord" / "trunc_in_payload.tfrecord", "--json")
    assert (differs.status, damaged.status) == (1, 1)
    assert "DIFFERS: computed 0x191c1fbb" in differs.out
    assert damaged.document["ok"] is False


def test_misuse_is_2(golden: Path) -> None:
    path = golden / "tfrecord" / "plain.tfrecord"
    assert run("layout", path, "--record", 99).status == 2
    assert run("layout", path, "--format", "nothing").status == 2
    assert run("layout", path, "--read", "nothing=1").status == 2
    assert run("layout", golden / "webdataset" / "shard-*.tar").status == 2


def test_names_in_a_file_do_not_reach_the_terminal(tmp_path: Path) -> None:
    ps.write({"cat\x1b[31m\u202e": [1]}, tmp_path / "a.tfrecord", index=False)
    shown = run("layout", tmp_path / "a.tfrecord")
    assert shown.status == 0
    assert "\x1b" not in shown.out
    assert "\u202e" not in shown.out
